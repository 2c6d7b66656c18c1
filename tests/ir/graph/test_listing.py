"""Graph listings."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ir.graph.listing import inspect_graph
from tests.models.tiny_bert import encoder


def test_an_op_names_the_users_line_scope_and_attributes() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (2, 3))
    with g.named("outer"), g.named("inner"):
        y = g.softmax(x, axis=0)
    g.set_outputs([y + 1.0])
    softmax, constant, add = inspect_graph(g).ops
    assert (softmax.name, softmax.scope, softmax.attributes["axis"]) == ("softmax", "outer/inner", 0)
    assert softmax.location is not None
    assert softmax.location.startswith(f"{__file__}:")
    assert constant.attributes["value"] == np.float32(1)
    assert (add.label, add.operands, add.results) == ("add", (*softmax.results, *constant.results), ("%2",))


def test_cost_is_the_sum_over_the_ops() -> None:
    g = rlx.Graph("main")
    x, w = g.input("x", ("n", 4)), g.param("w", (4, 2))
    g.set_outputs([g.matmul(g.relu(x), w)])
    report = inspect_graph(g)
    assert str(report.cost.flops) == str(sum(op.cost.flops for op in report.ops if op.cost))
    assert report.cost.flops.evaluate({"n": 3}) >= 2 * 3 * 4 * 2  # type: ignore[union-attr]
    assert "n" in str(report)


def test_states_and_their_updates() -> None:
    g = rlx.Graph("counter")
    count = g.state("count", (2,), init=3)
    g.set_outputs({"y": count * 2.0})
    g.update(count, count + 1.0)
    text = str(inspect_graph(g))
    assert "    state count: f32[2]" in text
    assert "    output y: f32[2] = %1\n    update count = %3\n" in text and text.count("output") == 1


@pytest.mark.parametrize("passes", ["rlx-lower-blocks", "rlx-lower-blocks,rlx-fuse", "rlx-lower-blocks,rlx-decompose"])
def test_the_work_of_a_model_is_about_the_same_at_all_stages(passes: str) -> None:
    """The cost of a composite op is that of its decomposition."""
    graph = encoder()
    given, later = inspect_graph(graph).cost, inspect_graph(rlx.passes.run(graph, passes)).cost
    assert later.flops == pytest.approx(given.flops, rel=0.03)
    block = next(op for op in inspect_graph(graph).ops if op.label == "transformer_encoder_block")
    # Four products of [16, 32] by [32, 32], and two with a hidden layer of 64.
    assert block.cost is not None and isinstance(block.cost.flops, int)
    assert block.cost.flops > 2 * 16 * 32 * (4 * 32 + 2 * 64)


def test_a_graph_with_its_lines_comes_back_with_them() -> None:
    g = rlx.Graph("layer")
    x = g.input("x", (2, 3))
    with g.named("block"):
        g.set_outputs([g.tanh(x) * 2.0])
    again = rlx.parse(g.text(locations=True))
    assert [(o.location, o.scope) for o in inspect_graph(again).ops] == [
        (o.location, o.scope) for o in inspect_graph(g).ops
    ]
    assert g.text() == str(g) == str(again)
