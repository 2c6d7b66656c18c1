"""Values and derivatives of 250 JAX functions at extremes, poles, integers, zeros and infinities, by all three routes.

A derivative is correct if it equals JAX's in f32, or that in f64, which is more exact. Where JAX returns NaN, RLX may
return a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.graph import Graph
from tests.drawing import drawn, shares

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

from tests.importers.jax_row_slopes import CASES  # noqa: E402
from tests.importers.jax_slopes import Case  # noqa: E402

ROUTES = ("from_jax", "artifact", "text")
_SHARES = 32
# The functions of every run.
_CORE = (
    *(
        "sigmoid",
        "softplus",
        "silu",
        "gelu_exact",
        "relu",
        "relu6",
        "clamp_scalar",
        "erfc",
        "erf_inv",
        "log_ndtr",
        "lgamma",
        "integer_pow_-3",
    ),
    *("rint", "logit", "xlogy", "logaddexp", "maximum", "softmax_masked", "cross_entropy_masked", "attention_infinite"),
)
# In modules, these are loops of unknown length, which have no reverse mode.
_LOOPS = ("gammainc_2", "gammaincc_2", "betainc_23")
_NOT_CORE = sorted(set(CASES) - {*_CORE, *_LOOPS})


@dataclass(frozen=True)
class Corner:
    """A known difference between RLX and JAX.

    Attributes:
        names: The functions.
        reason: The reason of the difference.
        routes: The routes with the difference.
        kinds: The affected results: `value`, `vjp`, `jvp` and `hvp`.
        where: The affected arguments; None for all.
    """

    names: Sequence[str]
    reason: str
    routes: Sequence[str] = ROUTES
    kinds: Sequence[str] = ("vjp", "jvp", "hvp")
    where: Callable[..., np.ndarray] | None = None


_BY_PIECES = ("artifact", "text")
_TINY, _LARGE = float(np.finfo(np.float32).tiny), 1e15
CORNERS: list[Corner] = []


def _corner(names: str, reason: str, **details: Any) -> None:
    CORNERS.append(Corner(names.split(), reason, **details))


def _at_zero(*args: np.ndarray) -> np.ndarray:
    return np.logical_or.reduce([a == 0 for a in args])


def _at_extremes(*args: np.ndarray) -> np.ndarray:
    return np.logical_or.reduce([(np.abs(a) >= 1e9) | (np.abs(a) <= 1e-9) for a in args])


def _at_poles(*args: np.ndarray) -> np.ndarray:
    return np.logical_or.reduce([np.isinf(a) | ((a <= 0) & (a == np.round(a))) for a in args])


# A module does not preserve JAX's primitives. The ops that replace them have another derivative here.
_corner("stop_gradient", "a module does not say what JAX stops", routes=_BY_PIECES)
_corner("frexp", "a module computes it by bits", routes=_BY_PIECES)
_corner(
    "lgamma gammaln loggamma multigammaln digamma polygamma_1 gamma factorial poch_2 betaln beta",
    "a module chooses a constant at poles",
    routes=_BY_PIECES,
    where=_at_poles,
)
_corner(
    "lgamma gammaln loggamma multigammaln polygamma_1 digamma", "at poles all is NaN", kinds=("hvp",), where=_at_poles
)
_corner("erf_inv", "a module chooses infinity at 1", routes=_BY_PIECES, kinds=("hvp",))
_corner("bessel_i0e i0e i0 i0_of_numpy", "a module computes it of |x|", routes=_BY_PIECES, where=_at_zero)
_corner("bessel_i0e i0e bessel_i1e i1e i0 i1", "a series has fewer digits", routes=_BY_PIECES, kinds=("hvp",))
_corner("digamma", "a series has fewer digits", routes=_BY_PIECES, kinds=("hvp",), where=lambda x: x < 0)
_corner("dawsn", "a module computes it of |x|, in a loop", routes=_BY_PIECES, where=_at_extremes)
_corner("sici sici_cosine", "a select does not take in a loop", routes=_BY_PIECES)
_corner("digamma", "a series overflows", routes=_BY_PIECES, where=lambda x: x > 1e38)
_corner("cummax cummin cumlogsumexp cumprod", "a module computes it by reduce_window", routes=_BY_PIECES)
_corner("erfcx log1mexp log_ndtr norm_logcdf", "what overflows is not chosen", routes=_BY_PIECES, where=_at_extremes)
_corner("erfcx", "it overflows", routes=_BY_PIECES, where=lambda x: x < -5)
_corner("fresnel fresnel_cosine", "a series has fewer digits than its derivative", routes=_BY_PIECES)
_corner("fresnel fresnel_cosine", "angles of such size have no digits", where=_at_extremes)
_corner("erfcx", "a series has fewer digits", routes=_BY_PIECES, kinds=("hvp",))
_corner("multigammaln betaln", "a pole of digamma is chosen", routes=_BY_PIECES, kinds=("hvp",))
_corner("spence", "a select does not take in a sum", routes=_BY_PIECES, where=lambda x: (x == 0) | (x == 1))
_corner("poch_2 boxcox", "a quotient overflows", routes=_BY_PIECES, where=_at_extremes)
_corner("max_pool", "ties share evenly")
_corner("sqrt acosh arccosh", "the sign of infinity is that of a zero", where=lambda x: (x == 0) | (x == -1))
_corner("prod cumprod scan_of_products", "a product overflows", where=lambda x: (np.abs(x) > 1e9).any(-1))
_corner("logaddexp2 logaddexp2_0", "the shares of the two are those of their sizes", routes=_BY_PIECES)
_corner("sinc", "the second derivative at 0 is that of a constant", routes=_BY_PIECES, kinds=("hvp",), where=_at_zero)
_corner("silu", "compiled it is one op, which has the limit", kinds=("value",), where=np.isneginf)
# JAX's result is arbitrary here.
_corner("spence log1mexp", "they are defined above 0", where=lambda x: x < 0)
_corner("i0_of_numpy", "it is a function of |x|", where=_at_zero)
_corner("poch_2", "digits cancel", kinds=("hvp",))
_corner("zeta zeta_2 zeta_of_3", "it is defined from 1 on, of positive numbers", kinds=("value", "vjp", "jvp", "hvp"))
_corner("bce softplus_by_hand tanh_by_hand sigmoid_turned dawsn", "their digits cancel")
_corner("boxcox", "what is 0 to XLA", where=lambda x, y: np.abs(x) <= _TINY)


def _function_of(cases: Sequence[Case]) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Return all functions as one, and their arguments in a list."""

    def together(*args: Any) -> list[Any]:
        given = iter(args)
        return [case.function(*(next(given) for _ in case.args)) for case in cases]

    return together, [a for case in cases for a in case.args]


def _imported(function: Callable[..., Any], args: Sequence[np.ndarray], route: str) -> Graph:
    if route == "from_jax":
        return rlx.from_jax(function, *args)
    exported = export.export(jax.jit(function), platforms=["cpu"])(*args)
    return rlx.from_stablehlo(exported.mlir_module_serialized if route == "artifact" else exported.mlir_module())


def _derivatives(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values, their cotangents and tangents for ones, and the tangents of these cotangents."""

    def pulled(*args: Any) -> Any:
        results, pull = jax.vjp(function, *args)
        return results, pull(jax.tree.map(jnp.ones_like, results))

    ones = [jnp.ones_like(a) for a in args]
    (values, vjp), (jvp, hvp) = jax.jvp(pulled, tuple(args), tuple(ones))
    return values, vjp, jvp, hvp


def _by_name(names: Sequence[str], found: Sequence[Sequence[Any]]) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return the arrays of each function and kind: one for value and tangent, one per argument for the others."""
    ends = np.cumsum([0, *(len(CASES[n].args) for n in names)])
    values, vjp, jvp, hvp = ([np.asarray(a, np.float64) for a in arrays] for arrays in found)
    return {
        name: {"value": [values[i]], "vjp": vjp[start:end], "jvp": [jvp[i]], "hvp": hvp[start:end]}
        for i, (name, start, end) in enumerate(zip(names, ends, ends[1:], strict=False))
    }


def _references(names: Sequence[str], dtype: Any, *, compiled: bool = False) -> dict[str, dict[str, list[np.ndarray]]]:
    function, args = _function_of([CASES[n] for n in names])
    derivatives = (lambda *args: _derivatives(function, args)) if compiled else None
    given = [a.astype(dtype) for a in args]
    return _by_name(names, jax.jit(derivatives)(*given) if derivatives else _derivatives(function, given))


def _results(g: Graph, args: Sequence[np.ndarray], evaluate: Callable[..., Any]) -> list[Any]:
    names = [i.name for i in g.inputs]
    values = dict(zip(names, args, strict=True))
    pulled = rlx.vjp(g, names)
    values |= {i.name: np.ones(i.shape, args[0].dtype) for i in pulled.inputs if i.name not in values}
    both = rlx.jvp(pulled, names)
    values |= {f"tangent_{n}": np.ones_like(a) for n, a in zip(names, args, strict=True)}
    results = evaluate(both, values)
    ends = np.cumsum([0, *[len(g.outputs), len(names)] * 2])
    return [results[start:end] for start, end in pairwise(ends)]


def _is_close(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (np.isnan(found) & np.isnan(expected)) | np.isclose(found, expected, rtol=1e-3, atol=1e-6)


def _is_right(kind: str, found: np.ndarray, narrow: np.ndarray, wide: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        rounded = wide.astype(np.float32).astype(np.float64)
        right = _is_close(found, narrow) | _is_close(found, rounded)
        right |= np.abs(found - wide) <= 4 * np.abs(narrow - wide)  # JAX's own rounding
    # JAX returns NaN if an intermediate result overflows.
    return right | (np.isnan(narrow) & (np.isfinite(wide) | (kind != "value")))


def _excused(name: str, route: str, kind: str, args: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Where values are not compared: derivatives at NaN, subnormal numbers, which XLA flushes to 0, and corners."""
    excused = np.zeros(shape, bool)
    if shape == args[0].shape:
        for a in args:
            excused |= (np.isnan(a) & (kind != "value")) | ((a != 0) & (np.abs(a) < _TINY))
            excused |= (kind == "hvp") & ((np.abs(a) > _LARGE) | ((a != 0) & (np.abs(a) < 1 / _LARGE)))
    if args[0].ndim == 2 and kind != "value":  # rows with NaN, and products of large values
        is_odd: Any = np.isnan(args[0]) | np.isinf(args[0]) | (np.abs(args[0]) > (_LARGE if kind == "hvp" else np.inf))
        excused |= np.isnan(args[0]).any() if shape[:1] != args[0].shape[:1] else _along(is_odd.any(1), shape)
    for corner in CORNERS:
        if name in corner.names and route in corner.routes and kind in corner.kinds:
            at = np.ones(shape, bool) if corner.where is None else corner.where(*args)
            excused |= at if at.shape == shape else _along(at, shape) if at.shape == shape[:1] else True
    return excused


def _along(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(rows.reshape(-1, *(1,) * (len(shape) - 1)), shape)


def _problems(name: str, route: str, found: Any, narrow: Any, wide: Any) -> list[str]:
    case, problems = CASES[name], list[str]()
    args = [a.astype(np.float32) for a in case.args]
    for kind in ("value", "vjp", "jvp", "hvp")[: 4 if case.is_smooth else 3]:
        for got, one, other in zip(found[kind], narrow[kind], wide[kind], strict=True):
            right = _is_right(kind, got, one, other) | _excused(name, route, kind, args, got.shape)
            for at in map(tuple, np.argwhere(~right)[:3]):
                point = [float(a[at]) for a in args] if got.shape == args[0].shape else at
                expected = f"{one[at]:.6g} ({other[at]:.6g} in f64)"
                problems.append(f"{kind} of {name} by {route} at {point}: {got[at]:.6g}, not {expected}")
    return problems


def _check(names: Sequence[str], routes: Sequence[str] = ROUTES) -> None:
    """Check functions. A result that differs from compiled JAX is compared with JAX step by step, and with f64."""
    function, args = _function_of([CASES[n] for n in names])
    given = [a.astype(np.float32) for a in args]
    results = {
        route: _by_name(names, _results(_imported(function, given, route), given, rlx.evaluate)) for route in routes
    }
    compiled = _references(names, np.float32, compiled=True)
    pairs = [(name, route) for name in names for route in routes]
    odd = [(n, r) for n, r in pairs if _problems(n, r, results[r][n], compiled[n], compiled[n])]
    if odd:
        again = sorted({name for name, _ in odd})
        narrow = _references(again, np.float32)
        with jax.enable_x64(True):
            wide = _references(again, np.float64)
        problems = [p for n, r in odd for p in _problems(n, r, results[r][n], narrow[n], wide[n])]
        assert not problems, "\n".join(problems)


def test_there_are_enough_functions() -> None:
    assert len(CASES) >= 250
    assert {n for corner in CORNERS for n in corner.names} <= set(CASES)


# The artifact and the text are the same module in two formats.
one_format = drawn("form", _BY_PIECES)


@one_format
def test_derivatives_of_common_functions_are_those_of_jax(form: str) -> None:
    _check(_CORE, ("from_jax", form))


@one_format
@drawn("share", range(_SHARES))
def test_derivatives_are_those_of_jax(share: int, form: str) -> None:
    names = shares(_NOT_CORE, _SHARES, stratum=lambda n: len(CASES[n].args[0].shape))[share]
    _check(names, ("from_jax", form))


@drawn("device", ["cpu", "xla"], of_each=1)
def test_compiled_derivatives_are_those_of_jax(device: str) -> None:
    names = ("sigmoid", "silu", "softplus", "relu", "clamp_scalar", "integer_pow_-3", "logit", "softmax_masked")
    function, args = _function_of([CASES[n] for n in names])
    given = [a.astype(np.float32) for a in args]

    def run(graph: Graph, values: Any) -> list[Any]:
        return list(rlx.Session(device).compile(graph).run(values))

    results = _by_name(names, _results(_imported(function, given, "text"), given, run))
    narrow = _references(names, np.float32)
    with jax.enable_x64(True):
        wide = _references(names, np.float64)
    problems = [p for n in names for p in _problems(n, "text", results[n], narrow[n], wide[n])]
    assert not problems, "\n".join(problems)


@drawn("is_compared", [False, True], of_each=1, weights={True: 1e-6})
@pytest.mark.parametrize("name", _LOOPS)
def test_loops_have_forward_mode(name: str, is_compared: bool) -> None:
    """In a module, loops of unknown length replace the primitives whose derivatives `rlx.from_jax` knows."""
    if is_compared:
        _check([name], ["from_jax"])
    g = _imported(CASES[name].function, [a.astype(np.float32) for a in CASES[name].args], "text")
    names = [i.name for i in g.inputs]
    rlx.jvp(g, names)
    with pytest.raises(rlx.Error, match="max_iterations"):
        rlx.vjp(g, names)
