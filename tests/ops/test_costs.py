"""Costs of fused ops: they are those of the ops that they replace."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.ir.graph.evaluate import decomposed
from rlx.ir.op import opview, registry
from rlx.ir.shape import shape_of
from tests.conformance.cases import Case, cases

# Ops with an epilogue are fused as well, whatever their name is.
FUSED = [
    name
    for name, spec in registry.SPECS.items()
    if name.startswith("fused_") or "activation" in {a.name for a in spec.attributes}
]


def _op_of(case: Case) -> Any:
    """Return the op of a sample; its graph has to live as long."""
    graph = case.graph(case.bindings()[0])
    return graph, next(op for op in opview.operations(graph.function.entry_block) if op.name == f"rlx.{case.op}")


@pytest.mark.parametrize("name", FUSED)
def test_the_cost_of_a_fused_op_is_that_of_its_parts(name: str) -> None:
    for case in cases(name):
        _graph, op = _op_of(case)
        shapes = opview.operands_of(op, [shape_of(v) for v in op.operands])
        block = decomposed(opview.card_of(op), shapes, opview.attributes_of(op)).function.entry_block
        parts = [
            opview.cost_of(o.operation).flops for o in block.operations if o.operation.name not in opview.TERMINATORS
        ]
        assert opview.own_cost_of(op).flops == sum(parts), case


@pytest.mark.parametrize(("activation", "per_element"), [(None, 0), ("relu", 1), ("gelu", 10)])
def test_epilogues_count_bias_and_activation(activation: str | None, per_element: int) -> None:
    g: Any = rlx.Graph("epilogues")
    x, w = g.input("x", (3, 4)), g.param("w", (4, 5))
    image, filters = g.input("image", (1, 2, 6, 6)), g.param("filters", (3, 2, 3, 3))
    product = g.fused_matmul_bias_act(x, w, g.param("b", (5,)), activation=activation)
    convolved = g.fused_conv_bias_act(image, filters, g.param("c", (3,)), activation=activation)
    g.set_outputs([product, convolved])
    costs = [op.cost.flops for op in rlx.inspect_graph(g).ops if op.cost is not None]
    assert costs == [3 * 5 * (2 * 4 + 1 + per_element), 3 * 4 * 4 * (2 * 2 * 9 + 1 + per_element)]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_fusion_does_not_change_the_operations(activation: str) -> None:
    g: Any = rlx.Graph("layers")
    x = g.input("x", (1, 8, 16, 16))
    h = g.conv(x, g.param("w", (8, 8, 3, 3))) + g.reshape(g.param("b", (8,)), (8, 1, 1))
    h = g.reshape(g.activation(activation, h), (8, 196)) @ g.param("v", (196, 64)) + g.param("c", (64,))
    g.set_outputs([g.activation(activation, h)])
    fused = rlx.passes.run(g, "rlx-fuse")
    assert {"fused_conv_bias_act", "fused_matmul_bias_act"} <= set(rlx.inspect_graph(fused).histogram)
    assert rlx.inspect_graph(fused).cost.flops == rlx.inspect_graph(g).cost.flops
