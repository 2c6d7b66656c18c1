"""The memory plan: it overwrites no live values, and shares memory where possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rlx
from rlx.plan import MemoryPlan, PlannedValue, align_up, plan_memory
from rlx.plan.execute import execute
from tests.passes.random_graphs import graphs, inputs


def check_plan(plan: MemoryPlan) -> None:
    """Check that slots in use together do not overlap, and that values fit in their slots."""
    assert plan.arena_size >= plan.peak_live_bytes == max(plan.live_bytes())
    slots = [s for s in plan.slots if s.size]
    for slot in slots:
        assert slot.offset >= 0 and slot.offset + slot.size <= plan.arena_size
        assert slot.offset % plan.options.alignment == 0 and 0 <= slot.start <= slot.end < len(plan.steps)
    for i, a in enumerate(slots):
        for b in slots[i + 1 :]:
            together = a.start <= b.end and b.start <= a.end
            assert not together or a.offset + a.size <= b.offset or b.offset + b.size <= a.offset, (a, b)
    for v in plan.values:
        assert (v.slot is None) == (v.offset is None)
        if v.slot is not None and v.offset is not None:
            slot = plan.slots[v.slot]
            if v.relation in ("row", "view") and not slot.size:  # of an empty stack: the loop does not run
                continue
            assert slot.offset <= v.offset and v.offset + v.size <= slot.offset + slot.size
            assert slot.start <= v.start and v.end <= slot.end


def check_runs(graph: Any, plan: MemoryPlan, values: dict[str, np.ndarray]) -> None:
    """Check the plan, and that the function gives the same results in its arena."""
    check_plan(plan)
    for got, wanted in zip(execute(plan, values), rlx.evaluate(graph, values), strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes() or almost(got, wanted)


def almost(got: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether floats agree except for the last digits: NumPy's products and functions depend on the alignment."""
    if got.dtype.kind not in "fc":
        return False
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    return np.allclose(got, wanted, rtol=0, atol=64 * np.finfo(got.dtype).eps * scale, equal_nan=True)


@settings(max_examples=80)
@given(graphs(), st.sampled_from([16, 64, 256]), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_random_graphs_run_in_their_plan(
    graph: Any, alignment: int, in_place: bool, allocate_inputs: bool, allocate_params: bool, hoist_weights: bool
) -> None:
    plan = plan_memory(
        graph,
        alignment=alignment,
        in_place=in_place,
        hoist_weights=hoist_weights,
        allocate_inputs=allocate_inputs,
        allocate_params=allocate_params,
        allocate_constants=allocate_params,
    )
    check_runs(graph, plan, inputs())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=30))
@example([(40, 0)] * 3)
def test_arenas_stay_near_the_bound(chain: list[tuple[int, int]]) -> None:
    """A chain of vectors of many sizes. Each vector is read again some ops later."""
    g = rlx.Graph("chain")
    x = g.input("x", (40,))
    live: list[tuple[int, Any]] = []
    value = x
    for step, (size, later) in enumerate(chain):
        value = g.concat([g.narrow(x, 0, 0, size), g.narrow(g.expand(g.sum(value), (40,)), 0, 0, size)], 0)
        for due, old in live:
            if due == step:
                value = g.concat([value, old], 0)
        live.append((step + later, value))
    g.set_outputs([g.sum(value)])
    plan = plan_memory(g)
    check_plan(plan)
    assert plan.arena_size <= 2 * plan.peak_live_bytes


def encoder(batch: Any = 2) -> Any:
    width = 16
    g = rlx.Graph("encoder", stage="hir")
    x = g.input("x", (batch, 8, width))
    square, row = (width, width), (width,)
    shapes: list[Any] = [square, row] * 4
    shapes += [row, row, (width, 64), (64,), (64, width), row, row, row]
    weights = [g.param(f"w{i}", shape) for i, shape in enumerate(shapes)]
    g.set_outputs({"y": g.transformer_encoder_block(x, *weights, num_heads=4)})
    return g


def test_a_transformer_layer() -> None:
    g = rlx.Pipeline().compile(encoder()).lir
    plan = plan_memory(g)
    check_plan(plan)
    assert plan.arena_size <= 1.15 * plan.peak_live_bytes
    assert plan.bytes_saved > 0.8 * plan.total_bytes
    rng = np.random.default_rng(0)
    values = {a.name: rng.uniform(-1, 1, a.shape.static).astype(np.float32) for a in g.arguments}
    check_runs(g, plan, values)


# --- rules, one by one ----------------------------------------------------------------------------


def entries(graph: Any, **options: Any) -> tuple[MemoryPlan, dict[str, PlannedValue]]:
    plan = plan_memory(graph, **options)
    return plan, {v.name: v for v in plan.values}


def test_elementwise_chains_are_done_in_place() -> None:
    g = rlx.Graph("chain")
    x = g.input("x", (16, 16))
    g.set_outputs([g.relu(g.tanh(g.exp(x)))])
    assert plan_memory(g).arena_size == 1024
    assert plan_memory(g, in_place=False).arena_size == 2048
    assert plan_memory(g, allocate_inputs=False).arena_size == 1024
    plan, told = entries(g)
    assert [told[n].relation for n in ("x", "%0", "%1", "%2")] == ["own", "in place", "in place", "in place"]
    assert told["%2"].base == "%1" and told["%2"].outputs == ("output0",)
    assert (told["x"].start, told["x"].end, told["%2"].end) == (0, 1, len(plan.steps) - 1)
    assert plan.total_bytes == 4096 and plan.bytes_saved == 3072


def test_what_is_not_done_in_place() -> None:
    g = rlx.Graph("not")
    x, row, small = g.input("x", (4, 4)), g.input("row", (4,)), g.input("small", (4, 4), "i8")
    y = g.exp(x)
    kept = g.tanh(y)  # y is read again
    narrow = g.cast(small, "f32")  # another element size
    part = g.tanh(g.narrow(g.exp(x), 0, 0, 2))  # would keep more bytes than it needs
    wide = g.add(row, x)  # row is broadcast; x has the shape of the result
    square = g.transpose(y)  # shape ops read their operand in another order
    product = g.matmul(wide, square)
    g.set_outputs([kept, narrow, product, part, g.reverse(g.exp(kept), [0])])
    _, told = entries(g)
    assert [v.relation for v in told.values() if v.label == "tanh"] == ["own", "own"]
    relations = {v.label: (v.relation, v.base) for v in told.values() if v.op not in ("input",)}
    assert relations["cast"] == ("own", None)
    assert relations["add"] == ("in place", "x")
    assert relations["transpose"] == ("own", None)
    assert relations["matmul"] == ("own", None)
    assert relations["reverse"] == ("own", None)


def test_an_operand_read_twice_in_two_orders_is_not_overwritten() -> None:
    g = rlx.Graph("twice")
    x = g.tanh(g.input("x", (4, 4)))
    square = g.mul(x, x)
    row = g.narrow(g.reshape(square, (16,)), 0, 4, 4)
    g.set_outputs([square + row])
    plan, told = entries(g)
    assert told["%1"].relation == "in place"  # both operands are read element by element
    assert told["%3"].relation == "view" and told["%3"].base_offset == 16
    assert told["%4"].relation == "own"  # the row is in the bytes of the square
    check_plan(plan)


def test_views() -> None:
    g = rlx.Graph("views")
    x = g.exp(g.input("x", (4, 6)))
    flags = g.gt(x, 0.0)
    values = {
        "reshape": g.reshape(x, (2, 12)),
        "rows": g.narrow(x, 0, 1, 2),
        "row": g.slice(x, (3, 0), (4, 6)),
        "part": g.narrow(g.narrow(x, 0, 2, 1), 1, 1, 3),
        "columns": g.narrow(x, 1, 1, 2),
        "strided": g.slice(x, (0, 0), (4, 6), (2, 1)),
        "bits": g.cast(flags, "u8"),
        "cast": g.cast(x, "i32"),
        "expand": g.expand(x, (1, 4, 6)),
        "stretch": g.expand(x, (2, 4, 6)),
    }
    g.set_outputs(values)
    plan, told = entries(g)
    by_output = {v.outputs[0]: v for v in told.values() if v.outputs}
    base = told["%0"].offset
    assert base is not None
    expected = {"reshape": 0, "rows": 24, "row": 72, "part": 52, "expand": 0}
    for name, offset in expected.items():
        assert by_output[name].relation == "view", name
        assert by_output[name].offset == base + offset, name
    assert by_output["bits"].relation == "view"
    for name in ("columns", "strided", "cast", "stretch"):
        assert by_output[name].relation == "own", name
    check_plan(plan)


def test_what_lies_outside() -> None:
    g = rlx.Graph("outside")
    x, w, state = g.input("x", (8, 8)), g.param("w", (8, 8)), g.state("s", (8, 8))
    g.update(state, state + x)
    table = g.constant(np.ones((8, 8), np.float32))
    g.set_outputs({"y": x @ w, "z": table, "v": g.reshape(w, (64,)), "x": x})
    plan, told = entries(g)
    assert told["w"].relation == told["s"].relation == told["%1"].relation == "external"
    assert told["w"].offset is None
    view = next(v for v in told.values() if v.outputs == ("v",))
    assert (view.relation, view.base, view.offset) == ("view", "w", None)
    assert told["x"].end == len(plan.steps) - 1  # it is also an output
    everything = plan_memory(g, allocate_params=True, allocate_constants=True)
    pinned = [v for v in everything.values if v.name in ("w", "s", "%1")]
    assert all((v.start, v.end) == (0, len(everything.steps) - 1) and v.offset is not None for v in pinned)
    check_plan(everything)
    assert plan.arena_size == 3 * 256 and everything.arena_size == 2 * 256 + 3 * 256  # the state is updated in place


def test_what_is_computed_from_weights_alone() -> None:
    g = rlx.Graph("weights")
    x, w = g.input("x", (8, 8)), g.param("w", (8, 8))
    scaled = g.transpose(w) * 2.0
    g.set_outputs({"y": g.reshape(x @ scaled, (64,)), "w": scaled, "twice": x * g.exp(scaled)})
    plan, told = entries(g, hoist_weights=True)
    outside = {v.label for v in told.values() if v.offset is None}
    assert outside == {"param", "constant", "transpose", "mul", "exp"}
    assert [v.relation for v in told.values() if v.label == "mul"] == ["external", "in place"]
    assert plan.arena_size == 512
    assert plan_memory(g).arena_size > 512
    check_runs(g, plan, {"x": np.ones((8, 8), np.float32), "w": np.full((8, 8), 0.5, np.float32)})


def test_regions_keep_what_they_read() -> None:
    text = """
    func.func @main(%x: tensor<64xf32> {rlx.name = "x"}) -> tensor<64xf32> {
      %n = arith.constant 5 : index
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %e = rlx.activation(%x) {kind = "exp"} : tensor<64xf32>
      %r = scf.for %i = %zero to %n step %one iter_args(%c = %x) -> (tensor<64xf32>) {
        %a = rlx.binary(%c, %e) {kind = "mul"} : tensor<64xf32>
        %b = rlx.activation(%a) {kind = "tanh"} : tensor<64xf32>
        scf.yield %b : tensor<64xf32>
      }
      return %r : tensor<64xf32>
    }
    """
    plan, told = entries(rlx.parse(text))
    loop = plan.steps.index("for")
    last = plan.steps.index("yield")
    product, inner = (
        next(v for v in told.values() if v.label == "mul"),
        next(v for n, v in told.items() if n.startswith("%arg") and v.size),
    )
    exponential = next(v for v in told.values() if v.label == "exp")
    assert exponential.end == last  # the next round reads it again
    assert product.relation == "own"  # neither the carried value nor the outside one dies here
    assert next(v for v in told.values() if v.label == "tanh").base == product.name
    assert (inner.start, inner.end) == (loop, last)


# --- options -----------------------------------------------------------------------


def test_symbols_need_sizes() -> None:
    g = rlx.Graph("symbolic")
    x = g.input("x", ("batch", 16))
    g.set_outputs([g.relu(g.reshape(x, ("batch*16",)))])
    with pytest.raises(rlx.ShapeError, match=r"x is f32\[batch, 16\]: a plan needs a size for batch"):
        plan_memory(g)
    assert plan_memory(g, sizes={"batch": 10}).arena_size == 640
    assert plan_memory(g.module, sizes={"batch": 20}, alignment=1).arena_size == 1280


def test_alignment() -> None:
    g = rlx.Graph("aligned")
    x = g.input("x", (3,))
    g.set_outputs([g.softmax(x), g.transpose(g.reshape(x, (3, 1)))])
    for alignment in (1, 16, 4096):
        plan = plan_memory(g, alignment=alignment)
        assert plan.arena_size == 3 * align_up(12, alignment)
    with pytest.raises(rlx.Error, match="alignment 48 is not a power of two"):
        plan_memory(g, alignment=48)


def test_nothing_to_place() -> None:
    g = rlx.Graph("empty")
    x = g.input("x", (0, 4))
    g.set_outputs([g.relu(x)])
    plan = plan_memory(g)
    assert plan.arena_size == plan.peak_live_bytes == 0
    check_plan(plan)


def test_an_entry_is_found_by_its_value() -> None:
    g = rlx.Graph("asked")
    y = g.matmul(g.input("x", (2, 4)), g.param("w", (4, 4)))
    g.set_outputs([y])
    entry = plan_memory(g)[y.value]
    assert entry == plan_memory(g)[y] and entry.op == "matmul"
