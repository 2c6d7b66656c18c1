"""Loops that the kernels of loops take, and those that they leave to the lowering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op import opview
from rlx.passes import run
from rlx.passes.rewrite import collect


def _many_carries(g: Any) -> list[Any]:
    starts = tuple(g.input(f"c{i}", (2,)) for i in range(40))
    return list(
        g.scan(
            lambda c, _: (tuple(x * 0.5 + y for x, y in zip(c, (*c[1:], c[0]), strict=True)), None), starts, length=3
        )[0]
    )


def _passed_on(dtype: str) -> Callable[[Any], list[Any]]:
    """A carry of another dtype that no op of the step reads."""

    def build(g: Any) -> list[Any]:
        x, other = g.input("x", (3,)), g.input("other", (3,), dtype)
        return list(g.scan(lambda c, _: ((c[0] * 0.5, c[1]), None), (x, other), length=3)[0])

    return build


def _empty(g: Any) -> list[Any]:
    return [g.scan(lambda c, x: (c + g.sum(x), c), g.input("x", (3,)), g.input("xs", (4, 0)))[0]]


def _other_op(g: Any) -> list[Any]:
    return [g.scan(lambda c, _: (g.cbrt(c), None), g.input("x", (3,)), length=3)[0]]


def _nested(g: Any) -> list[Any]:
    inner = lambda c: g.scan(lambda d, _: (d * 0.5 + c, None), c, length=2)[0]  # noqa: E731
    return [g.scan(lambda c, _: (inner(c), None), g.input("x", (3,)), length=3)[0]]


LOWERED: dict[str, Callable[[Any], list[Any]]] = {
    "more tensors than an executable takes": _many_carries,
    "f16": _passed_on("f16"),
    "c64": _passed_on("c64"),
    "a size of 0": _empty,
    "an op without code": _other_op,
}


def _graph(build: Callable[[Any], list[Any]]) -> rlx.Graph:
    g: Any = rlx.Graph("loop")
    g.set_outputs(build(g))
    return g


def _check(g: rlx.Graph) -> None:
    random = np.random.default_rng(0)
    values = {a.name: random.standard_normal(a.shape.static).astype(a.shape.dtype.numpy) for a in g.inputs}
    results = rlx.Session("cpu", threads=1).compile(g, kernels="all").run(values)
    for got, expected in zip(results, rlx.evaluate(g, values), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def _loops_with_kernel(g: rlx.Graph) -> int:
    marked = run(g, "rlx-iree-kernels{cpu=x86-64-v3 choice=all}")
    return sum(opview.kernel_of(op) is not None for op in collect(marked.module, {"scan", "while"}))


@pytest.mark.parametrize("name", LOWERED)
def test_other_loops_are_lowered(name: str) -> None:
    g = _graph(LOWERED[name])
    assert _loops_with_kernel(g) == 0
    _check(g)


def test_an_inner_loop_is_a_kernel_in_a_loop_that_is_lowered() -> None:
    g = _graph(_nested)
    assert _loops_with_kernel(g) == 1
    _check(g)


def test_a_step_of_many_ops() -> None:
    """The code of an element is emitted recursively, which Python limits."""

    def build(g: Any) -> list[Any]:
        def step(c: Any, _: object) -> object:
            for number in range(150):
                c = c * 0.5 + g.tanh(c) if number % 3 == 0 else g.maximum(c, -c * 0.25)
            return c, None

        return [g.scan(step, g.input("x", (2, 9)), length=2)[0]]

    g = _graph(build)
    assert _loops_with_kernel(g) == 1
    _check(g)


def test_equal_loops_share_one_kernel() -> None:
    g: Any = rlx.Graph("twice")
    w = g.param("w", (4, 4))
    step = lambda h, x: (g.tanh(h @ w + x), None)  # noqa: E731
    h = g.scan(step, g.input("h", (2, 4)), g.input("xs", (3, 2, 4)))[0]
    g.set_outputs([g.scan(step, h, g.input("ys", (3, 2, 4)))[0]])
    text = str(run(g, "rlx-iree-kernels{cpu=x86-64-v3},rlx-to-linalg"))
    assert text.count("call @kernel_scan_0") == 2 and "@kernel_scan_1" not in text


def test_a_loop_in_a_loop_of_states_and_weights() -> None:
    """A recurrent layer with its state kept between runs."""
    g: Any = rlx.Graph("stream")
    w, state = g.param("w", (8, 8)), g.state("h", (1, 8))
    last, rows = g.scan(lambda h, x: (g.tanh(h @ w + x), h), state, g.input("xs", (5, 1, 8)))
    g.set_outputs([rows])
    g.update(state, last)
    random = np.random.default_rng(1)
    weights = (random.standard_normal((8, 8)) * 0.3).astype(np.float32)
    program = rlx.Session("cpu", threads=1).compile(g, params={"w": weights}, kernels="all")
    h = np.zeros((1, 8), np.float32)
    for _ in range(3):
        xs = random.standard_normal((5, 1, 8)).astype(np.float32)
        (got,) = program.run({"xs": xs})
        for x, row in zip(xs, got, strict=True):
            np.testing.assert_allclose(row, h, rtol=1e-4, atol=1e-5)
            h = np.tanh(h @ weights + x)
        np.testing.assert_allclose(program.state("h"), h, rtol=1e-4, atol=1e-5)
