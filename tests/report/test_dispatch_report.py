"""How a target executes ops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import rlx
from rlx.ir.op import registry
from rlx.report.dispatch import DispatchReport, analyse_dispatch
from rlx.targets.linalg import claimed_ops
from tests.conformance.cases import cases, op_names

# The claims of a small target.
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
    """An op is reported as unsupported exactly if legalising leaves something that the lowering does not claim."""
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
        assert left <= {*row.into, *(other.name for other in report.rows)}  # its regions have ops of their own
