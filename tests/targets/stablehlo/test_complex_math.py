"""Functions of c64 and c128 on XLA agree with the evaluator where a part is huge, infinite, NaN or a signed zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op.card import as_results
from rlx.ops.elementwise.activation import COMPOSED
from tests.conformance.compiled import contiguous
from tests.conformance.compiled_xla import compile_graphs
from tests.drawing import drawn

_SPECIAL = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)
_SIZES: dict[str, Sequence[float]] = {
    "c64": (0.0, 1e-37, 3e-30, 1e-6, 0.5, 3.0, 89.0, 1e20, 3e38),
    # exp and the hyperbolic functions overflow at 710.
    "c128": (0.0, 1e-307, 3e-30, 1e-6, 0.7, 0.77, 3.0, 89.0, 699.0, 709.9, 710.4, 720.0, 1e20, 1e160, 1e308),
}
_TOLERANCE = {"c64": 1e-6, "c128": 2e-15}
KINDS = tuple(_SIZES)


def _grid(parts: Sequence[float], kind: str = "c64") -> np.ndarray:
    """All pairs of real and imaginary part from a list of numbers."""
    grid = np.empty((len(parts), len(parts)), dtype(kind).numpy)
    column = np.array(parts, dtype(kind).part.numpy)
    grid.real, grid.imag = column[:, None], column
    return grid.ravel()


def _both(op: str, kind: str, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The results of XLA and of the evaluator."""
    graph = Graph()
    tensors = [graph.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    graph.set_outputs(list(as_results(graph.emit(op, tensors, kind=kind))))
    (program,) = compile_graphs([graph])
    assert program.problem is None, program.problem
    return program.run(contiguous(arrays))[0], evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)})[0]


def _agree(got: np.ndarray, expected: np.ndarray) -> None:
    """Check agreement to some ulp of the modulus. For non-finite results, the non-finite part is a matter of convention."""
    with np.errstate(all="ignore"):
        kind = dtype(expected.dtype).complex
        least = 1.2 * float(np.finfo(kind.part.numpy).tiny)
        error = np.abs(got.astype(np.complex128) - expected)
        near = error <= _TOLERANCE[kind.name] * np.abs(expected.astype(np.complex128)) + least
        wrong = ~near & ~(~np.isfinite(got) & ~np.isfinite(expected))
    assert not wrong.any(), f"{np.flatnonzero(wrong)[:5]}: {got[wrong][:5]} instead of {expected[wrong][:5]}"


@pytest.mark.parametrize("kind", ["neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh"])
@pytest.mark.parametrize("of", KINDS)
def test_functions(kind: str, of: str) -> None:
    for z in (_grid(_SPECIAL, of), _grid([s * size for size in _SIZES[of] for s in (1.0, -1.0)], of)):
        _agree(*_both("activation", kind, z))


@drawn("device", ["cpu", "xla"])
def test_special_values_part_by_part(device: str) -> None:
    """NaN and infinities are those of NumPy and C99, annex G. Signs are too, where C99 specifies them."""
    kinds = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", *COMPOSED)
    z = _grid([*_SPECIAL, 30.0, -300.0, 1e-30, 3e38])
    g = Graph()
    x = g.input("x", z.shape, "c64")
    g.set_outputs([g.activation(kind, x) for kind in kinds])
    both = zip(kinds, rlx.Session(device).compile(g).run({"x": z}), evaluate(g, {"x": z}), strict=True)
    for kind, got, expected in both:
        is_open = np.isnan(expected) | (np.isinf(np.real(z)) & np.isinf(np.imag(z)))
        for part in (np.real, np.imag):
            a, b = part(got).astype(np.float64), part(expected).astype(np.float64)
            same = np.isnan(a) == np.isnan(b)
            same &= np.isnan(b) | np.isclose(np.abs(a), np.abs(b), rtol=1e-5, atol=1e-37)
            same &= is_open | (np.signbit(a) == np.signbit(b))
            assert same.all(), f"{kind} of {z[~same][:4]}: {got[~same][:4]} instead of {expected[~same][:4]}"


@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div"])
def test_arithmetic(kind: str) -> None:
    for z in (_grid(_SPECIAL), _grid([*_SIZES["c64"], *(-s for s in _SIZES["c64"])])[::3]):
        left, right = (m.ravel().copy() for m in np.meshgrid(z, z))
        _agree(*_both("binary", kind, left, right))


def test_roots_below_the_branch_cut() -> None:
    z = np.array([complex(-4.0, 0.0), complex(-4.0, -0.0), complex(0.0, -0.0)], np.complex64)
    got, _ = _both("activation", "sqrt", z)
    assert got[:2].tolist() == [2j, -2j]
    assert np.signbit(np.imag(got)).tolist() == [False, True, True]


def test_powers_whose_size_vanishes() -> None:
    a = np.array([3e30 + 1j, 1e-20 - 1e15j, 0.5j], np.complex64)
    b = np.array([-89, 89 - 3e38j, 3e38 + 3e38j], np.complex64)
    got, expected = _both("binary", "pow", a, b)
    assert not got.any() and not expected.any()


def test_functions_of_c128_near_the_ends() -> None:
    """Arithmetic and powers of numbers whose squares overflow, compared part by part, and logarithms near 1."""
    sizes = np.exp(np.random.default_rng(3).uniform(-300, 300, (4, 200)))
    a, b = sizes[0] + 1j * sizes[1], sizes[2] - 1j * sizes[3]
    with np.errstate(all="ignore"):
        for kind in ("mul", "div"):
            _agree(*_both("binary", kind, a, b))
        unit = np.exp(1j * np.linspace(-3.1, 3.1, 200)) * np.linspace(0.4, 2.2, 200)
        _agree(*_both("activation", "log", unit))
        _agree(*_both("binary", "pow", a, unit / 300.0))
