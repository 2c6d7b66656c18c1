"""Depthwise convolutions in C: windows at all borders of the image, and their instructions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.c import emulate, toolchain
from tests.targets.c.programs import program_of, run_sanitized

CASES = [
    # kernel, stride, padding, dilation, image, images, zero point
    ((3, 3), (1, 1), (1, 1), (1, 1), (5, 6), 1, -3),
    ((3, 3), (2, 2), (1, 1), (1, 1), (7, 6), 2, 127),
    ((5, 3), (2, 1), (4, 2), (1, 1), (6, 3), 1, -128),  # windows without any pixel
    ((3, 1), (1, 1), (0, 0), (1, 1), (4, 3), 1, 0),
    ((1, 4), (1, 3), (0, 1), (1, 1), (1, 9), 1, 5),
    ((3, 3), (1, 1), (2, 2), (2, 2), (7, 7), 1, 9),  # dilation: loops
    ((6, 6), (1, 1), (1, 1), (1, 1), (8, 8), 1, 9),  # too many taps: loops
    ((3, 3), (1, 1), (1, 1), (1, 1), (2, 2), 1, 9),  # larger than the image: loops
]


def depthwise(case: Any, bias: bool = True) -> tuple[rlx.Graph, np.ndarray]:
    """A depthwise convolution of 3 channels with an epilogue, and an image with the ends of the dtype."""
    kernel, stride, padding, dilation, size, images, zero = case
    rng = np.random.default_rng(sum(kernel) + 10 * images)
    g: Any = rlx.Graph("depthwise")
    x = g.input("x", (images, 3, *size), "i8")
    w = rng.choice(np.array([-128, -5, 0, 7, 127], np.int8), (3, 1, *kernel))
    start = g.constant(rng.integers(-9999, 9999, 3).astype(np.int32)) if bias else None
    sums = g.q_conv2d(
        x,
        g.constant(w),
        start,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=3,
        x_zero_point=zero,
        dtype="i32",
    )
    scales = np.array([0.001, 0.003, 0.002]).reshape(3, 1, 1)
    g.set_outputs({"sums": sums, "y": g.rescale(sums, scales, zero_point=4)})
    return g, rng.choice(np.array([-128, -1, 0, 3, 127], np.int8), (images, 3, *size))


@pytest.mark.parametrize("case", CASES)
def test_windows_at_borders(case: Any, tmp_path: Path) -> None:
    for bias in (True, False):
        graph, x = depthwise(case, bias)
        expected = rlx.evaluate(graph, {"x": x})
        for got, wanted in zip(rlx.Session("c").compile(graph, cache=False).run({"x": x}), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
    if shutil.which("cc"):
        (tmp_path / "sanitized").mkdir()
        run_sanitized(program_of(graph), tmp_path / "sanitized", {"x": x}, expected)


@pytest.mark.parametrize("compiler", ["clang", "gcc"])
def test_instructions_of_a_depthwise_convolution(compiler: str) -> None:
    pytest.importorskip("unicorn")
    if compiler == "gcc" and shutil.which(toolchain.ARM_GCC) is None:
        pytest.skip("needs GCC for Arm")
    rng = np.random.default_rng(0)
    g: Any = rlx.Graph("depthwise")
    w = rng.integers(-127, 128, (16, 1, 3, 3)).astype(np.int8)
    bias = g.constant(np.arange(16, dtype=np.int32))
    sums = g.q_conv2d(
        g.input("x", (1, 16, 8, 8), "i8"), g.constant(w), bias, padding=1, groups=16, x_zero_point=-3, dtype="i32"
    )
    g.set_outputs([g.rescale(sums, rng.uniform(0.001, 0.002, (16, 1, 1)))])
    program = program_of(g)
    x = rng.integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
    run = emulate.EmulatedMachine(emulate.build(program, compiler=compiler), program).run([x])
    np.testing.assert_array_equal(run.results[0], rlx.evaluate(g, {"x": x})[0])
    assert run.instructions < 7.5 * 16 * 64 * 9  # CMSIS-NN, by GCC 12: 8.9
