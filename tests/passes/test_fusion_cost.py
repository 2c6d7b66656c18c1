"""The cost model of fusions: its counts, and that weighed fusions apply exactly where it predicts a gain."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.ir.op.costs import Costs
from rlx.passes import run
from rlx.passes.fusion import base
from rlx.passes.fusion.base import matches
from rlx.passes.fusion.fuse import FUSIONS
from rlx.report.fusion import analyse_fusion
from rlx.targets.registry import target_of

_WEIGHED = [fusion for fusion in FUSIONS.values() if fusion.weighed]
# Joining is worth it if kernels are expensive, and not if memory traffic is.
_KERNELS, _BYTES = Costs(1e12, 1e12, 1e-3), Costs(1e12, 1e3, 0.0)


def _three(rows: Any = 4, *, then: str = "") -> rlx.Graph:
    g = rlx.Graph("three")
    x = g.input("x", (rows, 8))
    results = [x @ g.param(f"w{i}", (8, 16)) for i in range(3)]
    g.set_outputs([g.relu(y) for y in results] if then == "relu" else results)
    return g


def _estimate(graph: rlx.Graph, costs: Costs) -> Any:
    ((title, _, said),) = matches(graph.module, _WEIGHED, costs)
    return title, said


def test_what_is_counted() -> None:
    title, said = _estimate(_three(), Costs(flops=1e3, bytes=1e6, kernel_s=0.5))
    flops, of_product = 2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16)
    assert title == "shared-input-matmul"
    assert (said.before.kernels, said.before.bytes) == (3, 3 * of_product)
    assert said.before.seconds == pytest.approx(3 * (0.5 + flops / 1e3))
    part, joined = (
        2 * 4 * 4 * 16,
        4 * (4 * 8 + 8 * 48 + 4 * 48),
    )  # each part is copied; joining the weights is free
    assert (said.after.kernels, said.after.bytes) == (4, joined + 3 * part)
    assert said.after.seconds == pytest.approx(0.5 + 3 * flops / 1e3 + 3 * (0.5 + part / 1e6))
    assert not said.pays and str(said).endswith("3 kernels become 4, 0.00128 MB more moved")


def test_parts_that_elementwise_ops_read_are_not_copied() -> None:
    _, said = _estimate(_three(then="relu"), _KERNELS)
    assert said.after.kernels == 1 and said.pays


def test_sizes_may_be_symbols() -> None:
    _, said = _estimate(_three("n"), _BYTES)
    assert said.before.seconds > 0


@pytest.mark.parametrize("costs", [_KERNELS, _BYTES, None], ids=["kernels", "bytes", "unknown"])
def test_what_pays_is_made(costs: Costs | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "fusions_of_target", lambda name: (tuple(FUSIONS), costs))
    graph = _three(then="" if costs is _BYTES else "relu")
    fused = run(graph, "rlx-fuse{target=cpu}")
    made = costs is not _BYTES
    assert str(fused).count("rlx.matmul") + str(fused).count("rlx.fused_matmul") == (1 if made else 3)
    report = analyse_fusion(graph, "rlx-fuse{target=cpu}")
    report.assert_clean()  # an unprofitable fusion is not a miss
    assert report.off["shared-input-matmul"] == (not made) and len(report.declined) == (not made)
    if not made:
        assert "it does not pay there" in str(report) and "kernels become" in str(report)
        assert "kernels become" in report.html_body()
    assert str(run(graph, "rlx-fuse")) == str(run(graph, "rlx-fuse-matmul-bias-act,rlx-fuse-shared-input-matmul"))


@pytest.mark.parametrize("name", ["cpu", "xla"])
def test_no_measured_product_of_these_sizes_is_joined(name: str) -> None:
    """None of the joined products in docs/performance.md is faster."""
    costs = target_of(name).costs
    assert costs is not None
    for rows, width in ((128, 768), (16, 384), (1, 768), (256, 64)):
        g = rlx.Graph("measured")
        x = g.input("x", (rows, width))
        g.set_outputs([x @ g.param(f"w{i}", (width, width)) for i in range(3)])
        assert not _estimate(g, costs)[1].pays
