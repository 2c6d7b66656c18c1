"""Elementary functions of c64 against mpmath, the tables of C99's annex G, and NumPy; also compiled by IREE and XLA."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ops.elementwise.activation import COMPOSED
from rlx.support.errors import ShapeError
from tests.drawing import drawn
from tests.ops.references import run

_COUNT = 60
_EXACT: dict[str, Any] = {
    **{kind: getattr(mpmath, kind) for kind in COMPOSED if hasattr(mpmath, kind) and kind != "log1p"},
    "log2": lambda z: mpmath.log(z) / mpmath.log(2),
    "log10": lambda z: mpmath.log(z) / mpmath.log(10),
    "log1p": lambda z: mpmath.log(1 + z),
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
    "sign": lambda z: z / abs(z),
}
# The greatest error of a compiled function relative to its result, in ulps. Functions computed in f64 are rounded once.
_COMPILED = dict.fromkeys(_EXACT, 0.8) | {"tan": 5.0, "sinh": 3.5, "cosh": 3.0, "log2": 3.5, "log10": 3.5, "sign": 1.5}
_SMALLEST = 2.0**-126


def _spread(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    """Return numbers whose parts have magnitudes from 2^low to 2^high and random signs."""
    parts = [np.exp2(rng.uniform(low, high, _COUNT)) * rng.choice([-1.0, 1.0], _COUNT) for _ in range(2)]
    return (parts[0] + 1j * parts[1]).astype(np.complex64)


def _numbers(kind: str) -> np.ndarray:
    """Return ordinary, tiny and huge numbers, and numbers where formulas cancel.

    The latter are near 1, -1, i, both unit circles, and the axes.
    """
    rng = np.random.default_rng(len(kind))
    circle, small = np.exp(1j * rng.uniform(-np.pi, np.pi, _COUNT)), _spread(rng, -30, -1)
    roots = rng.uniform(-1.5, 1.5, _COUNT)  # roots of the real part of expm1
    most = 6.3 if kind in ("expm1", "sinh", "cosh", "tan", "exp2") else 120.0
    across, along = _spread(rng, -60, -10), _spread(rng, -4, 4)
    sets = [
        *(_spread(rng, -3, 3), _spread(rng, -30, 6), _spread(rng, -100, most), _spread(rng, -140, -100)),
        *(circle, circle - 1, small + 1, small - 1, small + 1j, small - 1j),
        *(np.real(along) + 1j * np.imag(across), np.real(across) + 1j * np.imag(along)),
        -np.log(np.cos(roots)) + 1j * roots,
    ]
    return np.concatenate(sets).astype(np.complex64)


def _ulp(size: float) -> float:
    return 2.0 ** (math.frexp(max(size, _SMALLEST))[1] - 24)


def _exact(kind: str, z: np.ndarray) -> list[Any]:
    with mpmath.workprec(200):
        return [_EXACT[kind](mpmath.mpc(float(v.real), float(v.imag))) for v in z]


def _errors(kind: str, z: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Return the greatest error of a part in its own ulps, and of a result in ulps of its modulus."""
    of_parts = of_size = 0.0
    with mpmath.workprec(200):
        for value, exact in zip(found, _exact(kind, z), strict=True):
            errors = [
                float(abs(mpmath.mpf(float(a)) - b)) for a, b in ((value.real, exact.real), (value.imag, exact.imag))
            ]
            sizes = [float(abs(exact.real)), float(abs(exact.imag))]
            of_parts = max(of_parts, *(e / _ulp(s) for e, s in zip(errors, sizes, strict=True)))
            of_size = max(of_size, math.hypot(*errors) / _ulp(float(abs(exact))))
    return of_parts, of_size


@pytest.mark.parametrize("kind", COMPOSED)
def test_each_part_is_rounded_once(kind: str) -> None:
    z = _numbers(kind)
    of_parts, _ = _errors(kind, z, run("complex_function", z, kind=kind))
    # The real part of expm1 is a difference: near its roots f64 has fewer digits.
    assert of_parts <= (30.0 if kind == "expm1" else 0.501)


def _graph(kinds: Any, arrays: dict[str, np.ndarray]) -> Graph:
    g: Any = Graph()
    g.set_outputs([getattr(g, kind)(g.input(kind, arrays[kind].shape, "c64")) for kind in kinds])
    return g


@drawn("device", ["cpu", "xla"])
def test_compiled_functions_are_accurate(device: str) -> None:
    """Denormals may count as 0."""
    arrays = {kind: _numbers(kind) for kind in _EXACT}
    arrays |= {
        kind: z[(np.abs(np.real(z)) > _SMALLEST) & (np.abs(np.imag(z)) > _SMALLEST)] for kind, z in arrays.items()
    }
    results = rlx.Session(device).compile(_graph(_EXACT, arrays)).run(arrays)
    for kind, found in zip(_EXACT, results, strict=True):
        _, of_size = _errors(kind, arrays[kind], np.asarray(found))
        assert of_size <= _COMPILED[kind], f"{kind}: {of_size:.3g} ulp"


_INF, _NAN, _PI = math.inf, math.nan, math.pi
# C99, annex G.6; for expm1 and log1p, values that follow from exp and log.
_ROWS: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {
    "acos": [
        ((0.0, 0.0), (_PI / 2, -0.0)), ((-0.0, 0.0), (_PI / 2, -0.0)), ((0.0, _NAN), (_PI / 2, _NAN)),
        ((1.0, _INF), (_PI / 2, -_INF)), ((1.0, _NAN), (_NAN, _NAN)), ((-_INF, 1.0), (_PI, -_INF)),
        ((_INF, 1.0), (0.0, -_INF)), ((-_INF, _INF), (3 * _PI / 4, -_INF)), ((_INF, _INF), (_PI / 4, -_INF)),
        ((_NAN, 1.0), (_NAN, _NAN)), ((_NAN, _INF), (_NAN, -_INF)), ((2.0, 0.0), (0.0, -1.3169578969248166)),
        ((2.0, -0.0), (0.0, 1.3169578969248166)), ((-2.0, 0.0), (_PI, -1.3169578969248166)),
    ],
    "acosh": [
        ((0.0, 0.0), (0.0, _PI / 2)), ((-0.0, 0.0), (0.0, _PI / 2)), ((1.0, _INF), (_INF, _PI / 2)),
        ((0.0, _NAN), (_NAN, _PI / 2)), ((-_INF, 1.0), (_INF, _PI)), ((_INF, 1.0), (_INF, 0.0)),
        ((-_INF, _INF), (_INF, 3 * _PI / 4)), ((_INF, _INF), (_INF, _PI / 4)), ((_INF, _NAN), (_INF, _NAN)),
        ((_NAN, _INF), (_INF, _NAN)), ((_NAN, 1.0), (_NAN, _NAN)), ((-2.0, -0.0), (1.3169578969248166, -_PI)),
    ],
    "asinh": [
        ((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (-0.0, 0.0)), ((1.0, _INF), (_INF, _PI / 2)),
        ((1.0, _NAN), (_NAN, _NAN)), ((_INF, 1.0), (_INF, 0.0)), ((_INF, _INF), (_INF, _PI / 4)),
        ((_INF, _NAN), (_INF, _NAN)), ((_NAN, 0.0), (_NAN, 0.0)), ((_NAN, 1.0), (_NAN, _NAN)),
        ((0.0, 2.0), (1.3169578969248166, _PI / 2)), ((-0.0, 2.0), (-1.3169578969248166, _PI / 2)),
    ],
    "asin": [
        ((0.0, -0.0), (0.0, -0.0)), ((_INF, 1.0), (_PI / 2, _INF)), ((1.0, _INF), (0.0, _INF)),
        ((2.0, -0.0), (_PI / 2, -1.3169578969248166)), ((0.0, _NAN), (0.0, _NAN)), ((_NAN, 0.0), (_NAN, _NAN)),
    ],
    "atanh": [
        ((0.0, 0.0), (0.0, 0.0)), ((0.0, _NAN), (0.0, _NAN)), ((1.0, 0.0), (_INF, 0.0)),
        ((1.0, _INF), (0.0, _PI / 2)), ((1.0, _NAN), (_NAN, _NAN)), ((_INF, 1.0), (0.0, _PI / 2)),
        ((_INF, _INF), (0.0, _PI / 2)), ((_INF, _NAN), (0.0, _NAN)), ((_NAN, 1.0), (_NAN, _NAN)),
        ((_NAN, -_INF), (0.0, -_PI / 2)), ((2.0, 0.0), (0.5493061443340549, _PI / 2)),
        ((2.0, -0.0), (0.5493061443340549, -_PI / 2)),
    ],
    "atan": [((0.0, 1.0), (0.0, _INF)), ((_INF, -0.0), (_PI / 2, -0.0)), ((-0.0, 2.0), (-_PI / 2, 0.5493061443340549))],
    "cosh": [
        ((0.0, 0.0), (1.0, 0.0)), ((1.0, _INF), (_NAN, _NAN)), ((_INF, 0.0), (_INF, 0.0)),
        ((_INF, 2.0), (-_INF, _INF)), ((_INF, _INF), (_INF, _NAN)), ((_NAN, 1.0), (_NAN, _NAN)),
    ],
    "sinh": [
        ((0.0, 0.0), (0.0, 0.0)), ((0.0, _INF), (0.0, _NAN)), ((1.0, _INF), (_NAN, _NAN)), ((_INF, 0.0), (_INF, 0.0)),
        ((_INF, 2.0), (-_INF, _INF)), ((_INF, _INF), (_INF, _NAN)), ((_NAN, 0.0), (_NAN, 0.0)),
    ],
    "tan": [
        ((0.0, 0.0), (0.0, 0.0)), ((_INF, 1.0), (_NAN, _NAN)), ((1.0, _INF), (0.0, 1.0)), ((2.0, _INF), (-0.0, 1.0)),
        ((_NAN, 0.0), (_NAN, 0.0)), ((_NAN, _INF), (0.0, 1.0)),
    ],
    "expm1": [
        ((-0.0, 0.0), (0.0, 0.0)), ((1.0, _INF), (_NAN, _NAN)), ((_INF, 0.0), (_INF, 0.0)), ((-_INF, 1.0), (-1.0, 0.0)),
        ((_INF, 2.0), (-_INF, _INF)), ((-_INF, _INF), (-1.0, 0.0)), ((_INF, _INF), (_INF, _NAN)),
        ((-_INF, _NAN), (-1.0, 0.0)), ((_INF, _NAN), (_INF, _NAN)), ((_NAN, -0.0), (_NAN, -0.0)),
    ],
    "log1p": [
        ((-1.0, 0.0), (-_INF, 0.0)), ((1.0, _INF), (_INF, _PI / 2)), ((1.0, _NAN), (_NAN, _NAN)),
        ((-_INF, 1.0), (_INF, _PI)), ((_INF, 1.0), (_INF, 0.0)), ((-_INF, _INF), (_INF, 3 * _PI / 4)),
        ((_INF, _NAN), (_INF, _NAN)), ((_NAN, _INF), (_INF, _NAN)), ((0.0, -0.0), (0.0, -0.0)),
    ],
    "exp2": [
        ((0.0, -0.0), (1.0, -0.0)), ((1.0, _INF), (_NAN, _NAN)), ((_INF, 0.0), (_INF, 0.0)), ((-_INF, 1.0), (0.0, 0.0)),
        ((_INF, 4.0), (-_INF, _INF)), ((-_INF, _INF), (0.0, 0.0)), ((_INF, _INF), (_INF, _NAN)), ((_NAN, 0.0), (_NAN, 0.0)),
    ],
    "rsqrt": [
        ((_INF, 1.0), (0.0, -0.0)), ((_INF, _INF), (0.0, 0.0)), ((-_INF, 1.0), (0.0, -0.0)), ((1.0, -_INF), (0.0, 0.0)),
        ((_NAN, _INF), (0.0, -0.0)), ((_NAN, 1.0), (_NAN, _NAN)), ((-4.0, 0.0), (0.0, -0.5)), ((-4.0, -0.0), (0.0, 0.5)),
    ],
    "sigmoid": [
        ((0.0, 0.0), (0.5, 0.0)), ((800.0, 1.0), (1.0, 0.0)), ((-800.0, 1.0), (0.0, 0.0)), ((_INF, 1.0), (1.0, 0.0)),
        ((-_INF, 1.0), (0.0, 0.0)), ((_INF, _INF), (1.0, 0.0)), ((-_INF, _NAN), (0.0, 0.0)), ((1.0, _INF), (_NAN, _NAN)),
        ((1.0, _NAN), (_NAN, _NAN)), ((_NAN, 0.0), (_NAN, _NAN)),
    ],
    "log2": [((0.0, 0.0), (-_INF, 0.0)), ((-0.0, 0.0), (-_INF, _PI / math.log(2))), ((_INF, _NAN), (_INF, _NAN))],
    "log10": [((-_INF, 1.0), (_INF, _PI / math.log(10))), ((-0.0, -0.0), (-_INF, -_PI / math.log(10)))],
}  # fmt: skip


def _of_pairs(pairs: Any) -> np.ndarray:
    result = np.empty(len(pairs), np.complex64)
    result.real, result.imag = np.array(pairs, np.float32).T
    return result


@pytest.mark.parametrize("kind", COMPOSED)
def test_special_values_are_those_of_the_standard(kind: str) -> None:
    """Parts and their signs are compared, except where a part is NaN, which leaves the sign of the other undefined."""
    points, wanted = (_of_pairs(pairs) for pairs in zip(*_ROWS[kind], strict=True))
    found = run("complex_function", points, kind=kind)
    is_open = np.isnan(wanted) | (np.isinf(np.real(points)) & np.isinf(np.imag(points)))
    for part in (np.real, np.imag):
        np.testing.assert_allclose(np.abs(part(found)), np.abs(part(wanted)), rtol=1e-6)
        differs = (np.signbit(part(found)) != np.signbit(part(wanted))) & ~is_open
        assert not differs.any(), (points[differs], found[differs])


def test_signs() -> None:
    """Signs are NumPy's, but NaN where a part is NaN next to an infinity, as in the array API."""
    sizes = (0.0, -0.0, 2.0, -3.0, 3e38, 1e-44, _INF, -_INF, _NAN)
    z = _of_pairs([(a, b) for a in sizes for b in (0.0, 4.0, -3e38, _INF, _NAN)])
    found = evaluate(_graph(["sign"], {"sign": z}), {"sign": z})[0]
    with np.errstate(all="ignore"):
        wanted = np.where(np.isnan(z), complex(_NAN, _NAN), np.sign(z.astype(np.complex128)))
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(found), part(wanted), rtol=3e-7, atol=_SMALLEST)
    assert not np.signbit(np.real(found[z == 0])).any()


def test_rounding_is_that_of_each_part() -> None:
    z = _of_pairs([(0.5, -1.5), (2.5, 2.4), (-0.4, _INF), (_NAN, 3.7)])
    found = evaluate(_graph(["round"], {"round": z}), {"round": z})[0]
    assert np.array_equal(found.view(np.uint32), np.rint(z).view(np.uint32))


def test_an_activation_that_is_a_function_of_complex_numbers_says_so() -> None:
    g = Graph()
    z = g.input("z", (2,), "c64")
    with pytest.raises(ShapeError, match="asin is not defined for c64") as caught:
        g.emit("activation", (z,), kind="asin")
    assert "rlx.complex_function" in str(caught.value) and caught.value.location
    with pytest.raises(ShapeError, match="gelu is not defined for c64"):
        g.gelu(z)
