"""Kernel times, and the ops of each kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dims.dim import evaluate
from rlx.ir.graph.listing import inspect_graph
from rlx.report.profile import ProfileReport
from rlx.report.roofline import MachineLimits, OpWork, this_machine
from rlx.runtime import profiling
from rlx.targets.protocol import KernelEvent, Measurement
from tests.drawing import drawn

pytestmark = pytest.mark.usefixtures("machine")
ROOFLINE = MachineLimits(1e9, 1e9)
INPUTS = {"x": np.ones((3, 8), np.float32)}
PARAMS = {"w": np.ones((8, 8), np.float32)}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the measurement of this machine."""
    monkeypatch.setattr(profiling, "this_machine", lambda threads: ROOFLINE)


def layers() -> Any:
    """Return two layers that are one kernel, a loop over a third, and an output that is not a float."""
    g: Any = rlx.Graph("layers")
    h, w = g.input("x", ("b", 8)), g.param("w", (8, 8))
    for i in range(2):
        with g.named(f"layer{i}"):
            h = g.tanh(h @ w)
    with g.named("loop"):
        h = g.scan(lambda c, _: (g.tanh(c @ w), None), h, length=5)[0]
    g.set_outputs({"y": g.softmax(h), "n": g.cast(h, rlx.i32)})
    return g


@drawn("target", ["cpu", "xla"])
def test_kernels_are_those_of_the_ops(target: str) -> None:
    if target == "xla":
        pytest.importorskip("jax")
    result = rlx.Pipeline(target=target, kernels="off").compile(layers())
    report = result.profile(INPUTS, PARAMS, runs=3, threads=1)
    lir = inspect_graph(result.lir)
    assert report.listing == lir and report.sizes == {"b": 3} and report.measurement.runs == 3
    assert {e.run for e in report.measurement.events} == {0, 1, 2}
    products = {i for i, op in enumerate(lir.ops) if op.label in ("matmul", "dot_general")}
    computing = [k for k in report.kernels if not k.layout and products & set(k.ops)]
    assert products <= {i for k in computing for i in k.ops}, "every product is in a kernel"
    assert {k.calls for k in computing} == {1, 5}, "that in the loop is called in each step"
    flops = sum(k.work.flops for k in computing)
    assert flops >= 7 * 2 * 3 * 8 * 8 and all(k.seconds > 0 for k in computing)
    assert {"layer0", "layer1", "loop"} <= {line.scope for line in report.lines}
    assert sum(line.seconds for line in report.lines) == pytest.approx(report.seconds)
    here = Path(__file__).name
    assert str(report).startswith("profile of @layers for ") and here in str(report)


def test_a_loop_that_is_one_kernel_has_the_work_of_all_steps() -> None:
    report = rlx.Pipeline(kernels="off +scan").compile(layers()).profile(INPUTS, PARAMS, runs=3, threads=1)
    (loop,) = [k for k in report.kernels if "scan" in k.labels]
    assert loop.calls == 1 and loop.seconds > 0
    assert loop.work.flops >= 5 * 2 * 3 * 8 * 8


def test_what_is_not_given_is_drawn_and_what_is_wrong_is_said() -> None:
    result = rlx.Pipeline().compile(layers())
    for wrong, message in (
        ({"inputs": {"z": np.ones(2)}}, "no input or parameter 'z'"),
        ({"inputs": {"x": np.ones((3, 9), np.float32)}}, "9"),
        ({"inputs": INPUTS, "runs": 0}, "runs must be"),
        ({"inputs": INPUTS, "threads": 0}, "threads must be"),
        ({"inputs": {"x": np.ones((3, 8), np.float64)}}, "float64"),
    ):
        with pytest.raises(rlx.Error, match=message):
            result.profile(**wrong)  # type: ignore[arg-type]
    for target in ("cuda", "stablehlo"):
        with pytest.raises(rlx.Error, match=r"CPU|kind of file"):
            rlx.Pipeline(target=target).compile(layers()).profile()


def test_a_compiled_program_can_be_measured(tmp_path: Path) -> None:
    for _ in range(2):  # the second comes from the cache without LIR
        graph = layers()
        compiled = rlx.Session("cpu", threads=1).compile(graph, params=PARAMS, cache=tmp_path)
    graph.set_outputs({"z": graph.input("late", (2,))})
    with pytest.raises(rlx.Error, match="changed since it was compiled"):
        compiled.profile(INPUTS, runs=1)
    compiled = rlx.Session("cpu", threads=1).compile(layers(), params=PARAMS, cache=tmp_path)
    report = compiled.profile(INPUTS, runs=1)
    assert {"matmul", "tanh"} <= {label for k in report.kernels for label in k.labels}
    compiled.save(tmp_path / "program.rlxa")
    with pytest.raises(rlx.Error, match="from a file"):
        rlx.load(tmp_path / "program.rlxa").profile()
    with pytest.raises(rlx.Error, match="from a file"):
        rlx.load(tmp_path / "program.rlxa").cost()


def test_a_program_without_kernels_takes_no_time() -> None:
    g: Any = rlx.Graph("identity")
    g.set_outputs({"y": g.input("x", (4,))})
    profile = rlx.Session(threads=1).compile(g).profile(runs=2)
    assert (profile.kernels, profile.seconds, profile.least_seconds) == ((), 0, 0)
    assert "0 ms in 0 kernels" in profile.summary() and "<svg" in profile._repr_html_()


def test_a_report_of_known_times() -> None:
    """The numbers are those of the events, whatever their values."""
    g: Any = rlx.Graph("g")
    x = g.input("x", (4, 8))
    g.set_outputs([g.exp(x @ g.param("w", (8, 2))) + 1.0])
    listing = inspect_graph(g)
    events = []
    for run in range(3):
        start = 10.0 * run
        events += [
            KernelEvent("k", (0, 1), False, run, start, 1e-6 * (run + 1)),
            KernelEvent("pack", (0,), True, run, start + 1, 1e-6),
            KernelEvent("alloca", (), True, run, start + 2, 2e-6),
        ]
    report = ProfileReport("g", "cpu", Measurement("local-sync", 1, 3, 1.0, tuple(events)), listing, ROOFLINE)
    by_name = {k.kernel: k for k in report.kernels}
    # 2 * 4 * 8 * 2 for the product, plus the cost of exp. Reads x and w, and writes the operand of the sum.
    expected = OpWork(128 + report.listing.ops[1].cost.flops, 4 * (32 + 16 + 8))  # type: ignore[union-attr, arg-type]
    assert by_name["k"].work == expected and by_name["k"].seconds == 2e-6
    assert by_name["pack"].work == by_name["alloca"].work == OpWork(0, 0)
    assert report.seconds == pytest.approx(5e-6) and report.least_seconds == max(expected.flops, expected.bytes) / 1e9
    assert [k.title for k in report.kernels] == ["matmul + exp", "alloca", "layout for matmul"]
    trace = json.loads(report.trace_text())["traceEvents"]
    slices = [e for e in trace if e["ph"] == "X" and e["tid"] == 2]
    assert [e["dur"] for e in slices if e["name"] == "k"] == pytest.approx([1, 2, 3])
    assert [e["ts"] for e in slices] == pytest.approx([1e6 * (e.start) for e in events])
    assert slices[0]["args"]["ops"] == ["matmul", "exp"] and slices[0]["args"]["flops"] == expected.flops


def test_a_machine_is_measured() -> None:
    machine = this_machine(1)
    assert machine.flops > 1e8 and machine.bytes > 1e7 and "1 thread" in str(machine)
    assert MachineLimits(4e9, 2e9).seconds(OpWork(8, 2)) == 2e-9 and MachineLimits(4e9, 2e9).ridge == 2


def test_a_limit_is_raised_only_as_far_as_the_machine_allows() -> None:
    """Short calls and impossible rates do not raise a limit; a kernel that is somewhat faster than NumPy does."""
    machine = MachineLimits(1e11, 1e10, 1, 1e11, 1 << 20)
    raised = machine.raised([(OpWork(34848, 16580), 1e-7)])
    assert raised == machine, "a tenth of a microsecond is the resolution of the clock"
    raised = machine.raised([(OpWork(1_200_000, 1 << 17), 1e-5)])
    assert raised.flops == pytest.approx(1.2e11) and raised.cached_bytes == machine.cached_bytes
    raised = machine.raised([(OpWork(10_000_000, 1 << 20), 1e-6), (OpWork(0, 1 << 24), 1e-6)])
    assert (raised.flops, raised.bytes, raised.cached_bytes) == pytest.approx((1.5e11, 1.5e10, 1.5e11))


def test_a_mask_has_no_work_of_the_product_before_it() -> None:
    """IREE moves the reshape of a product into the select that follows, whose location then contains that of the product."""
    g: Any = rlx.Graph("attention")
    x, mask = g.input("x", (2, 16, 32)), g.input("mask", (2, 16), "i32")
    g.set_outputs([g.attention(x, x, x, mask, num_heads=4, head_dim=8, mask_kind="custom")])
    report = rlx.Pipeline(target="cpu", kernels="off").compile(g).profile(runs=3, threads=1)
    products = [i for i, op in enumerate(report.listing.ops) if op.label == "dot_general"]
    assert len(products) == 2
    flops = 2 * 2 * 4 * 16 * 16 * 8
    for kernel in report.kernels:
        if {"where", "ne"} & set(kernel.labels):
            assert not set(products) & set(kernel.ops) and kernel.work.flops < flops
    computing = [k for k in report.kernels if k.work.flops >= flops]
    assert sorted(i for k in computing for i in set(k.ops) & set(products)) == products


def test_the_cost_of_a_run_is_known_without_one() -> None:
    g: Any = rlx.Graph("product")
    g.set_outputs({"y": g.input("x", ("n", 8)) @ g.param("w", (8, 4))})
    cost = rlx.Session().compile(g, cache=False).cost()
    n = 16
    assert evaluate(cost.flops, {"n": n}) == 2 * n * 8 * 4
    assert evaluate(cost.bytes, {"n": n}) == 4 * (n * 8 + 8 * 4 + n * 4)


def test_a_product_counts_once() -> None:
    """A kernel that unfolds images for a convolution has none of its work."""
    g: Any = rlx.Graph("convolution")
    g.set_outputs({"y": g.conv(g.input("x", (2, 4, 8, 8)), g.param("w", (4, 4, 3, 3)), padding=1)})
    (conv,) = [i for i, op in enumerate(inspect_graph(g).ops) if op.label == "conv"]
    events = tuple(
        KernelEvent(kernel, (conv,), False, run, run + start, 1e-3)
        for run in range(2)
        for start, kernel in ((0.1, "unfold"), (0.2, "product"))
    )
    report = ProfileReport("convolution", "cpu", Measurement("test", 1, 2, 4e-3, events), inspect_graph(g), ROOFLINE)
    by_name = {k.kernel: k for k in report.kernels}
    assert by_name["product"].work.flops == 2 * 2 * 4 * 8 * 8 * 4 * 9 and by_name["unfold"].work.flops == 0
    assert by_name["unfold"].title == "layout for conv" and by_name["product"].title == "conv"
