"""Roots of functions (`custom_root`): values and derivatives of roots that are known in closed form."""

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import ShapeError

A = np.array([1.0, 4.0, 9.0], np.float64)


def _square_root(*, symmetric=True, adjoint=None):
    g = rlx.Graph("root")
    a = g.param("a", (3,), "f64")
    halved = lambda x, c: c[0] / (2.0 * x[0])  # noqa: E731
    x, total = g.custom_root(
        lambda x: x * x - a,
        lambda: (g.sqrt(a), g.sum(a)),
        halved,
        adjoint=halved if adjoint else None,
        symmetric=symmetric,
    )
    g.set_outputs({"y": g.sum(x * x * x) + total, "x": x})
    return g


@pytest.mark.parametrize("symmetric", [True, False])
def test_derivatives_of_a_square_root(symmetric):
    g = _square_root(symmetric=symmetric, adjoint=not symmetric)
    values = {"a": A}
    slope, curvature = 1.5 * np.sqrt(A), np.diag(0.75 / np.sqrt(A))
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, ["a"]), values)[0], slope)  # the second result is a constant
    np.testing.assert_allclose(rlx.evaluate(rlx.jacfwd(g, ["a"]), values)[0], slope)
    np.testing.assert_allclose(rlx.evaluate(rlx.hessian(g, ["a"]), values)[0], curvature)
    stacked = {"a": np.stack([A, 4 * A]), "cotangent_y": np.ones(2), "cotangent_x": np.zeros((2, 3))}
    batched = rlx.evaluate(rlx.vjp(rlx.vmap(g, {"a": 0}, size=2), ["a"]), stacked)
    np.testing.assert_allclose(batched[-1], np.stack([slope, 2 * slope]))


def test_the_third_derivative_of_a_scalar():
    g = rlx.Graph("scalar")
    a = g.param("a", (), "f64")
    g.set_outputs(
        [g.custom_root(lambda x: x * x - a, lambda: g.sqrt(a), lambda x, c: c[0] / (2.0 * x[0]), symmetric=True)]
    )
    np.testing.assert_allclose(rlx.evaluate(rlx.nth_order_grad(g, "a", 3), {"a": np.array(4.0)})[-1], 0.375 * 4.0**-2.5)


def test_a_root_without_adjoint_has_forward_mode_only():
    g = _square_root(symmetric=False)
    np.testing.assert_allclose(rlx.evaluate(rlx.jacfwd(g, ["a"]), {"a": A})[0], 1.5 * np.sqrt(A))
    with pytest.raises(rlx.Error, match="adjoint of its derivative has no solver"):
        rlx.grad(g, ["a"])


def test_two_roots_that_depend_on_each_other():
    """`u·v = p` and `u + v = s`: the roots of a quadratic."""
    g = rlx.Graph("pair")
    p, s = g.param("p", (), "f64"), g.param("s", (), "f64")

    def primal():
        half, root = 0.5 * s, g.sqrt(0.25 * s * s - p)
        return half - root, half + root

    def solve(x, c):
        (u, v), (first, second) = x, c
        return (first - u * second) / (v - u), (v * second - first) / (v - u)

    def adjoint(x, c):
        (u, v), (first, second) = x, c
        return (first - second) / (v - u), (v * second - u * first) / (v - u)

    u, v = g.custom_root(lambda u, v: (u * v - p, u + v - s), primal, solve, adjoint)
    g.set_outputs({"y": u * u * v, "u": u, "v": v})
    values = {"p": np.array(6.0), "s": np.array(5.0)}
    plain = rlx.Graph("plain")
    p, s = plain.param("p", (), "f64"), plain.param("s", (), "f64")
    u = 0.5 * s - plain.sqrt(0.25 * s * s - p)
    plain.set_outputs({"y": u * u * (s - u)})
    for transform in (rlx.grad, rlx.jacfwd, rlx.hessian):
        derived, expected = (rlx.evaluate(transform(x, ["p", "s"]), values) for x in (g, plain))
        np.testing.assert_allclose(np.array(derived)[: len(expected)], np.array(expected), atol=1e-12)


def test_regions_that_do_not_fit_are_refused() -> None:
    g: Any = rlx.Graph("wrong")
    x = g.input("x", (3,))
    with pytest.raises(ShapeError, match="function_region must yield"):
        g.custom_root(lambda y: g.sum(y), lambda: x, lambda x, c: c[0])
    with pytest.raises(ShapeError, match="adjoint_region must be empty"):
        g.custom_root(lambda y: y - x, lambda: x, lambda x, c: c[0], lambda x, c: c[0], symmetric=True)
    with pytest.raises(ShapeError, match="primal must be a function"):
        g.custom_root(lambda y: y - x, x, lambda x, c: c[0])
