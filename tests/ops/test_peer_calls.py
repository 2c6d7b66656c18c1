"""Calls derived from the signatures of NumPy and PyTorch: each gives the same result in RLX, or an error with advice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from rlx.ops import surface
from tests.ops.test_calls_as_typed import answer_in

_RNG = np.random.default_rng(0)
X, Y = (_RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32) for _ in range(2))
SQUARE = (X.T @ X + np.eye(4)).astype(np.float32)
# Required arguments of a function, in the order in which they are tried.
GIVEN: tuple[tuple[Any, ...], ...] = (
    *((X,), (SQUARE,), (X[0],), (X, Y), (SQUARE, SQUARE), (X[0], Y[0])),
    *((X, 1), (X, 0.5), (X, (4, 3)), (X, 0, 1), (X, (3, 1), (1, 0)), (X, 1, 2), (SQUARE, 2), ((3, 4),), ((3, 4), 2.0)),
)
# Values for an argument by name. Other arguments get their default, and bools also the other value.
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("axis", "dim"), (-1, 0)),
    **dict.fromkeys(("axes", "dims"), ((0, 1),)),
    **{"ddof": (1,), "correction": (1,), "ord": (1, 2, None), "p": (1, 2), "n": (2, 5), "s": ((2, 3),), "k": (1,)},
    **{"eps": (1e-3,), "alpha": (0.5,), "beta": (2.0,), "delta": (0.5,), "dtype": ()},
    **{"norm": ("ortho",), "side": ("right",), "diagonal": (1,), "offset": (1,), "rtol": (1e-2,), "tol": (0.5,)},
    **{"rounding_mode": ("floor",), "training": (False,), "train": (False,), "momentum": (0.2,), "initial": (0.0,)},
}
# Names whose PyTorch function differs or returns more results: RLX has NumPy's function, or that of `functional`.
OF_NUMPY = {
    *("std", "var", "median", "max", "min", "sort", "split", "histogram", "cummax", "cummin", "triangular_solve", "lu"),
    *(
        "pad",
        "one_hot",
        "softmax",
        "log_softmax",
        "softmin",
        "embedding",
        "norm",
        "unique",
        "argwhere",
        "nonzero",
        "where",
    ),
    *("kl_div", "binary_cross_entropy_with_logits", "adaptive_avg_pool2d"),
    *("trace", "diagonal", "adaptive_max_pool1d", "hinge_embedding_loss", "dropout", "meshgrid", "repeat", "lp_pool2d"),
}
# Factors of a matrix are unique only up to signs, general eigenvalues have no order, and NumPy's least squares return more.
OTHERS = {"eig", "eigh", "svd", "qr", "lstsq", "resize", "real", "imag", "norm", "where"}


class Parameter(NamedTuple):
    name: str
    by_place: bool
    default: Any


class Function(NamedTuple):
    """A function of a peer, with one of its signatures."""

    peer: str
    name: str
    call: Callable[..., Any]
    parameters: tuple[Parameter, ...]


def _numpy() -> Iterator[Function]:
    for home in (np, np.linalg, np.fft):
        for name in sorted(surface.methods().keys() & set(dir(home)) - OTHERS):
            try:
                listed = inspect.signature(getattr(home, name)).parameters.values()
            except (TypeError, ValueError):
                continue
            kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            yield Function(
                "numpy", name, getattr(home, name), tuple(_parameter(p) for p in listed if p.kind not in kinds)
            )


def _torch() -> Iterator[Function]:
    torch = pytest.importorskip("torch")
    for home in (torch.nn.functional, torch):
        for name in sorted(surface.methods().keys() & set(dir(home)) - OTHERS - OF_NUMPY):
            for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
                if not any(a.is_out for a in schema.arguments) and "name" not in schema.overload_name:
                    yield Function("torch", name, getattr(home, name), tuple(map(_of_schema, schema.arguments)))


def _parameter(parameter: inspect.Parameter) -> Parameter:
    by_place = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    default = None if "NoValue" in type(parameter.default).__name__ else parameter.default
    return Parameter(parameter.name, by_place, default)


def _of_schema(argument: Any) -> Parameter:
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    return Parameter("input" if argument.name == "self" else argument.name, not argument.kwarg_only, default)


def _calls(function: Function) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield calls with the first accepted arguments, then with each other argument by name, and with all in order."""
    needed = [p for p in function.parameters if p.default is inspect.Parameter.empty]
    given = next((g for g in GIVEN if len(g) == len(needed) and _wanted(function, g, {}) is not None), None)
    if given is None:
        return
    yield given, {}
    optional = [p for p in function.parameters if p not in needed]
    before = list(given)
    for parameter in optional:
        values = VALUES.get(parameter.name, (not parameter.default,) if isinstance(parameter.default, bool) else ())
        for value in values if parameter.default == [] else (*values, parameter.default):
            yield given, {parameter.name: value}
            if parameter.by_place and function.parameters[: len(needed)] == tuple(needed):
                yield (*before, value), {}
        before.append(parameter.default)


def _wanted(function: Function, args: Any, kwargs: Any) -> list[np.ndarray] | None:
    """Return the peer's results; None if it does not accept the arguments."""
    torch: Any = pytest.importorskip("torch") if function.peer == "torch" else None
    try:
        made = [torch.from_numpy(a) if torch and isinstance(a, np.ndarray) else a for a in args]
        results = function.call(*made, **kwargs)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        return [np.asarray(r) for r in results]
    except Exception:
        return None


def _found(name: str, args: Any, kwargs: Any) -> list[np.ndarray] | str:
    """Return RLX's results, or the error message."""
    g: Any = rlx.Graph()
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    tensors = iter([g.input(f"x{i}", a.shape, dtype=a.dtype) for i, a in enumerate(arrays)])
    try:
        results = getattr(g, name)(*(next(tensors) if isinstance(a, np.ndarray) else a for a in args), **kwargs)
        g.set_outputs(list(results) if isinstance(results, (tuple, list)) else [results])
    except (rlx.Error, AttributeError) as problem:
        return str(problem)
    return list(rlx.evaluate(g, {f"x{i}": a for i, a in enumerate(arrays)}))


def _is_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return len(found) == len(wanted) and all(
        f.shape == w.shape and np.allclose(f, w, rtol=1e-3, atol=1e-4, equal_nan=True)
        for f, w in zip(found, wanted, strict=True)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", ["numpy", "torch"])
def test_a_call_of_a_peer_is_computed_or_answered(peer: str) -> None:
    wrong, computed = [], 0
    for function in _numpy() if peer == "numpy" else _torch():
        for args, kwargs in _calls(function):
            wanted = _wanted(function, args, kwargs)
            if wanted is None:
                continue
            found = _found(function.name, args, kwargs)
            shown = [f"f32{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a) for a in args]
            shown += [f"{k}={v!r}" for k, v in kwargs.items()]
            call = f"{function.peer}: g.{function.name}({', '.join(shown)})"
            if isinstance(found, str):
                if not answer_in(found):
                    wrong.append(f"{call}: {found}")
            elif not _is_same(found, wanted):
                wrong.append(f"{call}: other numbers")
            else:
                computed += 1
    assert not wrong, "\n".join(wrong)
    assert computed >= 400
