"""Refusals of the transforms and their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx


def _line() -> int:
    import sys

    return sys._getframe(1).f_lineno


def test_a_loss_that_is_no_scalar() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    y, line = x * 2.0, _line()
    g.set_outputs([y])
    with pytest.raises(rlx.Error, match=rf"test_refused.py:{line}: .*must be a scalar of floats, got f32\[3\]"):
        rlx.grad(g, "x")


def test_a_loop_without_a_bound() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    y, line = g.while_(lambda x: g.sum(x) < 9.0, lambda x: x * 2.0, x), _line()
    g.set_outputs([g.sum(y)])
    with pytest.raises(rlx.Error, match=rf"test_refused.py:{line}: .*rlx.while.*without max_iterations"):
        rlx.grad(g, "x")
    assert len(rlx.jvp(g, "x").outputs) == 2


class Opaque(rlx.CustomOp, name="tests.opaque"):
    """An op without derivatives."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.sinc(x)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda g: rlx.grad(g, "x"), "vjp"),
        (lambda g: rlx.jvp(g, "x"), "jvp"),
        (lambda g: rlx.vmap(g, {"x": 0}, 2), "vmap"),
    ],
)
def test_an_op_without_a_rule(call: Any, rule: str) -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    y, line = g.custom(Opaque, x), _line()
    g.set_outputs([g.sum(y)])
    with pytest.raises(rlx.Error, match=rf"test_refused.py:{line}: rlx.tests.opaque has no {rule} rule"):
        call(g)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: rlx.grad(g, ["v"]), "no argument 'v'"),
        (lambda g: rlx.grad(g, ["w", "w"]), "'w' is named twice"),
        (lambda g: rlx.grad(g, 3), "must be a list of names"),
        (lambda g: rlx.grad(g, ["n"]), "only floats and complex numbers have derivatives"),
        (lambda g: rlx.grad(g, ["w"], loss="los"), "did you mean 'loss'"),
        (lambda g: rlx.grad(g, ["w"], unused="maybe"), "unused must be one of zero, error"),
        (lambda g: rlx.vmap(g, {"z": 0}, 3), "no argument 'z'"),
        (lambda g: rlx.vmap(g, {"w": 5}, 3), "batch axis 5 is out of range"),
        (lambda g: rlx.vmap(g, {}, 3), "no argument is batched"),
        (lambda g: rlx.vmap(g, {"w": 0}, 2.5), "size must be an integer"),
        (lambda g: rlx.vmap(g, {"w": 0}, 3, {"y": 0}), "no output 'y'"),
        (lambda g: rlx.nth_order_grad(g, "w", 2), "must be a scalar"),
        (lambda g: rlx.nth_order_grad(g, "w", -1), "order must be a whole number"),
        (lambda g: rlx.grad(rlx.Graph("empty")), "has no outputs"),
        (lambda g: rlx.grad(str(g)), "expected a Graph"),
    ],
)
def test_wrong_calls(call: Any, message: str) -> None:
    g = rlx.Graph("wrong")
    n, w = g.input("n", (2,), rlx.i32), g.param("w", (2,))
    g.set_outputs({"loss": g.sum(w * g.cast(n, "f32"))})
    with pytest.raises(rlx.Error, match=message):
        call(g)
