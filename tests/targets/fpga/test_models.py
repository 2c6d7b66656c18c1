"""Realistic models as hardware: results agree with the evaluator, and cycles with the prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.fpga.flags import PRESET_NAMES
from tests.drawing import drawn
from tests.packages import needs_package
from tests.targets.fpga.integer_graphs import inputs_of
from tests.targets.fpga.models import MODELS, tinyconv
from tests.targets.fpga.simulated import Hardware, check, design_of

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]


@drawn("preset", PRESET_NAMES)
@pytest.mark.parametrize("name", MODELS)
def test_hardware_is_the_evaluator(name: str, preset: str, seed: int) -> None:
    graph = tinyconv(size=12) if name == "tinyconv" else MODELS[name]()
    rng = np.random.default_rng(seed)
    check(graph, [inputs_of(graph, rng) for _ in range(2)], preset=preset)


@drawn("bits", [8, 4, 2])
@pytest.mark.parametrize(("preset", "most"), [("latency", 60_000), ("precision", 250_000), ("size", 270_000)])
def test_cycles_of_tinyconv(preset: str, most: int, bits: int, seed: int) -> None:
    graph = tinyconv(bits=bits)
    design = check(graph, [inputs_of(graph, np.random.default_rng(seed))], preset=preset)
    assert design.network.predicted_cycles <= most
    assert sum(m.bits for m in design.memories if m.name == "tinyconv__dense1__weights") == 7840 * bits


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("kind", ["max", "sum", "argmax"])
def test_a_result_that_waits_stops_no_elements(kind: str, length: int, seed: int) -> None:
    """A reduction whose result has two paths of different latency still accepts an element in every cycle."""
    g: Any = rlx.Graph("waits")
    x = g.input("x", (40, length), "i8")
    y = g.cast(g.argmax(x, axis=1) if kind == "argmax" else getattr(g, kind)(g.cast(x, "i32"), axes=(1,)), "i32")
    g.set_outputs({"near": g.abs(y - 5) + y, "far": g.rescale(y, 0.3, dtype="i32") + y})
    rng = np.random.default_rng(seed)
    tensors = [inputs_of(g, rng) for _ in range(4)]
    hardware = Hardware(g, check(g, tensors, part="xc7"))
    each = (hardware.run(tensors).cycles - hardware.run(tensors[:1]).cycles) / 3
    assert each <= 40 * length * 1.03


def test_streaming_layers_take_an_element_in_every_cycle(seed: int) -> None:
    """Arithmetic, requantisation, tables and non-overlapping pooling: no layer is slower than the input."""
    from tests.targets.fpga.models import Quantised

    q = Quantised("streaming")
    x = q.g.input("x", (1, 4, 8, 8), "i8")
    h = q.requantised(q.g.cast(x, "i32") * 3 + 5, (4, 1, 1), 9)
    entries = q.g.constant(np.arange(-128, 128)[::-1].astype(np.int8))
    h = q.g.gather(entries, q.g.cast(h, "i32") + 128)
    h = q.g.maximum(h, x)
    q.g.set_outputs({"y": q.g.sum(q.g.cast(q.g.pool(h, "max", kernel=2), "i32"), axes=(2, 3))})
    hardware = Hardware(q.g, design_of(q.g, preset="bandwidth"))
    rng = np.random.default_rng(seed)
    tensors = [inputs_of(q.g, rng) for _ in range(20)]
    many, one = hardware.run(tensors), hardware.run(tensors[:1])
    for found, expected in zip(hardware.given(many), hardware.wanted(tensors), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (many.cycles - one.cycles) / 19 <= 4 * 8 * 8 * 1.03
