"""Checkpoints: the gradients are the same, and less is live at once."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from tests.transforms.checks import check_second


def _deep(checkpointed: bool, layers: int = 6) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    g = rlx.Graph("deep")
    h = g.input("x", (16, 8), "f64")
    for i in range(layers):
        w = g.param(f"w{i}", (8, 8), "f64")
        if not checkpointed:
            h = g.tanh(h @ w)
            continue
        with g.checkpoint():
            h = g.tanh(h @ w)
    g.set_outputs([g.mean(h * h)])
    rng = np.random.default_rng(1)
    return g, {a.name: rng.standard_normal(a.shape.static) for a in g.arguments}


def test_checkpoints_change_no_gradient() -> None:
    plain, values = _deep(False)
    expected = rlx.evaluate(rlx.grad(plain), values)
    for graph in (_deep(True)[0], rlx.checkpoint(plain), rlx.checkpoint(plain, memory_limit=8000)):
        made = rlx.grad(graph)
        for got, wanted in zip(rlx.evaluate(made, values), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        check_second(graph, values)


def _broken_checkpoint() -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    g = rlx.Graph()
    x = g.input("x", (3,), "f64")
    y = g.sin(x)
    with pytest.raises(ZeroDivisionError), g.checkpoint():
        g.scan(lambda c, _: (c * y, None), g.cos(y), None, length=2)
        raise ZeroDivisionError
    g.set_outputs([g.sum(y)])
    return g, {"x": np.random.default_rng(0).standard_normal(3)}


def test_an_error_inside_of_a_checkpoint_leaves_the_graph_as_it_was() -> None:
    for _ in range(20):
        g, values = _broken_checkpoint()
        np.testing.assert_allclose(
            rlx.evaluate(rlx.grad(g, "x"), values)[0], np.cos(values["x"]), rtol=1e-10, atol=1e-10, strict=True
        )


def test_checkpoints_need_less_memory_at_once() -> None:
    peak = {}
    for name, graph in (("plain", _deep(False, 12)[0]), ("checkpoints", _deep(True, 12)[0])):
        report = rlx.Pipeline(target="cpu").compile(rlx.grad(graph)).memory
        peak[name] = report.arena_size
    assert peak["checkpoints"] < 0.75 * peak["plain"]


def test_a_memory_limit_that_cannot_be_kept_to() -> None:
    with pytest.raises(rlx.Error, match=r"needs \d+ bytes at least"):
        rlx.checkpoint(_deep(False)[0], memory_limit=100)
