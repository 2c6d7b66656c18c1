"""The fusion report: fusions, near misses and their reasons, from the patterns that fuse."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.passes.fusion.base import record_fusions
from rlx.report.fusion import FusionReport, analyse_fusion


def report_of(build: Any, passes: str = "rlx-fuse") -> FusionReport:
    g = rlx.Graph("report")
    tensors = {
        "x": g.input("x", (4, 8)),
        "w": g.param("w", (8, 8)),
        "b": g.param("b", (8,)),
        "scale": g.param("scale", (8,)),
    }
    g.set_outputs(build(g, **tensors))
    report = analyse_fusion(g, passes)
    for miss in report.missed:
        assert "test_fusion_report.py:" in miss.location
        assert miss.hint
    return report


def misses(build: Any) -> list[tuple[str, str]]:
    return [(miss.fusion, miss.reason) for miss in report_of(build).missed]


def fused(build: Any) -> dict[str, int]:
    report = report_of(build)
    assert not report.missed
    return dict(report.fused)


def test_products_and_biases() -> None:
    assert fused(lambda g, x, w, b, scale: [x @ w + b]) == {"matmul-bias-act": 1}
    assert fused(lambda g, x, w, b, scale: [b + x @ w]) == {"matmul-bias-act": 1}
    assert fused(lambda g, x, w, b, scale: [g.gelu(x @ w + b)]) == {"matmul-bias-act": 1}  # one, of two rewrites
    assert fused(lambda g, x, w, b, scale: [x @ w + g.reshape(b, (1, 8))]) == {"matmul-bias-act": 1}
    assert fused(lambda g, x, w, b, scale: [x @ w + np.ones(8, np.float32)]) == {"matmul-bias-act": 1}
    no_bias = misses(lambda g, x, w, b, scale: [g.relu(x @ w)])
    assert no_bias == [("matmul-bias-act", "no bias is added between the product and relu")]
    difference = misses(lambda g, x, w, b, scale: [x @ w - b])
    assert difference == [("matmul-bias-act", "the vector is subtracted from the product")]


def test_what_is_read_elsewhere() -> None:
    def twice(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        y = x @ w
        return [y + b, g.softmax(y)]

    def pre_norm(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        total = x + g.tanh(x)
        return [g.rms_norm(total, scale), total]

    assert misses(twice) == [("matmul-bias-act", "the product, or a value in between is read elsewhere too")]
    assert misses(pre_norm) == [("residual-rms-norm", "the sum is read elsewhere too")]


def test_what_is_no_miss() -> None:
    def none(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        heads = g.matmul(g.reshape(x, (2, 2, 8)), g.reshape(x, (2, 8, 2)))
        return [g.softmax(heads), g.layer_norm(g.exp(x), scale, b), g.silu(scale) * b]

    assert fused(none) == {}


def test_layers_that_have_nothing_to_fuse_are_clean() -> None:
    """A pre-norm layer without biases: the residual is used again, and the gate has no bias."""
    g: Any = rlx.GraphModule.hir("llama")
    x = g.input("x", (1, 4, 8))
    weights = {name: g.param(name, dims) for name, dims in (("up", (8, 16)), ("gate", (8, 16)), ("down", (16, 8)))}
    h = x + g.swiglu_ffn(g.rms_norm(x, g.param("a", (8,))), *weights.values())
    g.set_outputs([h + g.swiglu_ffn(g.rms_norm(h, g.param("b", (8,))), *weights.values())])
    for target in ("cpu", "xla"):
        rlx.Pipeline(target=target, assert_fusion_clean=True).compile(g)


def test_a_later_fusion_takes_the_place_of_an_earlier_one() -> None:
    def three(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [x @ w + b, x @ w + scale, x @ g.transpose(w)]

    assert fused(three) == {"shared-input-matmul": 1}


def test_weights_that_are_computed() -> None:
    def computed(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [g.tanh(x) @ g.tanh(w), g.tanh(x) @ w]

    reason = "2 products read one input, but the weights are not parameters: joined, they would be copied in every call"
    assert [m for m in misses(computed) if m[0] == "shared-input-matmul"] == []  # the tanhs are two ops
    shared = misses(lambda g, x, w, b, scale: [x @ g.tanh(w), x @ w])
    assert shared == [("shared-input-matmul", reason)]


def test_swiglu() -> None:
    def apart(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [(g.tanh(x) @ w) * g.silu(x @ w)]

    assert fused(lambda g, x, w, b, scale: [g.silu(x @ w) * (x @ g.transpose(w))]) == {"swiglu-dual-matmul": 1}
    assert ("swiglu-dual-matmul", "the two products read different inputs") in misses(apart)


def layers() -> Any:
    g = rlx.Graph("net", stage="hir")
    x, w, b = g.input("x", (4, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    g.set_outputs(g.linear(g.linear(x, w, b, activation="relu"), w, b))
    return g


def test_counts_and_text() -> None:
    report = analyse_fusion(layers())
    assert report.before == {"linear": 2} and report.after == {"fused_matmul_bias_act": 2}
    assert report.fused == {"matmul-bias-act": 2}
    report.assert_clean()
    assert str(report).startswith("fusion: 2 ops and blocks became 2; fused: 2 matmul-bias-act; missed: 0\n")
    line = layers.__code__.co_firstlineno + 3
    assert f"fused 2 times matmul-bias-act at test_fusion_report.py:{line}" in str(report)


def test_a_pipeline_without_fusions_misses_all() -> None:
    report = analyse_fusion(layers(), "rlx-lower-blocks")
    assert not report.fused and len(report.missed) == 2
    with pytest.raises(rlx.Error, match="2 fusions were missed"):
        report.assert_clean()
    assert "nothing is in the way" in str(report)


def test_the_same_is_said_once() -> None:
    g = rlx.Graph("loop")
    h, w, b = g.input("x", (4, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    for _ in range(3):
        h = h @ w - b
    g.set_outputs(h)
    assert "missed 3 times test_fusion_report.py:" in str(analyse_fusion(g))


def test_what_is_off_on_a_target_is_no_miss() -> None:
    def norm(g: Any, x: Any, w: Any, b: Any, scale: Any) -> Any:
        return [g.layer_norm(x + g.tanh(x), scale, b)]

    report = report_of(norm, "rlx-fuse{only=swiglu}")
    assert not report.missed and report.off == {"residual-layer-norm": 1}
    assert "residual-layer-norm: it does not pay there" in str(report)
    report.assert_clean()


def test_a_pipeline_may_insist_on_its_fusions() -> None:
    g = rlx.Graph("strict")
    x, w, b = g.input("x", (4, 8)), g.param("w", (8, 8)), g.param("b", (8,))
    g.set_outputs(x @ w - b)
    with pytest.raises(rlx.Error, match="negate it and add it, as a bias"):
        rlx.Pipeline(assert_fusion_clean=True).compile(g)
    assert rlx.Pipeline().compile(g).fusion.missed


def test_nothing_is_asked_when_nobody_listens() -> None:
    """Reasons are computed only for a listener, and a listener does not change the result."""
    g = layers()
    quiet = str(rlx.passes.run(g, "rlx-lower-blocks,rlx-fuse"))
    with record_fusions() as record:
        assert str(rlx.passes.run(g, "rlx-lower-blocks,rlx-fuse")) == quiet
    assert [made.fusion for made in record.fused] == ["matmul-bias-act"] * 2


def test_what_does_not_pay_is_in_one_table() -> None:
    """A fusion that is off and has estimates is one row for each of these; one without estimates has a row too."""
    report = FusionReport(
        *(Counter[str](), Counter[str](), Counter[str](), {}),
        missed=(),
        off=Counter({"shared-input-matmul": 2, "swiglu": 1}),
        declined=(("shared-input-matmul", "a.py:1", "slower"), ("shared-input-matmul", "a.py:2", "slower")),
    )
    body = report.html_body()
    table = body[body.index("Off on this target") :]
    assert table.count("<table") == 1 and table.count("shared-input-matmul") == 1
    assert re.findall(r">([^<>]+)</td>", table) == [
        "2",
        "shared-input-matmul",
        "slower",
        "a.py:1, a.py:2",
        "1",
        "swiglu",
    ]
