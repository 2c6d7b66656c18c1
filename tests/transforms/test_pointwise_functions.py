"""Derivatives of elementwise functions without rules: those of the chosen branch, in both modes and to any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.graph import Graph

X = np.array([-2.0, -1.0, 0.0, 1e-30, 0.25, 1.0, 9.0])


def _graph(function: Callable[..., Any], count: int) -> Graph:
    g = rlx.Graph("function")
    inputs = [g.input(f"x{i}", X.shape, "f64") for i in range(count)]
    g.set_outputs({"y": g.custom_fn(lambda *xs: function(g, *xs), *inputs)})
    return g


def _root(g: Any, x: Any) -> Any:
    return g.where(x > 0.0, g.sqrt(x), 0.0)


def _nested(g: Any, x: Any) -> Any:
    inner = g.custom_fn(lambda x: g.where(x > 0.0, g.log(x), x), x)
    return g.where(x > 0.0, inner * x, 3.0 * x)


def _with_a_rule(g: Any, x: Any) -> Any:
    inner = g.custom_fn(lambda x: 1.0 / x, x, jvp=lambda args, tangents: -tangents[0] / (args[0] * args[0]))
    return g.where(x > 0.0, inner, x)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "root": (_root, lambda x: np.where(x > 0, 0.5 * x**-0.5, 0), lambda x: np.where(x > 0, -0.25 * x**-1.5, 0)),
    "nested": (_nested, lambda x: np.where(x > 0, np.log(x) + 1, 3), lambda x: np.where(x > 0, 1 / x, 0)),
    "with a rule": (_with_a_rule, lambda x: np.where(x > 0, -(x**-2), 1), lambda x: np.where(x > 0, 2 * x**-3, 0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_branch_that_is_not_chosen_does_not_count(name: str) -> None:
    function, first, second = FUNCTIONS[name]
    g, ones = _graph(function, 1), np.ones_like(X)
    with np.errstate(all="ignore"):
        slopes, bends = first(X), second(X)
        reverse = rlx.vjp(g, "x0")
        values = {"x0": X, "cotangent_y": ones, "tangent_x0": ones}
        np.testing.assert_allclose(rlx.evaluate(reverse, {"x0": X, "cotangent_y": ones})[1], slopes)
        forward = rlx.jvp(g, "x0")
        np.testing.assert_allclose(rlx.evaluate(forward, {"x0": X, "tangent_x0": ones})[1], slopes)
        np.testing.assert_allclose(rlx.evaluate(rlx.jvp(reverse, "x0"), values)[-1], bends)
        loss = _graph(function, 1)
        loss.set_outputs({"y": loss.sum(loss.output_tensors[0])})
        again = rlx.grad(loss, "x0")
        again.set_outputs({"y": again.sum(again.output_tensors[0])})
        np.testing.assert_allclose(rlx.evaluate(rlx.grad(again, "x0"), {"x0": X})[0], bends)
        batched = rlx.vmap(reverse, {"x0": 0, "cotangent_y": 0}, 2)
        many = {"x0": np.stack([X, X]), "cotangent_y": np.stack([ones, 2 * ones])}
        np.testing.assert_allclose(rlx.evaluate(batched, many)[1], np.stack([slopes, 2 * slopes]))


def test_by_two_arguments() -> None:
    g = _graph(lambda g, x, y: g.where(x > 0.0, g.log(x) * y, y), 2)
    reverse = rlx.vjp(g, ["x0", "x1"])
    with np.errstate(all="ignore"):
        results = rlx.evaluate(reverse, {"x0": X, "x1": X + 5, "cotangent_y": np.full_like(X, 2)})
        np.testing.assert_allclose(results[1], np.where(X > 0, 2 * (X + 5) / X, 0))
        np.testing.assert_allclose(results[2], np.where(X > 0, 2 * np.log(X), 2))


def test_results_that_are_not_used_have_no_cotangent() -> None:
    """Unused results have no cotangent; a zero one would be multiplied by an infinite derivative."""
    g = rlx.Graph("two")
    x = g.input("x", X.shape, "f64")
    slope: Any = lambda args, tangents: (tangents[0] * 2.0, tangents[0] / args[0])  # noqa: E731
    first, _ = g.custom_fn(lambda x: (x * 2.0, g.log(x)), x, jvp=slope)
    g.set_outputs({"y": first})
    with np.errstate(all="ignore"):
        results = rlx.evaluate(rlx.vjp(g, "x"), {"x": X, "cotangent_y": np.ones_like(X)})
    np.testing.assert_array_equal(results[1], np.full_like(X, 2))


def test_compiled() -> None:
    g = _graph(_root, 1)
    reverse, values = rlx.vjp(g, "x0"), {"x0": X, "cotangent_y": np.ones_like(X)}
    compiled = rlx.Session().compile(reverse).run_named(values)
    with np.errstate(all="ignore"):
        for found, expected in zip(compiled.values(), rlx.evaluate(reverse, values), strict=True):
            np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("taken", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("given", ["f16", "bf16", "f32", "f64"])
def test_results_may_have_another_dtype_than_arguments(taken: str, given: str) -> None:
    g = rlx.Graph("function")
    x, w = g.input("x", (2,), taken), g.input("w", (2,), "f32")
    g.set_outputs({"y": g.custom_fn(lambda x, w: g.where(x > 0.0, g.exp(g.cast(x, given)), g.cast(w, given)), x, w)})
    both = rlx.jvp(rlx.vjp(g, ["x", "w"]), ["x", "w"])
    dtypes = {"x": taken, "w": "f32", "cotangent_y": given, "tangent_x": taken, "tangent_w": "f32"}
    values = {n: np.ones(2, dtype(d).numpy) for n, d in dtypes.items()}
    y, dx, dw, ty, tx, tw = rlx.evaluate(both, values)
    assert [a.dtype for a in (ty, tx, tw)] == [a.dtype for a in (y, dx, dw)]
    assert [str(dx.dtype), str(dw.dtype)] == [str(values["x"].dtype), "float32"]
    for a in (y, dx, ty, tx):
        np.testing.assert_allclose(a.astype(np.float64), np.full(2, np.e), rtol=1e-2)
    np.testing.assert_array_equal(dw, np.zeros(2))
