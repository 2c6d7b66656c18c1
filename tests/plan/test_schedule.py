"""The order of ops: scheduling keeps results and never needs more memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.plan import plan_memory
from rlx.plan.execute import execute
from tests.drawing import drawn, graph_seed
from tests.passes.test_random_graphs import inputs, with_regions
from tests.plan.models import model, values_of

SCHEDULE, RECOMPUTE = "builtin.module(rlx-schedule-memory)", "builtin.module(rlx-schedule-memory{recompute})"


def check(graph: Any, pipeline: str, values: dict[str, np.ndarray]) -> float:
    """Return the arena size relative to the original order."""
    scheduled = rlx.passes.run(graph, pipeline)
    before, after = plan_memory(graph), plan_memory(scheduled)
    assert after.arena_size <= before.arena_size
    for got, wanted in zip(execute(after, values), rlx.evaluate(graph, values), strict=True):
        assert got.tobytes() == wanted.tobytes()
    if after.arena_size == before.arena_size and pipeline == SCHEDULE:
        assert str(scheduled) == str(graph)
    assert str(rlx.passes.run(graph, pipeline)) == str(scheduled)
    return after.arena_size / max(before.arena_size, 1)


@drawn("number", range(60), of_each=10)
def test_random_graphs(number: int, seed: int) -> None:
    graph = with_regions(graph_seed(seed, number))
    for pipeline in (SCHEDULE, RECOMPUTE):
        check(graph, pipeline, inputs(graph, number))


@pytest.mark.parametrize(
    ("name", "pipeline", "most"), [("unet", SCHEDULE, 0.95), ("cnn", SCHEDULE, 0.7), ("mamba", RECOMPUTE, 0.97)]
)
def test_differentiated_models(name: str, pipeline: str, most: float) -> None:
    graph = model(name, differentiated=True)
    assert check(graph, pipeline, values_of(graph)) <= most


def wide(count: int) -> Any:
    """Build a graph of all products first and then all their sums."""
    g = rlx.Graph("main")
    x = g.input("x", (8, 32))
    products = [g.matmul(x, g.param(f"w{i}", (32, 256))) for i in range(count)]
    total = g.sum(products[0])
    for product in products[1:]:
        total = total + g.sum(product)
    g.set_outputs([total])
    return g


def test_each_product_is_summed_at_once() -> None:
    graph = wide(6)
    scheduled = rlx.passes.run(graph, SCHEDULE)
    before, after = plan_memory(graph), plan_memory(scheduled)
    assert before.peak_live_bytes > 6 * 8192 and after.peak_live_bytes < 2 * 8192 + 1024
    labels = [label for label in after.steps if label in ("matmul", "sum")]
    assert labels == ["matmul", "sum"] * 6


def test_a_cheap_value_is_computed_again() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (64, 64))
    wide = g.expand(g.relu(g.narrow(x, 0, 0, 1)), (64, 64)) + 1.0
    y = x
    for _ in range(3):
        y = g.tanh(y @ x)
    g.set_outputs([g.matmul(y, x), wide * x])
    again = rlx.passes.run(g, RECOMPUTE)
    assert plan_memory(again).peak_live_bytes <= plan_memory(g).peak_live_bytes
    values = {"x": np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)}
    for got, wanted in zip(rlx.evaluate(again, values), rlx.evaluate(g, values), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_symbols_have_a_size_of_their_own_or_a_typical_one() -> None:
    g = rlx.Graph("main")
    x = g.input("x", ("n", 32))
    products = [g.matmul(x, g.param(f"w{i}", (32, 256))) for i in range(4)]
    g.set_outputs([sum((g.sum(p) for p in products[1:]), g.sum(products[0]))])
    for options in ("", "{n=8}", "{symbol=8}"):
        scheduled = rlx.passes.run(g, f"builtin.module(rlx-schedule-memory{options})")
        assert plan_memory(scheduled, sizes={"n": 8}).arena_size < plan_memory(g, sizes={"n": 8}).arena_size


def test_what_regions_read_is_computed_before_them() -> None:
    """Products that only the branches of conditions read, all of them before the first condition."""
    g = rlx.Graph("main")
    x, flag = g.input("x", (8, 32)), g.input("flag", (), "bool")
    products = [g.matmul(x, g.param(f"w{i}", (32, 256))) for i in range(4)]
    total = g.sum(x)
    for product in products:
        total = total + g.if_(flag, lambda p=product: g.sum(p), lambda p=product: g.max(p))
    g.set_outputs([total])
    rng = np.random.default_rng(0)
    values = {
        a.name: rng.standard_normal(a.shape.static).astype(np.float32)
        for a in (*g.inputs, *g.params)
        if a.name != "flag"
    }
    assert check(g, SCHEDULE, values | {"flag": np.array(True)}) < 0.6
