"""`GraphModule`: its stages, and the methods that each stage has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.blocks.graph_module import HIR_METHODS, GraphModule


def two_layers(h: Any) -> Any:
    x = h.input("x", ("batch", 4))
    with h.named("first"):
        y = h.linear(x, h.param("w1", (4, 8)), h.param("b1", (8,)), activation="relu")
    with h.named("second"):
        return h.linear(y, h.param("w2", (8, 2))) * 2.0


def values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"x": (3, 4), "w1": (4, 8), "b1": (8,), "w2": (8, 2)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def expected() -> np.ndarray:
    v = values()
    return np.maximum(v["x"] @ v["w1"] + v["b1"], 0) @ v["w2"] * 2


def test_define_builds_hir_and_lower_gives_mir() -> None:
    module = rlx.Graph.define("mlp", two_layers)
    assert isinstance(module, GraphModule)
    assert (module.stage, module.name) == ("hir", "mlp")
    lowered = module.lower()
    assert (module.stage, lowered.stage) == ("hir", "mir")
    assert "rlx.linear" in str(module) and "rlx.linear" not in str(lowered)
    for found in (rlx.evaluate(module, values()), rlx.evaluate(lowered.graph, values())):
        np.testing.assert_allclose(found[0], expected(), rtol=1e-5)


def test_lower_is_the_identity_from_mir_on() -> None:
    lowered = rlx.Graph.define("mlp", two_layers).lower()
    assert lowered.lower() is lowered
    assert lowered.into_graph() is lowered.graph


def test_a_lowered_module_does_not_end_the_first_one() -> None:
    module = GraphModule.hir("m")
    x = module.input("x", (2, 3))
    y = module.linear(x, module.param("w", (3, 4)))
    module.set_outputs(y)
    module.lower()
    module.set_outputs([module.linear(y, module.param("v", (4, 5)))])
    assert [o.shape for o in module.lower().graph.outputs] == [(2, 5)]


def test_the_graph_of_each_stage() -> None:
    module = rlx.Graph.define("mlp", two_layers)
    lowered = module.lower()
    assert module.as_hir is not None and module.as_mir is None and module.as_lir is None
    assert lowered.as_hir is None and lowered.as_mir is lowered.graph
    assert isinstance(module.into_graph(), rlx.Graph) and module.into_graph().stage == "mir"
    with pytest.raises(rlx.StageError, match=r"module 'mlp' is at stage hir(.|\n)*call lower\(\) first"):
        _ = module.graph
    again = GraphModule.from_graph(lowered.graph)
    assert (again.stage, again.graph) == ("mir", lowered.graph)


@pytest.mark.parametrize("method", [*HIR_METHODS, "transformer_block"])
def test_methods_that_build_blocks_need_hir(method: str) -> None:
    module = GraphModule.mir("m")
    with pytest.raises(rlx.StageError, match=r"needs stage hir, but module 'm' is at stage mir"):
        getattr(module, method)
    assert callable(getattr(GraphModule.hir("m"), method))


def test_the_error_says_what_to_do_instead() -> None:
    module = GraphModule.mir("m")
    x, w = module.input("x", (2, 4)), module.param("w", (4,))
    with pytest.raises(rlx.StageError, match=r"before lower\(\); the tensor op is graph.rms_norm"):
        module.rms_norm(x, w)
    module.set_outputs([module.graph.rms_norm(x, w)])
    with pytest.raises(rlx.StageError) as caught:
        module.linear(x, w)
    assert "tensor op" not in str(caught.value)


def test_tensor_ops_are_built_at_both_stages() -> None:
    for module in (GraphModule.hir("m"), GraphModule.mir("m")):
        x = module.input("x", (2, 3))
        module.set_outputs({"y": module.tanh(x) + module.constant(1.0)})
        (result,) = rlx.evaluate(module.into_graph(), {"x": np.zeros((2, 3), np.float32)})
        np.testing.assert_array_equal(result, np.ones((2, 3)))


def test_the_fusion_policy_says_what_blocks_become() -> None:
    module = rlx.Graph.define("mlp", two_layers)
    assert module.fusion_policy == "direct"
    assert "fused_matmul_bias_act" in str(module.lower())
    assert module.with_fusion_policy("fusable") is module
    assert module.fusion_policy == "fusable"
    assert "fused" not in str(module.lower())
    assert rlx.parse(str(module)).module.operation.attributes["rlx.fusion_policy"].value == "fusable"
    with pytest.raises(rlx.Error, match="fusion policy 'fast' is not one of direct, fusable"):
        module.with_fusion_policy("fast")
    with pytest.raises(rlx.StageError, match="with_fusion_policy needs stage hir"):
        module.lower().with_fusion_policy("direct")


def test_finish_hir_sets_and_checks() -> None:
    module = GraphModule.hir("m")
    with pytest.raises(rlx.Error, match="module 'm' has no outputs"):
        module.finish_hir()
    y = module.linear(module.input("x", (2, 3)), module.param("w", (3, 4)))
    assert module.finish_hir({"y": y}) is module
    assert [o.name for o in module.outputs] == ["y"]
    with pytest.raises(rlx.StageError, match="finish_hir needs stage hir"):
        module.lower().finish_hir()


def test_a_function_that_gives_nothing_is_refused() -> None:
    with pytest.raises(rlx.Error, match="the function of 'm' gave no outputs"):
        rlx.Graph.define("m", lambda h: None)

    def sets_them_itself(h: Any) -> None:
        h.set_outputs([h.input("x", (2,))])

    assert [o.name for o in rlx.Graph.define("m", sets_them_itself).outputs] == ["output0"]


def test_every_block_can_be_built_and_lowered() -> None:
    def blocks(h: Any) -> Any:
        x = h.input("x", ("b", "s", 8))
        vector, table = h.param("v", (8,)), h.param("t", ("s", 2))
        square, up, down = h.param("q", (8, 8)), h.param("u", (8, 12)), h.param("d", (12, 8))
        x = h.linear_fused(x, square, vector, activation="silu")
        first, second = h.shared_linear_pair(x, square, square)
        x = h.residual_rms_norm(first, second, vector, vector)
        x = h.swiglu_ffn(x, up, up, down)
        x = h.depthwise_conv1d_causal(x, h.param("c", (8, 1, 1, 3)), h.param("p", ("b", 2, 8)), kernel_size=3)
        x = h.rms_norm(h.attention(x, x, x, num_heads=2, head_dim=4), vector)
        x = h.rope(x, table, table, head_dim=4)
        norms = (vector, vector)
        weights = (*norms, square, square, square, square, *norms, up, up, down, table, table)
        x = h.transformer_block(x, *weights, num_heads=2, head_dim=4, num_kv_heads=2)
        biased = (square, vector) * 4
        feed = (up, h.param("f", (12,)), down, vector)
        return h.transformer_encoder_block(x, *biased, *norms, *feed, *norms, num_heads=2)

    module = rlx.Graph.define("blocks", blocks)
    assert "rlx.llama_decoder_block" in str(module)
    for policy in ("direct", "fusable"):
        lowered = module.with_fusion_policy(policy).lower()
        lowered.graph.verify()
        assert lowered.outputs[0].shape == ("b", "s", 8)


def test_inspect_shows_what_there_is() -> None:
    shown = rlx.Graph.define("mlp", two_layers).inspect()
    assert shown.startswith(
        "@mlp [hir]: 4 ops: 2 linear, 1 constant, 1 mul\n"
        "    input x: f32[batch, 4]\n"
        "  3 params, 224 bytes\n"
        "    param w1: f32[4, 8]\n"
    )
    assert "    output output0: f32[batch, 2] = %3\n" in shown
    first = next(line for line in shown.splitlines() if line.startswith("  %0 = "))
    assert first.startswith("  %0 = linear(x, w1, b1; activation=relu) : f32[batch, 8]")
    assert first.endswith(" in first") and "test_graph_module.py:" in first


def test_inspect_cuts_what_is_long() -> None:
    module = GraphModule.mir("m")
    module.set_outputs([module.constant(np.arange(100.0, dtype=np.float32))])
    assert "constant(value=float32[100])" in module.inspect()


def test_unknown_methods_are_attribute_errors() -> None:
    module = GraphModule.hir("m")
    assert not hasattr(module, "no_such_op")
    assert {"linear", "matmul", "lower", "transformer_block"} <= set(dir(module))
