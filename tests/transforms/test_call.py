"""`rlx.call`: a graph called from another, compared with its evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
W = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)


def layer(**values: Any) -> rlx.Graph:
    """Return `tanh(x @ w)` and its sum along each row, for any number of rows."""
    g = rlx.Graph("layer")
    y = g.tanh(g.input("x", ("rows", 4)) @ g.param("w", (4, 2), **values))
    g.set_outputs({"y": y, "sums": g.sum(y, axis=1)})
    return g


def test_symbols_take_the_sizes_that_come() -> None:
    for size in (3, "n", "2*n"):
        g = rlx.Graph("outer")
        x = g.input("x", (size, 4))
        y, sums = rlx.call(layer(), x * 2.0)
        again, _ = rlx.call(layer(), x)  # the parameter is shared
        g.set_outputs([y, sums, again])
        g.verify()
        assert y.shape == (size, 2) and [a.name for a in g.params] == ["w"]
        values = {"x": X if size != "2*n" else np.concatenate([X, X])[:4], "w": W}
        expected = np.tanh(values["x"] * 2 @ W)
        got = rlx.evaluate(g, values)
        np.testing.assert_allclose(got[0], expected, rtol=1e-6)
        np.testing.assert_allclose(got[1], expected.sum(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[2], np.tanh(values["x"] @ W), rtol=1e-6)


def test_parameters_are_given_or_carried() -> None:
    g = rlx.Graph("outer")
    x = g.input("x", (3, 4))
    g.set_outputs([rlx.call(layer(), x, w=W)[0], rlx.call(layer(value=W), x=x)[0]])
    first, second = rlx.evaluate(g, {"x": X})
    np.testing.assert_array_equal(first, second)


def test_regions_blocks_and_gradients() -> None:
    inner = rlx.Graph.define(
        "ffn", lambda h: h.swiglu_ffn(h.input("x", (1, "s", 4)), *(h.param(n, (4, 4)) for n in "abc"))
    )
    loop = rlx.Graph("loop")
    x, w = loop.input("x", ("s", 4)), loop.input("w", (4, 4))
    loop.set_outputs(loop.scan(lambda c, row: (loop.tanh(c + row @ w), c), x[0], x)[0])
    g = rlx.Graph("outer")
    x, w = g.input("x", (3, 4)), g.param("a", (4, 4))
    hidden = g.if_(g.sum(x) > 0.0, lambda: rlx.call(loop, x, w), lambda: x[0])
    block = rlx.call(inner, g.reshape(x, (1, 3, 4)))
    g.set_outputs(g.sum(hidden) + g.sum(block))
    g.verify()
    values = {"x": X, **{n: np.eye(4, dtype=np.float32) for n in "abc"}}
    state = X[0]
    for row in X:
        state = np.tanh(state + row)
    expected = state.sum() + (X * X / (1 + np.exp(-X))).sum()
    np.testing.assert_allclose(rlx.evaluate(g, values)[0], expected, rtol=1e-5)
    assert np.isfinite(rlx.evaluate(rlx.grad(g, ["a"]), values)[0]).all()


def test_states_become_those_of_the_caller() -> None:
    counter = rlx.Graph("counter")
    total = counter.state("total", (2,), init=3)
    step = counter.input("step", (2,))
    counter.update(total, total + step)
    counter.set_outputs({"before": total})
    g = rlx.Graph("outer")
    g.set_outputs([rlx.call(counter, g.input("x", (2,)))])
    assert [(a.name, a.init) for a in g.states] == [("total", 3.0)]
    assert [o.updates for o in g.results] == [None, "total"]


MISTAKES: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda g, x: rlx.call(layer()), "none of the arguments is a tensor"),
    (lambda g, x: rlx.call(layer(), x, x), r"2 tensors for 1 inputs \(x\)"),
    (lambda g, x: rlx.call(layer(), w=x), r"input 'x' \(f32\[rows, 4\]\) is missing"),
    (lambda g, x: rlx.call(layer(), x, x=x), "input 'x' is given twice"),
    (lambda g, x: rlx.call(layer(), x, W=x), "no argument 'W'"),
    (lambda g, x: rlx.call(layer(), x[0]), r"input 'x' must be f32\[rows, 4\], got f32\[4\]"),
    (lambda g, x: rlx.call(layer(), x, w=g.input("w", (4, 3))), r"param 'w' must be f32\[4, 2\], got f32\[4, 3\]"),
    (lambda g, x: rlx.call(layer(), g.input("w", (3, 4))), "the graph has an argument 'w' already"),
    (lambda g, x: rlx.call(3, x), "expected a Graph or a GraphModule, got int"),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_mistakes_name_the_place(wrong: Callable[[Any, Any], Any], message: str) -> None:
    g = rlx.Graph("outer")
    with pytest.raises(rlx.Error, match=message) as caught:
        wrong(g, g.input("x", (3, 4)))
    assert "test_call.py:" in str(caught.value) or "expected a Graph" in message
