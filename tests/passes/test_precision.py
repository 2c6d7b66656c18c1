"""`rlx-precision`: the ops that it lowers, and the effect on results."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import rlx
from rlx.ir.dtype import ARITHMETIC
from rlx.ir.op import registry, views
from rlx.ir.shape import shape_of
from rlx.passes.dtypes.precision import POLICIES
from rlx.passes.dtypes.precision_classes import OpClass, class_of
from rlx.passes.pattern import producer
from rlx.passes.rewrite import collect
from tests.conformance.cases import cases, op_names
from tests.passes.random_graphs import graphs

_UNTOUCHED = tuple(name for name in ARITHMETIC if name not in ("f32", "f16", "bf16"))


def lowered(graph: Any, policy: str = "mixed_conservative", to: str = "f16", keep: str = "") -> Any:
    options = f"to={to} policy={policy}" + (f" keep={keep}" if keep else "")
    return rlx.passes.run(graph, f"builtin.module(rlx-precision{{{options}}})")


def dtypes_of(graph: Any, name: str) -> list[str]:
    """Return the dtypes of the first results of all ops of a name or kind, in order."""
    found = []
    for op in collect(graph.module):
        kind = op.attributes["kind"].value if "kind" in op.attributes else ""
        if name in (op.name[4:], kind):
            found.append(shape_of(op.results[0]).dtype.name)
    return found


def casts(graph: Any) -> list[Any]:
    return collect(graph.module, {"cast"})


def check_casts(before: Any, after: Any) -> None:
    """Check that there is one cast for each value and dtype, and none back, besides those of the program."""
    own = len(casts(before))
    pairs = Counter((op.operands[0], shape_of(op.results[0]).dtype) for op in casts(after))
    assert sum(n - 1 for n in pairs.values()) <= own
    back = 0
    for op in casts(after):
        inner = producer(op.operands[0], views.Cast)
        back += inner is not None and inner.operands[0].type == op.results[0].type
    assert back <= own


def signature(graph: Any) -> Any:
    return graph.arguments, graph.results


def untouched(graph: Any) -> Counter[Any]:
    """Count the ops with results of dtypes that the pass may not change."""
    told = ((op.name, str(shape_of(r))) for op in collect(graph.module) for r in op.results)
    return Counter((name, shape) for name, shape in told if shape.partition("[")[0] in _UNTOUCHED)


# --- classes --------------------------------------------------------------------------------------


def test_classes_follow_from_traits() -> None:
    expected = {
        OpClass.COMPUTE: "matmul attention conv lstm fused_transformer_layer llama_decoder_block",
        OpClass.REDUCTION: "softmax layer_norm cumsum pool scatter_add fused_residual_rms_norm mse_loss",
        OpClass.ELEMENTWISE: "activation binary cast where rope resize fused_swiglu",
        OpClass.DATA_MOVEMENT: "reshape transpose concat pad gather sort topk stop_gradient",
        OpClass.BOUNDARY: "constant fft dense_solve real quantize scan if custom checkpoint rng_normal",
    }
    for kind, names in expected.items():
        assert {name: class_of(registry.SPECS[name]) for name in names.split()} == dict.fromkeys(names.split(), kind)
    assert all(class_of(spec) is OpClass.BOUNDARY for spec in registry.SPECS.values() if spec.regions)


# --- all ops --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", op_names())
def test_every_op_is_lowered_or_left(name: str) -> None:
    chosen = [case for case in cases(name) if case.dtype == "f32"][:2] or cases(name)[:1]
    for case in chosen:
        graph = case.graph()
        for policy in POLICIES[:3]:
            result = lowered(graph, policy, "bf16" if policy == "mixed" else "f16")
            assert signature(result) == signature(graph)
            check_casts(graph, result)
            assert untouched(result) <= untouched(graph)


@pytest.mark.parametrize("dtype", ["i32", "bool", "f64", "c64", "u8", "i64"])
def test_other_dtypes_are_not_touched(dtype: str) -> None:
    g = rlx.Graph("other")
    x, y = g.input("x", (3, 4), dtype), g.input("y", (3, 4), dtype)
    values = [g.add(x, y), g.transpose(x), g.concat([x, y], 0), g.where(g.eq(x, y), x, y)]
    if dtype != "bool":
        values += [g.sum(x, 0), g.matmul(x, g.transpose(y))]
    g.set_outputs(values)
    for policy in POLICIES[:3]:
        assert str(lowered(g, policy)) == str(g)


def test_integers_beside_floats_keep_their_values() -> None:
    g = rlx.Graph("mixed")
    x, w, index = g.input("x", (3, 4)), g.param("w", (4, 4)), g.input("index", (5,), "i64")
    y = x @ w
    top, where = g.topk(y, 2)
    count = g.sum(g.cast(g.gt(y, 0.0), "i32"), 0) * 100_003
    g.set_outputs([g.gather(y, index), top, where, count, g.argmax(y, 1), g.cast(y, "f64") + 1e300])
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((3, 4)).astype(np.float32), "w": rng.standard_normal((4, 4)).astype(np.float32)}
    values["index"] = np.array([0, 2, 1, 2, 0])
    expected = rlx.evaluate(g, values)
    for policy in POLICIES[:3]:
        result = lowered(g, policy)
        assert signature(result) == signature(g)
        assert dtypes_of(result, "matmul") == ["f16"]
        for got, wanted in zip(rlx.evaluate(result, values), expected, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=0.02, atol=0.02)
            if wanted.dtype.kind == "i":
                np.testing.assert_array_equal(got, wanted)


# --- policies -------------------------------------------------------------------------------------


def layer() -> Any:
    g = rlx.Graph("layer")
    x, w, b = g.input("x", (2, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    scale, shift = g.param("scale", (8,)), g.param("shift", (8,))
    h = g.gelu(x @ w + b)
    n = g.layer_norm(h, scale, shift)
    g.set_outputs({"y": g.softmax(n @ w * 0.5), "z": g.exp(g.transpose(n @ w))})
    return g


def arrays(graph: Any, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {a.name: rng.uniform(-1, 1, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}


def test_policies_lower_more_and_more() -> None:
    g = layer()
    expected = {
        "mixed_conservative": {"matmul": "f16", "gelu": "f16", "layer_norm": "f32", "softmax": "f32", "exp": "f32"},
        "mixed": {"matmul": "f16", "gelu": "f16", "layer_norm": "f16", "softmax": "f16", "exp": "f32"},
        "always": {"matmul": "f16", "gelu": "f16", "layer_norm": "f16", "softmax": "f16", "exp": "f16"},
    }
    values = arrays(g)
    exact = rlx.evaluate(g, values)
    for policy, dtypes in expected.items():
        result = lowered(g, policy)
        for name, dtype in dtypes.items():
            assert set(dtypes_of(result, name)) == {dtype}, (policy, name)
        assert dtypes_of(result, "transpose") == ["f16"]
        for got, wanted in zip(rlx.evaluate(result, values), exact, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0.02, atol=2e-3)


def test_the_default_is_conservative_f16() -> None:
    g = layer()
    assert str(rlx.passes.run(g, "rlx-precision")) == str(lowered(g, "mixed_conservative", "f16"))


def test_a_weight_is_cast_once() -> None:
    g = layer()
    result = lowered(g)
    names = Counter(result.name_of(op.operands[0]) for op in casts(result))
    assert (names["w"], names["x"], names["b"]) == (1, 1, 1)
    assert "scale" not in names
    check_casts(g, result)


def test_nothing_is_rounded_between_f32_and_f32() -> None:
    g = rlx.Graph("between")
    x, w = g.input("x", (2, 8)), g.param("w", (8,))
    g.set_outputs({"a": g.relu(x * w), "b": g.mean(x * x, -1), "c": g.reshape(x, (16,))})
    for policy in ("mixed", "mixed_conservative"):
        assert ("f16" in str(lowered(g, policy))) == (policy == "mixed")
    assert not casts(lowered(g))
    assert dtypes_of(lowered(g, "always"), "mul") == ["f16", "f16"]


def test_movement_follows_its_operand() -> None:
    g = rlx.Graph("lookup")
    ids, table, w = g.input("ids", (3,), "i32"), g.param("table", (1000, 8)), g.param("w", (8, 8))
    g.set_outputs({"y": g.transpose(g.gather(table, ids) @ w)})
    result = lowered(g, "always")
    # Three rows are cast, not the table.
    assert dtypes_of(result, "gather") == ["f32"]
    assert dtypes_of(result, "transpose") == ["f16"]


def test_keep() -> None:
    g = layer()
    assert dtypes_of(lowered(g, "always", keep="softmax,gelu"), "softmax") == ["f32"]
    assert dtypes_of(lowered(g, "always", keep="softmax,gelu"), "gelu") == ["f32"]
    assert dtypes_of(lowered(g, "always", keep="softmax,gelu"), "layer_norm") == ["f16"]
    with pytest.raises(rlx.PassError, match=r"no op or kind 'sofmax' .did you mean 'softmax'"):
        lowered(g, keep="sofmax")
    with pytest.raises(rlx.PassError, match="'to' is one of f16, bf16"):
        lowered(g, to="f8")


# --- constants and range --------------------------------------------------------------------------


def masked_softmax(value: float) -> Any:
    g = rlx.Graph("masked")
    q, k, mask = g.input("q", (4, 8)), g.input("k", (4, 8)), g.input("mask", (4,), "bool")
    scores = q @ g.transpose(k) * 0.35 + g.cast(~mask, "f32") * value
    g.set_outputs({"y": g.softmax(scores) @ k})
    return g


@pytest.mark.parametrize("value", [-1e9, float(np.finfo(np.float32).min), -1e4])
def test_masks_stay_masks(value: float) -> None:
    g = masked_softmax(value)
    values = arrays(g) | {"mask": np.array([True, True, False, True])}
    expected = rlx.evaluate(g, values)[0]
    for policy in POLICIES[:3]:
        result = lowered(g, policy)
        np.testing.assert_allclose(rlx.evaluate(result, values)[0], expected, rtol=0.02, atol=2e-3)
        if policy == "mixed_conservative" and value < -65504:
            assert dtypes_of(result, "add") == ["f32"]


def test_small_constants_do_not_vanish() -> None:
    g = rlx.Graph("normalise")
    x, w = g.input("x", (3, 8)), g.param("w", (8, 8))
    y = x @ w
    g.set_outputs({"y": y / (g.sum(y * y, -1, keep_dims=True) + 1e-12) @ w})
    values = {"x": np.zeros((3, 8), np.float32), "w": np.ones((8, 8), np.float32)}
    for policy in ("mixed", "mixed_conservative"):
        np.testing.assert_array_equal(rlx.evaluate(lowered(g, policy), values)[0], 0)


def test_counts_beyond_the_digits_stay() -> None:
    g = rlx.Graph("positions")
    x = g.input("x", (1, 5000))
    w = g.param("w", (5000, 5000))
    positions = g.cast(g.iota((5000,)), "f32")
    g.set_outputs({"a": g.relu(x @ w) * g.sin(positions * 0.01), "n": g.iota((5000,), dtype="f32") + x @ w})
    result = lowered(g)
    assert dtypes_of(result, "mul") == ["f32", "f16"]  # a sine is again of moderate size
    assert dtypes_of(result, "sin") == ["f32"]
    assert dtypes_of(result, "add") == ["f32"]


def test_constants_are_converted_and_stay_finite() -> None:
    g = rlx.Graph("constants")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 4))
    table = np.array([[1.5, -1e9, np.inf, np.nan]], np.float32)
    g.set_outputs({"y": x @ w + g.constant(table), "z": x @ g.constant(np.eye(4, dtype=np.float32))})
    text = str(lowered(g, "always"))
    assert "-6.550400e+04" in text
    assert "f32>} : () ->" not in text  # no f32 constant is left
    values = arrays(g)
    got = rlx.evaluate(lowered(g, "always"), values)
    assert np.isfinite(got[0][:, :2]).all()
    assert np.isposinf(got[0][:, 2]).all() and np.isnan(got[0][:, 3]).all()
    np.testing.assert_allclose(got[1], values["x"], rtol=1e-3)


# --- values of low precision --------------------------------------------------------------------------


def test_casts_of_the_program_are_used() -> None:
    g = rlx.Graph("casts")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 4))
    y = g.cast(g.cast(x, "f16") @ g.cast(w, "f16"), "f32")
    g.set_outputs({"y": g.relu(y @ w), "h": g.cast(y, "f16"), "n": g.cast(y, "i32")})
    result = lowered(g)
    assert dtypes_of(result, "matmul") == ["f16", "f16"]
    assert Counter(dtypes_of(result, "cast")) == {"f16": 2, "i32": 1, "f32": 1}
    values = arrays(g)
    for got, wanted in zip(rlx.evaluate(result, values), rlx.evaluate(g, values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0.01, atol=2e-3)


def test_other_short_floats_are_left() -> None:
    g = rlx.Graph("other")
    x, w = g.input("x", (2, 4), "bf16"), g.param("w", (4, 4), "bf16")
    g.set_outputs({"y": g.softmax(x @ w)})
    assert str(lowered(g, "always")) == str(g)


def test_an_attention_mask_keeps_its_dtype() -> None:
    g = rlx.Graph("attention")
    x, mask = g.input("x", (1, 4, 8)), g.input("mask", (1, 2, 4, 4))
    g.set_outputs({"y": g.attention(x, x, x, mask, num_heads=2, head_dim=4, mask_kind="bias")})
    result = lowered(g)
    (op,) = collect(result.module, {"attention"})
    assert [shape_of(v).dtype.name for v in op.operands] == ["f16", "f16", "f16", "f32"]
    assert str(lowered(g, to="bf16")).count("{dtype = bf16}") == 1
    g = rlx.Graph("short_mask")
    x, mask = g.input("x", (1, 4, 8)), g.input("mask", (1, 2, 4, 4), "bf16")
    g.set_outputs({"y": g.attention(x, x, x, mask, num_heads=2, head_dim=4, mask_kind="bias")})
    result = lowered(g)
    (op,) = collect(result.module, {"attention"})
    assert [shape_of(v).dtype.name for v in op.operands] == ["f16", "f16", "f16", "bf16"]


# --- structure of programs ----------------------------------------------------------------------------

_REGION = """
func.func @main(%x: tensor<4x4xf32> {rlx.name = "x"}, %c: i1) -> tensor<4x4xf32> {
  %y = rlx.matmul(%x, %x) : tensor<4x4xf32>
  %r = scf.if %c -> (tensor<4x4xf32>) {
    %a = rlx.matmul(%y, %x) : tensor<4x4xf32>
    %b = rlx.activation(%a) {kind = "relu"} : tensor<4x4xf32>
    scf.yield %b : tensor<4x4xf32>
  } else {
    scf.yield %y : tensor<4x4xf32>
  }
  %z = rlx.matmul(%r, %y) : tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
"""


def test_regions_are_lowered_inside() -> None:
    from rlx.ir.text.modules import parse_module, print_op
    from rlx.passes.runner import run_on_module

    module = parse_module(_REGION)
    run_on_module(module, "builtin.module(rlx-precision)")
    text = print_op(module)
    for line in (
        "%3 = scf.if %arg1 -> (tensor<4x4xf32>) {",
        "%7 = rlx.matmul(%1, %0) : tensor<4x4xf16>",
        "%9 = rlx.cast(%8) {dtype = f32} : (tensor<4x4xf16>) -> tensor<4x4xf32>",
        "scf.yield %9 : tensor<4x4xf32>",
        "scf.yield %2 : tensor<4x4xf32>",
        "%5 = rlx.matmul(%4, %1) : tensor<4x4xf16>",
    ):
        assert line in text, text
    assert text.count("{dtype = f16}") == 2  # x, and the result of the branch


def test_states_keep_their_dtype() -> None:
    g = rlx.Graph("counter")
    x, w, state = g.input("x", (2, 4)), g.param("w", (4, 4)), g.state("s", (2, 4), init=1)
    new = state + x @ w
    g.update(state, new)
    g.set_outputs({"y": new @ w})
    result = lowered(g)
    assert signature(result) == signature(g)
    assert result.results[-1].updates == "s"


def test_symbolic_sizes() -> None:
    g = rlx.Graph("symbolic")
    x, w = g.input("x", ("batch", "seq", 8)), g.param("w", (8, 8))
    g.set_outputs({"y": g.softmax(g.reshape(x @ w, ("batch*seq", 8)))})
    result = lowered(g)
    assert signature(result) == signature(g)
    assert dtypes_of(result, "reshape") == ["f16"]


@settings(max_examples=60)
@given(graphs())
def test_random_graphs(graph: Any) -> None:
    for policy in POLICIES[:3]:
        result = lowered(graph, policy)
        assert signature(result) == signature(graph)
        check_casts(graph, result)
        assert untouched(result) <= untouched(graph)


# --- compiled -------------------------------------------------------------------------------------


def test_a_session_computes_in_f16() -> None:
    module = rlx.GraphModule.hir("mlp")
    x = module.input("x", (4, 32))
    h = module.linear(x, module.param("w1", (32, 64)), module.param("b1", (64,)), activation="relu")
    module.set_outputs({"y": module.softmax(module.linear(h, module.param("w2", (64, 8))), axis=-1)})
    graph = module.as_hir
    assert graph is not None
    values = arrays(graph)
    params = {a.name: values[a.name] for a in graph.params}
    expected = rlx.evaluate(graph, values)[0]
    session = rlx.Session("cpu", threads=1)
    compiled = session.compile(module, params=params, precision="f16", cache=False)
    (got,) = compiled.run({"x": values["x"]})
    assert got.dtype == np.float32
    lower = lowered(module.into_graph())
    # The compiled program gives the evaluator's results for the lowered graph, near the f32 results.
    np.testing.assert_allclose(got, rlx.evaluate(lower, values)[0], rtol=4e-3, atol=1e-4)
    np.testing.assert_allclose(got, expected, rtol=0.03, atol=1e-3)
    assert not np.allclose(got, expected, rtol=1e-6, atol=1e-8)


def test_a_product_with_a_wide_activation_is_lowered_without_it() -> None:
    g: Any = rlx.Graph("f")
    x, w, b = g.input("x", (2, 3)), g.param("w", (3, 4)), g.param("b", (4,))
    g.set_outputs([g.exp(x @ w + b)])
    lowered = rlx.passes.run(g, "rlx-fuse,rlx-precision{to=f16}")
    dtypes = {op.name: str(op.results[0].type) for op in collect(lowered.module) if op.name != "rlx.cast"}
    assert "xf16" in dtypes["rlx.matmul"] and "xf32" in dtypes["rlx.activation"]
