"""`Pipeline`: the stages from a graph to a target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.shape import shape_of
from rlx.passes.rewrite import collect
from rlx.runtime.pipeline import CompileResult, Pipeline


def module(batch: Any = 2) -> Any:
    def build(m: Any) -> Any:
        x = m.input("x", (batch, 8))
        h = m.linear(x, m.param("w", (8, 8)), m.param("b", (8,)), activation="relu")
        return {"y": m.rms_norm(h, m.param("scale", (8,)))}

    return rlx.GraphModule.define("net", build)


def names(graph: Any) -> list[str]:
    return [op.name[4:] for op in collect(graph.module)]


def arrays(graph: Any, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {a.name: a.shape.bind(sizes) for a in graph.arguments}
    return {name: rng.uniform(-1, 1, s.static).astype(s.dtype.numpy) for name, s in shapes.items()}


def test_the_stages() -> None:
    given = module()
    before = str(given)
    result = Pipeline(kernels="off").compile(given)
    assert isinstance(result, CompileResult)
    assert (result.hir.stage, result.mir.stage, result.lir.stage) == ("hir", "mir", "lir")
    assert names(result.hir) == ["linear", "rms_norm"]
    assert names(result.mir) == ["fused_matmul_bias_act", "rms_norm"]
    assert set(names(result.lir)) <= {"matmul", "binary", "activation", "reduce", "constant", "cast"}
    assert str(given) == before
    values = arrays(result.hir)
    expected = rlx.evaluate(result.hir, values)[0]
    for graph in (result.mir, result.lir):
        graph.verify()
        np.testing.assert_allclose(rlx.evaluate(graph, values)[0], expected, rtol=1e-5)


def test_a_graph_at_mir() -> None:
    g = rlx.Graph("mir")
    g.set_outputs(g.softmax(g.input("x", (2, 4))))
    result = Pipeline().compile(g)
    assert result.hir.stage == "mir" and str(result.hir) == str(result.mir) == str(g)
    assert result.hir is not g


def test_the_options() -> None:
    fusable = Pipeline(policy="fusable").compile(module())
    assert names(fusable.mir) == ["matmul", "binary", "activation", "rms_norm"]
    assert [miss.fusion for miss in fusable.fusion.missed] == ["matmul-bias-act"]
    declared = Pipeline().compile(module().with_fusion_policy("fusable"))
    assert names(declared.mir) == names(fusable.mir)
    low = Pipeline(precision=rlx.bf16).compile(module())
    (product,) = collect(low.mir.module, {"fused_matmul_bias_act"})
    assert shape_of(product.results[0]).dtype is rlx.bf16
    assert low.mir.outputs == low.hir.outputs
    passed = Pipeline(passes="rlx-lower-blocks,rlx-decompose{ops=rms_norm}", opt=0).compile(module())
    assert "rms_norm" not in names(passed.mir)
    assert "rms_norm" in names(Pipeline(passes="rlx-lower-blocks,rlx-decompose{ops=rms_norm}").compile(module()).mir)
    bound = Pipeline(bind={"n": 5}).compile(module("n"))
    assert bound.mir.inputs[0].shape == (5, 8) and not bound.has_dynamic_dims


def test_wrong_options() -> None:
    with pytest.raises(rlx.Error, match="policy 'fast' is not one of direct, fusable"):
        Pipeline(policy="fast")
    with pytest.raises(rlx.Error, match="unknown target: 'cpuu'"):
        Pipeline("cpuu")
    with pytest.raises(rlx.Error, match="no symbol m; it has n"):
        Pipeline(bind={"m": 5}).compile(module("n"))
    with pytest.raises(rlx.PassError, match="is not a pass"):
        Pipeline(passes="rlx-fast").compile(module())
    with pytest.raises(rlx.Error, match="compile takes a Graph or GraphModule, got str"):
        Pipeline().compile("module {}")
    with pytest.raises(rlx.Error, match="has no outputs"):
        Pipeline().compile(rlx.Graph("empty"))


def test_symbols() -> None:
    result = Pipeline().compile(module("n"))
    assert result.has_dynamic_dims and result.dynamic_symbols == ("n",)
    assert result.memory.sizes == {"n": 64}
    special = result.specialise({"n": 3})
    assert not special.has_dynamic_dims
    assert special.memory.sizes == {} and special.memory.arena_size < result.memory.arena_size
    assert special.hir.inputs[0].shape == ("n", 8)


def test_the_reports() -> None:
    result = Pipeline(kernels="off").compile(module())
    assert result.fusion.fused == {"matmul-bias-act": 1}
    assert result.dispatch.compile_ready and result.dispatch.target == "cpu (host)"
    assert {row.name: row.path for row in result.dispatch.rows}["rms_norm"] == "decomposed"
    assert {v.op for v in result.memory.values} >= {"input", "param", "matmul"}
    assert result.memory is result.memory
    text = str(result)
    assert text.startswith("@net for cpu (host), O2, policy direct, precision f32\n")
    assert "given (hir): 1 linear, 1 rms_norm" in text
    for report in (result.fusion, result.memory, result.dispatch):
        assert report.summary() in text
        assert str(report).splitlines()[0] == report.summary()


def test_a_target_that_lacks_a_dtype() -> None:
    g = rlx.Graph("wide")
    x = g.input("x", (4,), "f64")
    g.set_outputs(x + x)
    result = Pipeline("vulkan").compile(g)
    assert not result.dispatch.compile_ready
    with pytest.raises(rlx.UnsupportedError, match="does not support some dtypes"):
        result.artifact()


def test_the_artifact() -> None:
    result = Pipeline(arch="host").compile(module())
    artifact = result.artifact()
    assert result.artifact() is artifact
    assert [a.name for a in artifact.signature.arguments] == ["x", "w", "b", "scale"]
    from rlx.runtime.program import Program

    compiled = Program(artifact, threads=1)
    values = arrays(result.hir)
    compiled.set_params({a.name: values[a.name] for a in result.hir.params})
    np.testing.assert_allclose(
        compiled.run({"x": values["x"]})[0], rlx.evaluate(result.hir, values)[0], rtol=1e-4, atol=1e-5
    )
