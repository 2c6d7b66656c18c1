"""Derivatives of elementary c64 functions compared with JAX, and on branch cuts with difference quotients along the cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.graph import Graph
from rlx.ops.elementwise.activation import COMPOSED
from tests.ops.references import ACTIVATIONS_IN_JAX
from tests.transforms.against_jax import check, graph_of

_CLOSE = 3e-6
_IN_NUMPY: dict[str, Callable[..., Any]] = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
_ACROSS, _UP = (2.5 + 0j, complex(2.5, -0.0), -2.5 + 0j, complex(-2.5, -0.0)), (2.5j, complex(-0.0, 2.5))
# Points on cuts, and a direction along the cut.
_CUTS: list[tuple[str, tuple[complex, ...], complex]] = [
    *((kind, _ACROSS, 1.0) for kind in ("asin", "acos", "atanh")),
    ("acosh", (0.25 + 0j, complex(0.25, -0.0), *_ACROSS[2:]), 1.0),
    *((kind, (*_UP, *(z.conjugate() for z in _UP)), 1j) for kind in ("asinh", "atan")),
]


def _numbers(count: int = 40) -> np.ndarray:
    rng = np.random.default_rng(3)
    return (rng.uniform(-3, 3, count) + 1j * rng.uniform(-3, 3, count)).astype(np.complex64)


@pytest.mark.parametrize("kind", COMPOSED)
def test_tangents_and_cotangents_are_those_of_jax(kind: str) -> None:
    z = _numbers()
    if kind == "acosh":  # JAX has the opposite sign left of the imaginary axis
        z = np.abs(np.real(z)).astype(np.float32) + 1j * np.imag(z)
    check(lambda g, v: g.activation(kind, v), ACTIVATIONS_IN_JAX[kind], z, tolerance=_CLOSE)


def test_the_derivative_of_acosh_left_of_the_imaginary_axis() -> None:
    z = _numbers()
    wide, h = z.astype(np.complex128), 1e-6
    wanted = (np.arccosh(wide + h) - np.arccosh(wide - h)) / (2 * h)
    np.testing.assert_allclose(_slope("acosh", z, 1.0), wanted, rtol=1e-6)


def _slope(kind: str, z: np.ndarray, direction: complex) -> np.ndarray:
    """Return the derivative along a direction."""
    tangent = rlx.jvp(graph_of(lambda g, v: g.activation(kind, v), (z,)), "x0")
    given = {"x0": z, "tangent_x0": np.full(z.shape, direction, np.complex64)}
    return rlx.evaluate(tangent, given)[1]


@pytest.mark.parametrize(("kind", "points", "direction"), _CUTS, ids=[cut[0] for cut in _CUTS])
def test_on_a_cut_the_sign_of_a_zero_says_which_side(kind: str, points: Any, direction: complex) -> None:
    z, h = np.array(points, np.complex64), 1e-6
    moved: list[np.ndarray] = []
    for step in (h, -h):
        other = z.astype(np.complex128)
        part = other.real if direction == 1.0 else other.imag  # a sum would lose the sign of the other part
        part += step
        moved.append(_IN_NUMPY[kind](other))
    np.testing.assert_allclose(_slope(kind, z, direction), (moved[0] - moved[1]) / (2 * h), rtol=1e-5, atol=1e-6)


def test_the_derivative_of_a_tangent_keeps_its_digits_far_from_the_axis() -> None:
    z = np.array([1 + 9j, -0.5 - 30j, 2 + 200j, 3 - 3e38j], np.complex64)
    wanted = 1 / np.cos(z[:2].astype(np.complex128)) ** 2
    found = _slope("tan", z, 1.0)
    np.testing.assert_allclose(found[:2], wanted, rtol=1e-5)
    assert not found[2:].any()


def test_signs_have_no_derivative() -> None:
    """JAX does the same."""
    z = _numbers(5)
    given = {"x0": z, "tangent_x0": z}
    tangent = rlx.evaluate(rlx.jvp(graph_of(lambda g, v: g.sign(v), (z,)), "x0"), given)[1]
    assert not tangent.any()


def test_batches() -> None:
    z = _numbers(12).reshape(3, 4)
    g: Any = Graph()
    x = g.input("x", (4,), "c64")
    g.set_outputs([g.asin(x), g.sign(x)])
    batched = rlx.evaluate(rlx.vmap(g, ["x"], 3), {"x": z})
    for row in range(3):
        for found, wanted in zip(batched, rlx.evaluate(g, {"x": z[row]}), strict=True):
            assert np.array_equal(found[row], wanted)
