"""Derivatives of pooling compared with JAX's `reduce_window`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from tests.ops.references import random, run
from tests.transforms.against_jax import check, check_second, graph_of

# x, kernel, stride, padding
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 6, 5), (2, 3), (2, 1), (1, 0, 1, 2)),
    ((2, 3, 9), (3,), (2,), (0, 0)),
    ((2, 3, 9), (2,), (3,), (1, 1)),
    ((1, 2, 4, 5, 3), (2, 3, 1), (2, 1, 2), (1, 1, 0, 2, 0, 0)),
    ((2, 3, 4, 6), (2, 3), (2, 3), (0, 0, 0, 0)),  # every element in one window
    ((2, 3, 5, 7), (2, 3), (2, 3), (0, 0, 0, 0)),
    ((2, 1, 7, 6), (7, 6), (1, 1), (0, 0, 0, 0)),
    ((1, 2, 1), (2,), (1,), (0, 0)),
    ((0, 2, 4), (2,), (2,), (0, 0)),
]


def _window(case: Any) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "padding"), case[1:], strict=True))


def _reduced(x: Any, start: float, join: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    pads = [(0, 0), (0, 0), *zip(padding[::2], padding[1::2], strict=True)]
    return jax.lax.reduce_window(x, np.asarray(start, x.dtype), join, (1, 1, *kernel), (1, 1, *stride), pads)


def _pool(kind: str, case: Any, *, include: bool = True) -> tuple[Any, Any]:
    """Return the function in a graph and in JAX."""
    window = _window(case)

    def build(g: rlx.Graph, x: Any) -> Any:
        return g.emit("pool", (x,), kind=kind, count_include_pad=include, **window)

    def formula(x: Any) -> Any:
        if kind == "max":
            return _reduced(x, -np.inf, jax.lax.max, **window)
        if kind == "sum":
            return _reduced(x, 0, jax.lax.add, **window)
        ones = np.ones(case[0], x.dtype)
        counts = _reduced(ones, 0, jax.lax.add, **window) if not include else np.prod(case[1])
        return _reduced(x, 0, jax.lax.add, **window) / counts

    return build, formula


@pytest.mark.parametrize("case", _CASES, ids=str)
@pytest.mark.parametrize(("kind", "include"), [("max", True), ("mean", True), ("mean", False), ("sum", True)])
def test_pool(kind: str, include: bool, case: Any) -> None:
    check(*_pool(kind, case, include=include), random("f64", case[0]))


@pytest.mark.parametrize("case", [_CASES[0], _CASES[3]], ids=str)
@pytest.mark.parametrize("kind", ["max", "mean", "sum"])
def test_gradients_of_gradients(kind: str, case: Any) -> None:
    build, formula = _pool(kind, case)
    check_second(lambda g, x: g.sin(build(g, x)), lambda x: jax.numpy.sin(formula(x)), random("f64", case[0]))


@pytest.mark.parametrize("case", _CASES[:4], ids=str)
def test_the_first_of_equal_maxima_has_the_gradient(case: Any) -> None:
    x = np.random.default_rng(3).integers(0, 2, case[0]).astype(np.float64)
    build, formula = _pool("max", case)
    check(build, formula, x)
    check(build, formula, np.zeros(case[0]))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_narrow_floats(kind: str, name: str) -> None:
    check(
        *_pool(kind, _CASES[0], include=False), random(name, _CASES[0][0]), tolerance={"f16": 2e-3, "bf16": 2e-2}[name]
    )


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_windows_of_padding_alone_have_no_gradient(kind: str) -> None:
    window: Any = {"kernel": (2,), "stride": (2,), "padding": (0, 3), "count_include_pad": False}
    x = random("f64", (1, 1, 3))
    graph = graph_of(lambda g, v: g.emit("pool", (v,), kind=kind, **window), (x,))
    pulled = rlx.vjp(graph, ["x0"])
    got = rlx.evaluate(pulled, {"x0": x, pulled.arguments[-1].name: np.array([[[3.0, 5.0, 7.0]]])})[1]
    first = float(x[0, 0, 0] >= x[0, 0, 1]) if kind == "max" else 0.5
    np.testing.assert_array_equal(got[0, 0], [3 * first, 3 * (1 - first), 5])


@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("include", [True, False])
def test_sizes_may_be_symbols(kind: str, include: bool) -> None:
    window: Any = {"kernel": (3, 2), "stride": (2, 3), "padding": (1, 0, 0, 1), "count_include_pad": include}
    graph = rlx.Graph()
    graph.set_outputs([graph.emit("pool", (graph.input("x0", ("n", 2, "h", 5), "f64"),), kind=kind, **window)])
    pulled = rlx.vjp(graph, ["x0"])
    for n, h in ((1, 2), (2, 5), (1, 8)):
        x = random("f64", (n, 2, h, 5))
        dy = random("f64", run("pool", x, kind=kind, **window).shape, seed=1)
        values = {"x0": x, pulled.arguments[-1].name: dy}
        static = graph_of(lambda g, v: g.emit("pool", (v,), kind=kind, **window), (x,))
        got, expected = (rlx.evaluate(g, values)[1] for g in (pulled, rlx.vjp(static, ["x0"])))
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
