"""Policies for the composite ops that a target lowers with its own rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op import opview
from rlx.passes.rewrite import collect
from rlx.targets.compilation import Compilation
from rlx.targets.dispatch import KernelDispatchPolicy
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of


def model() -> Any:
    """A softmax, which both CPU lowerings have a rule for, and a norm, which neither has a rule for."""
    g = rlx.Graph("model")
    x, scale = g.input("x", (3, 8)), g.input("scale", (8,))
    g.set_outputs({"y": g.softmax(x, -1), "z": g.rms_norm(x, scale)})
    return g


def ops(policy: Any, target: str = "cpu") -> Counter[str]:
    lir = Compilation(model(), target_of(target), CompileOptions(dispatch=policy, opt=0)).lir
    return Counter(opview.name_of(op) for op in collect(lir.module))


def test_claimed_ops_stay_by_default() -> None:
    assert ops(None)["softmax"] == 1 and ops("prefer-native") == ops(None)
    assert not ops(None)["rms_norm"]


@pytest.mark.parametrize("policy", ["force-common", "softmax=common", "prefer-native,softmax=common"])
def test_ops_are_decomposed_although_they_are_claimed(policy: str) -> None:
    assert not ops(policy)["softmax"] and ops(policy)["reduce"] >= 2


def test_one_op_stays_where_all_others_are_decomposed() -> None:
    assert ops("force-common,softmax=native") == ops(None)


@pytest.mark.parametrize("policy", ["force-native", "rms_norm=native"])
def test_what_has_no_rule_is_refused_with_the_line(policy: str) -> None:
    with pytest.raises(rlx.UnsupportedError, match=r"test_dispatch_policy\.py:24: rlx.rms_norm"):
        ops(policy)
    assert ops(f"{policy},rms_norm=common")["softmax"] == 1


@pytest.mark.parametrize(
    "policy", ["prefer-native", "force-common", "force-common,softmax=native", "force-native,rms_norm=common"]
)
def test_results_are_the_same(policy: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    inputs = {"x": x, "scale": x[0]}
    expected = rlx.evaluate(model(), inputs)
    results = rlx.Session("cpu").compile(model(), dispatch=policy).run(inputs)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "policy", ["prefer-native", "force-common", "force-native", "softmax=common", "rms_norm=native"]
)
def test_the_report_says_what_is_done(policy: str) -> None:
    result = rlx.Pipeline("cpu", dispatch=policy, opt=0).compile(model())
    report = result.dispatch
    paths = {row.name: row.path for row in report.rows}
    if report.compile_ready:
        counts = Counter(opview.name_of(op) for op in collect(result.lir.module))
        assert {name for name, path in paths.items() if path == "native"} <= counts.keys()
        assert not {name for name, path in paths.items() if path == "decomposed"} & counts.keys()
    else:
        assert f"the dispatch policy '{KernelDispatchPolicy.parse(policy)}' keeps it" in str(report)
        with pytest.raises(rlx.UnsupportedError):
            _ = result.lir


@pytest.mark.parametrize(
    "text", ["prefer-native", "force-common,softmax=native", "force-native,rms_norm=common,softmax=native"]
)
def test_text_is_read_back(text: str) -> None:
    assert str(KernelDispatchPolicy.parse(text)) == text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("native", "'native' is not one of prefer-native, force-native, force-common"),
        ("softmax=fast", "the way of softmax is 'fast', expected one of native, common"),
        ("sofmax=common", "there is no op 'sofmax'.*softmax"),
        ("matmul=common", "matmul is a primitive"),
        ("prefer-native,softmax", "expected OP=native or OP=common, got 'softmax'"),
        (3, "must be a KernelDispatchPolicy or its text, got 3"),
    ],
)
def test_mistakes_are_named(wrong: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.Session("cpu").compile(model(), dispatch=wrong)


@pytest.mark.parametrize("level", [-1, 4, True, 2.0, "2", None])
def test_levels_are_four(level: Any) -> None:
    with pytest.raises(rlx.Error, match="is not one of the levels 0, 1, 2, 3"):
        rlx.Session("cpu").compile(model(), opt=level)
