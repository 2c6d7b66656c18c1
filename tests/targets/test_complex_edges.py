"""Complex numbers at the edges of their formats: compiled programs agree with the evaluator on the CPU and on XLA.

Parts are zeros of either sign, infinities, NaN, and the largest, the smallest normal and the squarable magnitudes.
Results are compared by modulus. Infinities and NaN are compared part by part, and signs of zeros not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ops.elementwise.activation import COMPOSED
from tests.conformance.failures import Failures
from tests.drawing import drawn, shares

DEVICES = ("cpu", "xla")
KINDS = ("c64", "c128")
_FUNCTIONS = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", *COMPOSED)
# Each share is one program. Compilation for the CPU is most of the time of the test.
_SHARES = [*map(tuple, shares(_FUNCTIONS, 3, stratum=lambda name: name in COMPOSED))]
# Their parts are infinities of unspecified sign where the sine or cosine of an infinity is a factor.
_OPEN_SIGNS = ("sin", "sinh")


def _grid(kind: str, others: Sequence[float]) -> np.ndarray:
    """All complex numbers with parts at the edges of a format, or from other numbers."""
    part = dtype(kind).part.numpy
    limits = np.finfo(part)
    sizes = [0.0, 1.0, np.inf, limits.max, limits.tiny, 1.02 * limits.tiny, *others]
    column = np.array([s * sign for s in sizes for sign in (1, -1)] + [np.nan], part)
    grid = np.empty((len(column), len(column)), dtype(kind).numpy)
    grid.real, grid.imag = column[:, None], column
    return grid.ravel()


def _modulus_classes(z: np.ndarray) -> np.ndarray:
    """0 for finite numbers, 1 for infinite ones, 2 for the others."""
    return np.where(np.isfinite(z), 0, np.where(np.isinf(np.real(z)) | np.isinf(np.imag(z)), 1, 2))


def _wrong(got: np.ndarray, expected: np.ndarray, *, open_signs: bool = False) -> np.ndarray:
    """Where two results differ by more than 6 ulp of the modulus, or in an infinity or NaN of a part."""
    limits = np.finfo(expected.dtype)
    got_wide, wide = got.astype(np.clongdouble), expected.astype(np.clongdouble)
    wrong = _modulus_classes(got) != _modulus_classes(expected)
    for a, b in ((np.real(got), np.real(expected)), (np.imag(got), np.imag(expected))):
        a, b = (np.abs(a), np.abs(b)) if open_signs else (a, b)
        wrong |= (np.isnan(a) != np.isnan(b)) | (np.isinf(a) != np.isinf(b)) | (np.isinf(a) & np.isinf(b) & (a != b))
    finite = np.isfinite(got_wide) & np.isfinite(wide)
    # Compiled code flushes subnormals, of operands and results.
    allowed = 6 * limits.eps * np.abs(wide) + 2 * limits.tiny
    return wrong | (finite & (np.abs(got_wide - wide) > allowed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@drawn("names", _SHARES, ids="-".join)
def test_functions(device: str, kind: str, names: tuple[str, ...]) -> None:
    limits = np.finfo(dtype(kind).part.numpy)
    z = _grid(kind, [0.3, 2.5, 40.0, 1e-8, float(np.log(limits.max)) + 0.2, np.sqrt(limits.max), np.sqrt(limits.tiny)])
    g = Graph()
    x = g.input("x", z.shape, kind)
    g.set_outputs([g.activation(name, x) for name in names])
    failures = Failures()
    with np.errstate(all="ignore"):
        both = zip(names, rlx.Session(device).compile(g).run({"x": z}), evaluate(g, {"x": z}), strict=True)
        for name, result, expected in both:
            got = np.asarray(result)
            wrong = _wrong(got, expected, open_signs=name in _OPEN_SIGNS)
            if name == "exp2":
                # The product of a small imaginary part and log 2 is subnormal, and infinity times 0 is 0.
                wrong &= (np.abs(np.imag(z)) >= 2 * limits.tiny) | (np.imag(z) == 0)
            at = np.flatnonzero(wrong)[:3]
            failures.expect(name, not len(at), f"{z[at]}: {got[at]} instead of {expected[at]}")
    failures.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_quotients(device: str, kind: str) -> None:
    limits = np.finfo(dtype(kind).part.numpy)
    z = _grid(kind, [2.5, limits.max / 2, 3.7 * limits.tiny, np.sqrt(limits.max)])
    a, b = (m.ravel().copy() for m in np.meshgrid(z, z))
    g = Graph()
    g.set_outputs([g.input("a", a.shape, kind) / g.input("b", b.shape, kind)])
    with np.errstate(all="ignore"):
        got = np.asarray(rlx.Session(device).compile(g).run({"a": a, "b": b})[0])
        expected = evaluate(g, {"a": a, "b": b})[0]
        wrong = np.flatnonzero(_wrong(got, expected))
    examples = [f"{a[i]}/{b[i]}: {got[i]} instead of {expected[i]}" for i in wrong[:5]]
    assert not len(wrong), "\n".join([f"{len(wrong)} of {len(a)} differ", *examples])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_squares(device: str, kind: str) -> None:
    """The power by 2 of finite numbers, including those whose parts have an infinite sum."""
    z = _grid(kind, [2.5, 1.25 * np.sqrt(np.finfo(dtype(kind).part.numpy).max)])
    z = z[np.isfinite(z)]
    g = Graph()
    g.set_outputs([g.input("x", z.shape, kind) ** g.constant(np.array(2, dtype(kind).numpy))])
    with np.errstate(all="ignore"):
        got = np.asarray(rlx.Session(device).compile(g).run({"x": z})[0])
        expected = evaluate(g, {"x": z})[0]
        at = np.flatnonzero(_wrong(got, expected))[:5]
    assert not len(at), f"{z[at]}: {got[at]} instead of {expected[at]}"
