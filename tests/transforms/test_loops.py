"""Loops in reverse mode: what is the same in every step is differentiated once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.listing import inspect_graph

STEPS, SIZE = 8, 16


def _recurrent(inside: bool, loop: str) -> rlx.Graph:
    """A loss of a recurrence whose weight is normalised: in each step, or before the loop."""
    g: Any = rlx.Graph("recurrent")
    x, w = g.input("x", (STEPS, SIZE), "f64"), g.param("w", (SIZE, SIZE), "f64")

    def normalised() -> Any:
        return w * g.rsqrt(g.sum(w * w, axes=0, keep_dims=True) + 1.0)

    before = None if inside else normalised()

    def step(h: Any, row: Any) -> Any:
        return g.tanh(h @ (before if before is not None else normalised()) + row), None

    start = g.constant(np.zeros(SIZE))
    if loop == "scan":
        last, _ = g.scan(step, start, x)
    else:
        last = g.while_(lambda h: g.sum(h) < 1e9, lambda h: step(h, x[0])[0], start, max_iterations=STEPS)
    g.set_outputs({"loss": g.sum(last * last)})
    return g


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_what_is_the_same_in_every_step_is_differentiated_once(loop: str) -> None:
    random = np.random.default_rng(0)
    values = {"x": random.standard_normal((STEPS, SIZE)), "w": random.standard_normal((SIZE, SIZE))}
    for transform in (rlx.grad, rlx.vjp, lambda g: rlx.grad_with_loss(g, loss="loss")):
        inside, before = transform(_recurrent(True, loop)), transform(_recurrent(False, loop))
        assert inspect_graph(inside).cost.flops == inspect_graph(before).cost.flops
        given = values | {"cotangent_loss": np.array(1.0)}
        arguments = {a.name: given[a.name] for a in inside.arguments}
        for a, b in zip(rlx.evaluate(inside, arguments), rlx.evaluate(before, arguments), strict=True):
            np.testing.assert_array_equal(a, b)
    graph = _recurrent(True, loop)
    text = str(graph)
    rlx.grad(graph)
    assert str(graph) == text  # which is not changed
