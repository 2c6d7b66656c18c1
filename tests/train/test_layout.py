"""`compile_training`: forward and backward graphs with a common layout of the weights."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.plan.execute import execute
from rlx.train import compile_training
from tests.train import mlp


def test_one_layout_serves_both() -> None:
    result = compile_training(mlp.graph("batch"), ["w2", "w1"])
    assert result.wrt == ("w2", "w1")
    # 5·6, 6 and 6·4 numbers of four bytes.
    slots = [(s.name, s.forward_id, s.offset, s.size) for s in result.weights.slots]
    assert slots == [("w1", 2, 0, 120), ("b1", 3, 128, 24), ("w2", 4, 192, 96)]
    assert result.weights.arena_size == 320 and result.weights["b1"].offset == 128
    for slot in result.weights.slots:
        for graph in (result.forward.lir, result.backward.lir):
            assert graph.arguments[slot.forward_id].name == slot.name
    assert [o.name for o in result.backward.lir.outputs] == ["mse", "grad_w2", "grad_w1", "mae", "predicted"]


def test_graphs_compute_from_one_arena() -> None:
    result = compile_training(mlp.graph())
    arena = np.zeros(result.weights.arena_size, np.uint8)
    for name, array in mlp.params().items():
        slot = result.weights[name]
        arena[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
    weights = {}
    for a in result.forward.lir.params:
        slot = result.weights[a.name]
        weights[a.name] = arena[slot.offset :][: slot.size].view(np.float32).reshape(a.shape.static)
    (batch,) = mlp.batches(1)
    forward = rlx.evaluate(result.forward.lir, {**batch, **weights})
    backward = rlx.evaluate(result.backward.lir, {**batch, **weights})
    expected = rlx.evaluate(rlx.grad_with_loss(mlp.graph()), {**batch, **mlp.params()})
    np.testing.assert_allclose(forward[0], expected[0], rtol=1e-6)
    for found, wanted in zip(backward, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_backward_function_runs_in_its_arena_and_the_shared_weights() -> None:
    result = compile_training(mlp.graph("batch"))
    (batch,) = mlp.batches(1)
    plan = result.activations({"batch": len(next(iter(batch.values())))})
    assert all(v.offset is None for v in plan.values if v.op in ("param", "input")) and plan.gap == 0
    values = {**batch, **mlp.params()}
    for found, wanted in zip(execute(plan, values), rlx.evaluate(result.backward.lir, values), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_report() -> None:
    text = str(compile_training(mlp.graph(), target="xla"))
    for part in ("gradients by: w1, b1, w2", "weights: 320 B", "forward:", "backward:", "@mlp for xla (cpu)"):
        assert part in text


def test_blocks_are_weights_of_both() -> None:
    g = rlx.Graph("block", stage="hir")
    x = g.input("x", (2, 8))
    y = g.swiglu_ffn(x, g.param("up", (8, 16)), g.param("gate", (8, 16)), g.param("down", (16, 8)))
    g.set_outputs([g.mean(y * y)])
    result = compile_training(g)
    assert "rlx.swiglu_ffn" in str(result.forward.hir) and len(result.backward.lir.outputs) == 4


def test_bad_uses_are_refused() -> None:
    with pytest.raises(rlx.Error, match="no argument 'w9'"):
        compile_training(mlp.graph(), ["w9"])
    with pytest.raises(rlx.Error, match="must be a scalar"):
        compile_training(mlp.graph(), loss="predicted")
    with pytest.raises(rlx.Error, match="unknown target"):
        compile_training(mlp.graph(), target="abacus")
    with pytest.raises(rlx.Error, match="no weight 'w9'"):
        compile_training(mlp.graph()).weights["w9"]
    g = rlx.Graph("symbolic")
    g.set_outputs([g.sum(g.input("x", (2, "n")) @ g.param("w", ("n", 1)))])
    with pytest.raises(rlx.Error, match="its size must be known"):
        compile_training(g)
    assert compile_training(g, bind={"n": 4}).weights.arena_size == 64
    with pytest.raises(rlx.Error, match="takes a Graph or GraphModule"):
        compile_training("graph")
