"""Functions executed in the bytes of their plans: right plans work, and wrong ones are detected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.plan import MemoryPlan, MemoryPlanOptions, plan_memory, plan_of
from rlx.plan.execute import execute
from rlx.plan.memory import complete, prepare, storages_in_arena
from rlx.plan.placing import place
from rlx.plan.sharing import StorageSharing
from tests.conformance.random_graphs import Grower, seeded
from tests.drawing import drawn, graph_seed
from tests.passes.test_random_graphs import inputs, with_regions
from tests.plan.models import BLOCKS, LOWER, model, values_of
from tests.plan.test_memory_plan import check_runs

_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"alignment": 1, "f32_uniform": True},
    {"allocate_inputs": False, "allocate_params": True, "allocate_constants": True},
    {"hoist_weights": True},
)


@drawn("number", range(80), of_each=6)
def test_graphs_of_the_whole_vocabulary(number: int, seed: int) -> None:
    choose = seeded(graph_seed(seed, number))
    made = Grower(choose).grow(5 + choose(30))
    lowered = rlx.passes.run(made.graph, LOWER)
    for graph, options in ((made.graph, _OPTIONS[number % 4]), (lowered, {}), (lowered, _OPTIONS[1 + number % 3])):
        plan = plan_memory(graph, **options)
        check_runs(graph, plan, made.values)
        assert plan.gap <= 0.1 or options.get("alignment") == 1


@drawn("number", range(60), of_each=6)
def test_graphs_with_regions(number: int, seed: int) -> None:
    graph = with_regions(graph_seed(seed, number))
    plan = plan_memory(graph, **_OPTIONS[number % 4])
    check_runs(graph, plan, inputs(graph, number))


@pytest.mark.parametrize("differentiated", [False, True], ids=["forward", "differentiated"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_models(name: str, differentiated: bool) -> None:
    graph = model(name, differentiated=differentiated)
    plan = plan_memory(graph)
    check_runs(graph, plan, values_of(graph))
    assert plan.gap == 0


def test_an_elementwise_region_is_one_step() -> None:
    """Its values are in registers, its result may be written over an operand, and numbers are those of the listing."""
    g: Any = rlx.Graph("region")
    x, scale = g.input("x", (4, 16)), g.input("scale", (16,))
    y = g.elementwise_region(lambda x, s: g.tanh(x * s) + s, g.exp(x), scale)
    g.set_outputs([g.sum(y, 0)])
    plan = plan_memory(g)
    check_runs(g, plan, {"x": X, "scale": X[0]})
    assert plan.steps == ("start", "exp", "elementwise_region", "sum", "return")
    assert plan[y].relation == "in place" and plan.arena_size == 256 + 64
    listed = {op.results[0]: op.label for op in rlx.inspect_graph(g).ops if op.results and not op.depth}
    assert {v.name: v.label for v in plan.values if v.name.startswith("%")} == listed


def test_an_elementwise_region_with_a_sum_is_not_written_over_an_operand() -> None:
    g: Any = rlx.Graph("region")
    x = g.input("x", (4, 16))
    y, total = g.elementwise_region(lambda x: (z := g.tanh(x * x), g.sum(z, -1)), g.exp(x))
    g.set_outputs([g.sum(y, 0), total])
    plan = plan_memory(g)
    check_runs(g, plan, {"x": X})
    assert plan[y].relation == plan[total].relation == "own"


# --- loops, one by one ------------------------------------------------------------------------------


def planned(graph: Any, *values: np.ndarray, **options: Any) -> dict[str, Any]:
    """Run a graph in its plan. Return the entries of the plan by the labels of their ops."""
    plan = plan_memory(graph, **options)
    check_runs(graph, plan, dict(zip((a.name for a in graph.arguments), values, strict=True)))
    return {v.label: v for v in plan.values} | {v.name: v for v in plan.values}


X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)


def test_a_carry_stays_in_its_place() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (4, 16))
    g.set_outputs([g.while_(lambda i, c: i < 3, lambda i, c: (i + 1, g.tanh(c) * 0.5), 0, g.exp(x))[1]])
    entries = planned(g, X)
    loop, tanh, mul = entries["%3"], entries["tanh"], entries["mul"]
    assert (loop.relation, loop.base) == ("in place", "%0")
    assert (tanh.relation, tanh.base) == ("within", "%3") and (mul.relation, mul.base) == ("in place", tanh.name)
    assert loop.offset == tanh.offset == mul.offset


def test_a_carry_that_is_read_late_is_copied() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (4, 16))

    def step(i: Any, c: Any) -> Any:
        return i + 1, g.matmul(g.matmul(c, g.transpose(c)), c)

    g.set_outputs([g.while_(lambda i, c: i < 3, step, 0, x)[1]])
    entries = planned(g, X)
    assert entries["matmul"].relation == "own" and entries["matmul"].offset != entries["%2"].offset


@pytest.mark.parametrize("turn", [1, 2])
def test_carries_that_change_places(turn: int) -> None:
    g = rlx.Graph("main")
    xs = [g.input(f"x{i}", (4, 16)) for i in range(3)]
    body = lambda i, *c: (i + 1, *(c[(k + turn) % 3] for k in range(3)))  # noqa: E731
    g.set_outputs(g.while_(lambda i, *c: i < 4, body, 0, *xs)[1:])
    plan = plan_memory(g)
    assert len(plan.layout.scratch) == 3
    check_runs(g, plan, {f"x{i}": X * (i + 1) for i in range(3)})


def test_the_rows_of_a_scan_are_views() -> None:
    g = rlx.Graph("main")
    x, xs = g.input("x", (16,)), g.input("xs", (4, 16))

    def step(c: Any, row: Any) -> Any:
        inner, _ = g.scan(lambda d, e: (d + e, None), g.sum(row), g.reshape(row, (16,)))
        return c + row, g.reshape(row, (4, 4)) * inner

    for reverse in (False, True):
        carry, rows = g.scan(step, x, g.exp(xs), reverse=reverse)
    g.set_outputs([carry, rows])
    plan = plan_memory(g)
    check_runs(g, plan, {"x": X[0], "xs": X})
    assert {v.relation for v in plan.values if v.name.startswith("%arg")} >= {"view", "row"}


def test_branches_give_their_results_where_they_belong() -> None:
    g = rlx.Graph("main")
    flag, x = g.input("flag", (), "bool"), g.input("x", (4, 16))
    y = g.if_(flag, lambda: g.exp(x), lambda: g.reverse(g.tanh(x), [0]))
    z = g.if_(flag, lambda: x, lambda: y)
    g.set_outputs([y, z])
    for value in (True, False):
        entries = planned(g, np.array(value), X)
    assert entries["exp"].relation == entries["reverse"].relation == "within"
    assert entries["exp"].offset == entries["reverse"].offset


def test_a_carry_that_a_branch_reads_after_the_next_one_is_there() -> None:
    g = rlx.Graph("main")
    flag, x = g.input("flag", (), "bool"), g.input("x", (4, 16))

    def step(i: Any, c: Any, total: Any) -> Any:
        following, added = g.if_(flag, lambda: (g.exp(x), g.sum(c)), lambda: (g.tanh(x), g.sum(x)))
        return i + 1, following, total + added

    g.set_outputs(g.while_(lambda i, c, total: i < 3, step, 0, x * 2.0, 0.0)[1:])
    for value in (True, False):
        planned(g, np.array(value), X)


def test_states_that_lie_in_the_arena_are_updated_there() -> None:
    g = rlx.Graph("main")
    x, cache, moment, late = g.input("x", (1, 16)), *(g.state(n, (4, 16)) for n in ("cache", "moment", "late"))
    g.update(cache, g.scatter_nd(cache, g.constant(np.array([[2]], np.int32)), x))
    g.update(moment, moment * 0.9 + x * 0.1)
    g.update(late, g.exp(late))
    g.set_outputs({"y": g.sum(late * late)})
    plan = plan_memory(g, allocate_params=True)
    check_runs(g, plan, {"x": X[:1], "cache": X, "moment": X, "late": X})
    slots = {v.name: v.slot for v in plan.values} | {v.outputs[0]: v.slot for v in plan.values if v.outputs}
    shares = {name: slots[f"next_{name}"] == slots[name] for name in ("cache", "moment", "late")}
    # "late" is read again after its next value is computed.
    assert shares == {"cache": True, "moment": True, "late": False}
    read = plan_of(rlx.parse(str(rlx.passes.run(g, "builtin.module(rlx-plan-memory{params})"))))
    assert read.arena_size == plan.arena_size and set(read.slots) == set(plan.slots)
    assert all(v.relation != "within" for v in plan_memory(g).values)  # states belong to the caller


def test_a_concatenation_is_computed_in_place() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (4, 16))
    y, z = g.reverse(x, [0]), g.transpose(g.reshape(x, (16, 4)))
    g.set_outputs([g.concat([y, z], 0), g.concat([g.softmax(y), y], 1)])
    entries = planned(g, X)
    concat = next(v for v in entries.values() if v.outputs == ("output0",))
    assert entries["transpose"].relation == "within" and entries["transpose"].base == concat.name
    assert entries["transpose"].offset == concat.offset + 256
    assert entries["reverse"].relation == "own"  # read again later


# --- wrong plans are detected -------------------------------------------------------------------------


def forced(graph: Any, share: Any) -> MemoryPlan:
    """Return a plan with unchecked sharing choices."""
    options = MemoryPlanOptions()
    sharing = prepare(graph, options, {})
    share(sharing)
    storages = storages_in_arena(sharing, {}, options)
    return complete(graph, options, sharing, {}, place(storages, sharing.liveness.last, options.alignment))


@pytest.mark.parametrize("build", ["reverse", "transpose", "cumsum", "matmul"])
def test_an_op_that_must_not_be_written_over_its_operand(build: str) -> None:
    g = rlx.Graph("main")
    y = g.exp(g.input("x", (4, 4)))
    make = {
        "reverse": lambda: g.reverse(y, [0]),
        "transpose": lambda: g.transpose(y),
        "cumsum": lambda: g.cumsum(g.reshape(y, (4, 4)), 0),
        "matmul": lambda: g.matmul(y, y),
    }
    g.set_outputs([make[build]()])

    def share(sharing: StorageSharing) -> None:
        step = sharing.liveness.steps[-2]
        assert step is not None and sharing.may_overwrite(step, 0, 0) == (build == "cumsum")
        sharing.overwrite(step, 0, 0)

    plan = forced(g, share)
    if build == "cumsum":
        execute(plan, {"x": X[:, :4]})
    else:
        with pytest.raises(rlx.Error, match=f"memory plan: '{build}' cannot be written over operand 0"):
            execute(plan, {"x": X[:, :4]})


def test_values_that_overlap() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (4, 16))
    y = g.exp(x)
    g.set_outputs([y @ g.transpose(x)])
    plan = plan_memory(g, in_place=False)
    offsets = dict.fromkeys(plan.layout.offsets, 0)
    wrong = replace(plan, layout=replace(plan.layout, offsets=offsets))
    with pytest.raises(rlx.Error, match="memory plan: 'transpose' reads x, which was overwritten"):
        execute(wrong, {"x": X})
