"""The driver of rewrite patterns: it terminates in few visits, leaves no dead ops, and names a faulty pattern."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.ir.op import views
from rlx.passes.pattern import RewriteCounts, Rewriter, count_rewrites, has_one_use, pattern, producer, rewrite
from rlx.passes.runner import clone_module


@pattern
def drop_double_neg(op: views.Activation, rewriter: Rewriter) -> Any:
    inner = producer(op.x, views.Activation)
    return inner.x if inner is not None and op.kind == inner.kind == "neg" else None


@pattern
def join_transposes(op: views.Transpose, rewriter: Rewriter) -> Any:
    inner = producer(op.x, views.Transpose)
    return inner and rewriter.emit("transpose", [inner.x], perm=tuple(inner.perm[p] for p in op.perm))


def run(graph: rlx.Graph, *patterns: Any) -> tuple[rlx.Graph, RewriteCounts]:
    module = clone_module(graph.module)
    with mlir.entered():
        counts = rewrite(module, patterns, "test")
        module.operation.verify()
    return rlx.Graph.from_module(module, graph.name_symbol), counts


def chain(length: int, step: Callable[[Any, Any], Any]) -> rlx.Graph:
    g = rlx.Graph("chain")
    y = x = g.input("x", (2, 3, 4))
    for _ in range(length):
        y = step(g, y)
    g.set_outputs([y, x])
    return g


def names(graph: rlx.Graph) -> list[str]:
    return [op.operation.name for op in graph.function.entry_block.operations]


@pytest.mark.parametrize("step", [lambda g, y: g.neg(y), lambda g, y: g.transpose(y, (1, 2, 0))])
def test_chains_take_visits_in_proportion(step: Any) -> None:
    visits = []
    for length in (1250, 2500, 5000):
        graph, counts = run(chain(length, step), drop_double_neg, join_transposes)
        assert len(names(graph)) <= 2  # the remaining op and the return
        visits.append(counts.visits / length)
    assert max(visits) < 4 and max(visits) / min(visits) < 1.2


def test_many_readers_of_one_value_are_not_visited_for_each() -> None:
    def visits(length: int) -> float:
        g = rlx.Graph("fan")
        x = g.input("x", (3,))
        g.set_outputs([g.neg(g.neg(x)) for _ in range(length)])
        return run(g, drop_double_neg)[1].visits / length

    assert visits(2000) < 1.2 * visits(250)


@pattern
def drop_neg_of_an_only_reader(op: views.Activation, rewriter: Rewriter) -> Any:
    """Replace `neg(x)` by `x` if only `op` reads its operand. This starts to match when other readers are removed."""
    inner = producer(op.x, views.Activation)
    return inner.x if op.kind == "neg" and inner is not None and has_one_use(op.x) else None


@pattern
def drop_third_neg(op: views.Activation, rewriter: Rewriter) -> Any:
    """Match by an op two steps away."""
    inner = producer(op.x, views.Activation)
    outer = None if inner is None else producer(inner.x, views.Binary)
    return outer.lhs if outer is not None and outer.kind == "add" else None


@pattern
def mul_into_add(op: views.Binary, rewriter: Rewriter) -> Any:
    return rewriter.emit("binary", list(op.operands), kind="add") if op.kind == "mul" else None


def test_it_ends_only_when_nothing_matches() -> None:
    g = rlx.Graph("dead_reader")
    x = g.input("x", (3,))
    y = g.exp(x)
    z = g.neg(y)
    g.gelu(y)  # an unused op, after the op whose match it prevents
    g.set_outputs([z])
    after, _ = run(g, drop_neg_of_an_only_reader)
    assert names(after) == ["func.return"]

    g = rlx.Graph("two_ops_away")
    x = g.input("x", (3,))
    g.set_outputs([g.exp(g.neg(x * x))])
    after, counts = run(g, drop_third_neg, mul_into_add)
    assert names(after) == ["func.return"] and counts.rewrites["drop_third_neg"] == 1
    assert not run(after, drop_third_neg, mul_into_add)[1].rewrites


def test_what_it_does_is_counted() -> None:
    with count_rewrites() as counts:
        _, own = run(chain(4, lambda g, y: g.neg(y)), drop_double_neg)
    assert own.rewrites == counts.rewrites == {"drop_double_neg": 2}
    assert counts.erased == 2 and counts.visits == own.visits


def test_dead_ops_go_in_regions_too() -> None:
    g = rlx.Graph("regions")
    x = g.input("x", (3,))
    flag = g.input("flag", (), "bool")
    g.exp(g.if_(flag, lambda: g.sin(x), lambda: x))
    g.set_outputs([g.if_(flag, lambda: g.neg(g.neg(g.tanh(x))), lambda: x)])
    graph, counts = run(g, drop_double_neg)
    assert names(graph) == ["rlx.if", "func.return"]
    assert str(graph).count("rlx.activation") == 1 and counts.rewrites == {"drop_double_neg": 1}


def test_new_ops_have_the_place_of_the_old() -> None:
    g = chain(2, lambda g, y: g.transpose(y, (1, 2, 0)))
    graph, _ = run(g, join_transposes)
    location = str(graph.function.entry_block.operations[0].operation.location)
    assert "test_pattern.py" in location and '"test"' in location


def test_the_result_is_the_same_each_time() -> None:
    g = chain(60, lambda g, y: g.neg(g.transpose(y, (1, 2, 0))))
    texts = {str(run(g, drop_double_neg, join_transposes)[0]) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_keep_their_value(seed: int) -> None:
    choose = random.Random(seed)
    g = rlx.Graph("random")
    values: list[Any] = [g.input("x", (3, 3, 3)), g.input("y", (3, 3, 3))]
    for _ in range(40):
        x, kind = choose.choice(values), choose.randrange(3)
        transposed = g.transpose(x, choose.sample(range(3), 3))
        values.append((g.neg(x), transposed, x + values[-1])[kind])
    g.set_outputs(choose.sample(values, 3))
    inputs = {n: np.random.default_rng(seed).standard_normal((3, 3, 3)).astype(np.float32) for n in "xy"}
    graph, _ = run(g, drop_double_neg, join_transposes)
    for a, b in zip(rlx.evaluate(g, inputs), rlx.evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


# --- wrong patterns ------------------------------------------------------------------------------------


@pattern
def swap_forever(op: views.Binary, rewriter: Rewriter) -> Any:
    return rewriter.emit("binary", [op.rhs, op.lhs], kind=op.kind)


@pattern
def of_another_type(op: views.Activation, rewriter: Rewriter) -> Any:
    return rewriter.emit("cast", [op.x], dtype=rlx.f64)


@pattern
def of_two_values(op: views.Activation, rewriter: Rewriter) -> Any:
    return op.x, op.x


@pattern
def of_no_value(op: views.Activation, rewriter: Rewriter) -> Any:
    return "x"


@pattern
def of_itself(op: views.Activation, rewriter: Rewriter) -> Any:
    return op.result


@pattern
def raises(op: views.Activation, rewriter: Rewriter) -> Any:
    return {}["x"]


@pattern
def emits_nonsense(op: views.Activation, rewriter: Rewriter) -> Any:
    return rewriter.emit("transpose", [op.x], perm=(0, 0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (swap_forever, r"pattern 'swap_forever' does not come to an end: .*\(swap_forever \d+ times\)"),
        (of_another_type, r"pattern 'of_another_type' gives another type: 'rlx.activation' gives f32.*f64"),
        (of_two_values, "pattern 'of_two_values' must give 1 values for 'rlx.activation', got 2"),
        (of_no_value, "pattern 'of_no_value' must give values, got str"),
        (of_itself, "pattern 'of_itself' gives the result that it is to replace"),
        (raises, "pattern 'raises' raised KeyError: 'x'"),
        (emits_nonsense, "pattern 'emits_nonsense': rlx.transpose: "),
    ],
)
def test_a_wrong_pattern_is_named_with_the_line_of_the_user(wrong: Any, message: str) -> None:
    g = rlx.Graph("wrong")
    x = g.input("x", (3,))
    g.set_outputs([g.tanh(x) + x])
    with pytest.raises(rlx.Error, match=message) as caught:
        run(g, wrong)
    assert "test_pattern.py" in (caught.value.location or "")


def test_what_a_pattern_emits_without_a_match_goes() -> None:
    @pattern
    def gives_up(op: views.Activation, rewriter: Rewriter) -> Any:
        rewriter.emit("activation", [rewriter.emit("activation", [op.x], kind="exp")], kind="exp")
        return None

    g = chain(3, lambda g, y: g.tanh(y))
    assert names(run(g, gives_up)[0]) == names(g)


def test_a_pattern_says_which_op_it_takes() -> None:
    def without(op, rewriter):  # type: ignore[no-untyped-def]
        return None

    with pytest.raises(rlx.Error, match="pattern 'without' must take"):
        pattern(without)
