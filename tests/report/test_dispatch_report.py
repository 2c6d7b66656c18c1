"""Which way ops go on a target, and what stayed unfused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir import registry
from rlx.lower.linalg import claimed_ops
from rlx.report.dispatch import DispatchReport, analyse_dispatch
from rlx.report.fusion import MissReason, analyse_fusion
from tests.conformance.cases import cases, op_names

# What a small target might claim.
CLAIMED = frozenset({"matmul", "binary", "activation", "constant", "reshape", "reduce", "cast"})


def model() -> Any:
    g = rlx.Graph("model")
    x, w, b = g.input("x", (2, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    h = g.fused_matmul_bias_act(x, w, b, activation="relu")
    h = g.fused_matmul_bias_act(h, w, b)
    h = g.rms_norm(h, b)
    g.set_outputs({"y": g.matmul(h, w), "z": g.transpose(h)})
    return g


def row(report: DispatchReport, name: str) -> Any:
    (found,) = (r for r in report.rows if r.name == name)
    return found


# --- dispatch -------------------------------------------------------------------------------------


def test_paths_and_counts() -> None:
    report = analyse_dispatch(model(), CLAIMED | {"transpose"}, target="small")
    assert report.compile_ready
    assert row(report, "matmul").path == "native" and row(report, "matmul").into == {"matmul": 1}
    fused = row(report, "fused_matmul_bias_act")
    assert (fused.path, fused.count) == ("decomposed", 2)
    assert fused.into == Counter(matmul=2, binary=2, activation=1)
    assert row(report, "rms_norm").path == "decomposed"
    assert (report.count("native"), report.count("decomposed"), report.count("unsupported")) == (2, 3, 0)
    assert str(report).startswith("dispatch for small: 2 native, 3 decomposed; ready to compile\n")
    assert "2 matmul, 2 binary, 1 activation" in str(report)


def test_what_is_not_supported_is_named_with_its_line() -> None:
    g = model()
    report = analyse_dispatch(g, CLAIMED - {"reduce"}, target="smaller")
    assert not report.compile_ready
    transpose, norm = row(report, "transpose"), row(report, "rms_norm")
    assert transpose.reason == "no lowering, and it is a primitive"
    assert transpose.locations[0].endswith(f"test_dispatch_report.py:{model.__code__.co_firstlineno + 6}")
    assert norm.path == "unsupported" and norm.reason == "becomes reduce, without a lowering"
    assert report.rows[0].path == report.rows[1].path == "unsupported"
    text = str(report)
    assert "cannot compile" in text and f"test_dispatch_report.py:{model.__code__.co_firstlineno + 6}" in text


def test_claims_win_over_decompositions() -> None:
    report = analyse_dispatch(model(), CLAIMED | {"transpose", "rms_norm"}, target="norms")
    assert row(report, "rms_norm").path == "native"


def test_dtypes_that_a_target_lacks() -> None:
    g = rlx.Graph("wide")
    x, y = g.input("x", (4,), "f64"), g.input("y", (4,))
    g.set_outputs([x + x, y + y, g.softmax(g.cast(y, "f64"))])
    report = analyse_dispatch(g, claimed_ops(), target="short", unsupported_dtypes={"f64"})
    paths = {(r.name, r.path): (r.count, r.reason) for r in report.rows}
    assert paths["binary", "unsupported"] == (1, "no f64")
    assert paths["binary", "native"] == (1, "")
    assert paths["softmax", "unsupported"] == (1, "no f64")
    assert not report.compile_ready
    assert analyse_dispatch(g, claimed_ops()).compile_ready


def test_blocks_count_as_composite() -> None:
    g = rlx.Graph("block", stage="hir")
    x, w, b = g.input("x", (2, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    g.set_outputs(g.linear(x, w, b, activation="gelu"))
    report = analyse_dispatch(g, CLAIMED)
    assert row(report, "linear").into == Counter(matmul=1, binary=1, activation=1)
    assert analyse_dispatch(rlx.Graph("none"), CLAIMED).summary().endswith("no ops; ready to compile")


def test_the_report_does_not_change_the_graph() -> None:
    g = model()
    before = str(g)
    analyse_dispatch(g, CLAIMED)
    assert str(g) == before


@pytest.mark.parametrize("name", op_names())
def test_the_report_agrees_with_what_legalising_does(name: str) -> None:
    """An op is called unsupported exactly when something of it is left that the lowering does not claim."""
    from rlx.passes.rewrite import collect

    graph = cases(name)[0].graph()
    report = analyse_dispatch(graph, claimed_ops())
    lir = rlx.passes.run(graph, "rlx-lower-blocks,rlx-decompose{for=rlx-to-linalg}")
    left = {op.name[4:] for op in collect(lir.module)} - {"yield"}
    assert report.compile_ready == (left <= claimed_ops())
    row = next(row for row in report.rows if row.name == name)
    if name in claimed_ops():
        assert row.path == "native"
    elif registry.card(name).composite and report.compile_ready:
        assert row.path == "decomposed"
        assert left <= {*row.into, *(other.name for other in report.rows)}  # its regions hold ops of their own


# --- fusion ---------------------------------------------------------------------------------------


def misses(build: Any) -> list[tuple[str, MissReason]]:
    g = rlx.Graph("misses")
    tensors = {
        "x": g.input("x", (4, 8)),
        "w": g.param("w", (8, 8)),
        "b": g.param("b", (8,)),
        "scale": g.param("scale", (8,)),
    }
    g.set_outputs(build(g, **tensors))
    report = analyse_fusion(g, g)
    for miss in report.missed:
        assert "test_dispatch_report.py:" in miss.location
        assert miss.hint
    return [(miss.pattern, miss.reason) for miss in report.missed]


NOT_FUSED, MULTI = MissReason.NOT_FUSED, MissReason.MULTI_CONSUMER


def test_products_and_biases() -> None:
    assert misses(lambda g, x, w, b, scale: [x @ w + b]) == [("matmul + bias", NOT_FUSED)]
    assert misses(lambda g, x, w, b, scale: [b + x @ w]) == [("matmul + bias", NOT_FUSED)]
    assert misses(lambda g, x, w, b, scale: [g.gelu(x @ w + b)]) == [("matmul + bias + gelu", NOT_FUSED)]
    rank_two = misses(lambda g, x, w, b, scale: [x @ w + g.reshape(b, (1, 8))])
    assert rank_two == [("matmul + bias", MissReason.BIAS_RANK_TOO_HIGH)]
    no_bias = misses(lambda g, x, w, b, scale: [g.relu(x @ w)])
    assert no_bias == [("matmul + bias", MissReason.NON_ADD_BIAS_CONSUMER)]
    difference = misses(lambda g, x, w, b, scale: [x @ w - b])
    assert difference == [("matmul + bias", MissReason.NON_ADD_BIAS_CONSUMER)]

    def twice(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        y = x @ w
        return [y + b, g.softmax(y)]

    assert misses(twice) == [("matmul + bias", MULTI)]


def test_what_is_no_miss() -> None:
    def none(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        fused = g.fused_matmul_bias_act(x, w, b, activation="gelu")
        residual = fused @ w + x  # a residual is no bias
        heads = g.matmul(g.reshape(residual, (2, 2, 8)), g.reshape(residual, (2, 8, 2)))
        return [g.softmax(heads), g.layer_norm(g.exp(residual), scale, b), g.silu(scale) * b]

    assert misses(none) == []


def test_an_activation_outside_of_a_fused_product() -> None:
    found = misses(lambda g, x, w, b, scale: [g.gelu(g.fused_matmul_bias_act(x, w, b))])
    assert found == [("fused matmul + gelu", NOT_FUSED)]


def test_products_of_one_input() -> None:
    def three(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [x @ w, x @ g.transpose(w), g.fused_matmul_bias_act(x, w, b)]

    assert misses(three) == [("matmuls of one input", MissReason.SHARED_MATMUL_COUNT)]


def test_residuals_and_norms() -> None:
    once = misses(lambda g, x, w, b, scale: [g.layer_norm(x + g.tanh(x), scale, b)])
    assert once == [("residual + layer_norm", NOT_FUSED)]

    def pre_norm(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        total = x + g.tanh(x)
        return [g.rms_norm(total, scale), total]

    assert misses(pre_norm) == [("residual + rms_norm", MULTI)]
    assert misses(lambda g, x, w, b, scale: [g.layer_norm(x + b, scale, b)]) == []


def test_swiglu() -> None:
    def shared(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [g.silu(x @ w) * (x @ g.transpose(w))]

    def apart(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [(g.tanh(x) @ w) * g.silu(x @ w)]

    assert ("SwiGLU", NOT_FUSED) in misses(shared)
    assert ("SwiGLU", MissReason.SWIGLU_NOT_SHARED_INPUT) in misses(apart)


def test_counts_and_text() -> None:
    hir = rlx.Graph("net", stage="hir")
    x, w, b = hir.input("x", (4, 8)), hir.param("w", (8, 8)), hir.param("b", (8,))
    y = hir.linear(hir.linear(x, w, b, activation="relu"), w, b)
    hir.set_outputs(y)
    direct = rlx.passes.run(hir, "builtin.module(rlx-lower-blocks,rlx-fuse)")
    report = analyse_fusion(hir, direct)
    assert report.before == {"linear": 2} and report.after == report.fused == {"fused_matmul_bias_act": 2}
    report.assert_clean()
    assert str(report).startswith("fusion: 2 ops became 2; fused: 2 fused_matmul_bias_act; missed: 0\n")
    fusable = analyse_fusion(hir, rlx.passes.run(hir, "builtin.module(rlx-lower-blocks)"))
    assert not fusable.fused and len(fusable.missed) == 2
    with pytest.raises(rlx.Error, match="2 patterns stayed unfused"):
        fusable.assert_clean()
    assert "nothing is in the way" in str(fusable)


def test_same_misses_are_told_once() -> None:
    g = rlx.Graph("loop")
    h, w, b = g.input("x", (4, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    for _ in range(3):
        h = h @ w + b
    g.set_outputs(h)
    assert "missed 3 times test_dispatch_report.py:" in str(analyse_fusion(g, g))


def test_constants_as_biases() -> None:
    def constant(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [x @ w + np.ones(8, np.float32), x @ w + 1.0]

    assert ("matmul + bias", NOT_FUSED) in misses(constant)
