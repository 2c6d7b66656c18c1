"""Requantisers: numbers and scales at their ends, and scales that are powers of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ops.quantization.requantize import fixed_point
from rlx.targets.fpga.estimate import total
from rlx.targets.fpga.parts import DEFAULT_PART, PARTS
from tests.drawing import drawn
from tests.packages import needs_package
from tests.targets.fpga.simulated import Hardware, check, design_of

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]


@drawn("mode", ["double", "single", "short"])
def test_requantisation_at_its_ends(mode: str) -> None:
    """Numbers and scales at the limits of their ranges, left and right shifts, for each channel and as constants."""
    ends = np.array([-(1 << 31), (1 << 31) - 1, -1, 0, 1, 1 << 30, -(1 << 30), 12345, -54321], np.int32)
    most = {"short": 14}.get(mode, 30)
    shifts = np.array([-31, -20, -8, -1, 0, 1, 5, most - 1, most], np.int32)
    largest = (1 << (15 if mode == "short" else 31)) - 1
    multipliers = np.array([largest, largest // 2 + 1, -largest, 0, 1, 77, largest, -3, -largest - 1], np.int32)
    for dtype, zero in (("i8", -128), ("u8", 3), ("i16", 30000), ("i32", -5)):
        g: Any = rlx.Graph("ends")
        x = g.input("x", (9, 9), "i32")
        common = {"mode": mode, "zero_point": zero, "dtype": dtype}
        each = g.requantize(x, g.constant(multipliers), g.constant(shifts), **common)
        one = g.requantize(x, g.constant(multipliers[1]), g.constant(shifts[2]), **common)
        left = g.requantize(x, g.constant(multipliers[5]), g.constant(shifts[6]), **common)
        computed = g.requantize(x, g.input("m", (9,), "i32"), g.input("s", (9,), "i32"), **common)
        g.set_outputs({"each": each, "one": one, "left": left, "computed": computed})
        inputs = {"x": np.array([np.roll(ends, i) for i in range(9)]), "m": multipliers, "s": shifts}
        for preset in ("precision", "size"):
            hardware = Hardware(g, design_of(g, preset=preset, part="xc7"))
            for found, wanted in zip(hardware.given(hardware.run([inputs])), hardware.wanted([inputs]), strict=True):
                np.testing.assert_array_equal(found, wanted, f"{mode} {dtype} {preset}")


@pytest.mark.parametrize("mode", ["double", "single", "short"])
@pytest.mark.parametrize("each", [False, True])
def test_scales_that_are_powers_of_two_are_shifts(each: bool, mode: str) -> None:
    """One scale, or one for each channel: no product is left. Signs, ties and both ends of the sums are exact."""
    ends = [-(1 << 31), (1 << 31) - 1, -1, 0, 1, 127, 128, -128, -129, 192, -192, 64, -64, 1 << 20, -(1 << 20), 12345]
    x = np.array([np.roll(ends, i) for i in range(4)], np.int32).T
    counts = {}
    for name, factor in (("shifts", 1.0), ("products", 1.1)):
        g: Any = rlx.Graph("powers")
        scales = factor * 2.0 ** -np.array([6.0, 7.0, 8.0, 7.0] if each else 7.0)
        multiplier, shift = fixed_point(scales, mode)
        y = g.requantize(
            g.input("x", x.shape, "i32"), g.constant(multiplier), g.constant(shift), mode=mode, zero_point=-3
        )
        g.set_outputs({"y": y})
        counts[name] = total(check(g, [{"x": x}]).modules, PARTS[DEFAULT_PART]).multipliers
    assert counts["shifts"] == 0 < counts["products"]
