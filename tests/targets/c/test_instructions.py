"""Instruction counts and stack use of products on an emulated Cortex-M4, and error detection of the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.support.errors import CompileError, Error, ExecutionError
from rlx.targets.c import emulate, toolchain
from rlx.targets.c.timing import instructions_of
from tests.drawing import drawn
from tests.targets.c.programs import program_of

pytestmark = pytest.mark.skipif(toolchain.zig() is None, reason="needs the package ziglang")
BOUNDS = {8: 127, 4: 7, 2: 1}


def product(depth: int, outputs: int, bits: int, mode: str) -> tuple[Any, int]:
    rng = np.random.default_rng(depth)
    g: Any = rlx.Graph("product")
    x = g.input("x", (1, depth), "i8")
    w = rng.integers(-BOUNDS[bits], BOUNDS[bits] + 1, (depth, outputs)).astype(np.int8)
    bias = rng.integers(-999, 999, outputs).astype(np.int32)
    sums = g.q_matmul(x, g.constant(w), g.constant(bias), x_zero_point=-3, dtype="i32")
    g.set_outputs({"y": g.rescale(sums, rng.uniform(0.003, 0.01, outputs), zero_point=-128, mode=mode)})
    return g, depth * outputs


def convolution(channels: int, outputs: int, kernel: int, size: int, bits: int, mode: str) -> tuple[Any, int]:
    rng = np.random.default_rng(channels)
    g: Any = rlx.Graph("convolution")
    x = g.input("x", (1, channels, size, size), "i8")
    w = rng.integers(-BOUNDS[bits], BOUNDS[bits] + 1, (outputs, channels, kernel, kernel)).astype(np.int8)
    bias = rng.integers(-999, 999, outputs).astype(np.int32)
    sums = g.q_conv2d(x, g.constant(w), g.constant(bias), padding=kernel // 2, x_zero_point=-3, dtype="i32")
    scale = rng.uniform(0.003, 0.01, (outputs, 1, 1))
    g.set_outputs({"y": g.rescale(sums, scale, zero_point=-128, mode=mode)})
    return g, size * size * outputs * channels * kernel * kernel


def measured(graph: Any) -> emulate.EmulatedRun:
    """Run a graph on an emulated Cortex-M4, and check its results with the evaluator."""
    pytest.importorskip("unicorn")
    program = program_of(graph)
    (argument,) = graph.arguments
    x = np.random.default_rng(0).integers(-128, 128, argument.shape.static).astype(np.int8)
    run = emulate.EmulatedMachine(emulate.build(program), program).run([x])
    for one, other in zip(run.results, rlx.evaluate(graph, {"x": x}), strict=True):
        assert np.array_equal(one, other)
    return run


@pytest.mark.parametrize("mode", ["double", "single"])
@drawn("bits", [8, 4, 2])
@pytest.mark.parametrize(
    "layer",
    [
        lambda bits, mode: product(64, 32, bits, mode),
        lambda bits, mode: convolution(16, 16, 3, 8, bits, mode),
        lambda bits, mode: convolution(16, 16, 1, 8, bits, mode),
        lambda bits, mode: convolution(32, 32, 1, 8, bits, mode),
    ],
    ids=["dense 64x32", "3x3 16x16", "1x1 16x16", "1x1 32x32"],
)
def test_a_product_takes_two_instructions_at_most(layer: Any, bits: int, mode: str) -> None:
    graph, products = layer(bits, mode)
    run = measured(graph)
    assert run.instructions <= 2.0 * products
    assert run.stack <= 256


def test_instructions_are_counted() -> None:
    assert len(list(instructions_of(bytes.fromhex("00bf4ff000007047")))) == 3  # nop, mov.w, bx lr
    slow, fast = (measured(convolution(16, 16, 1, size, 8, "double")[0]).instructions for size in (8, 4))
    assert 3.8 < slow / fast < 4.1


def test_what_writes_beside_its_arrays_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("unicorn")
    program = program_of(product(8, 4, 8, "double")[0])
    original = emulate.files_of

    def broken(source: Any) -> dict[str, str]:
        files, name = original(source), source.files.source
        return {**files, name: files[name].replace("y[o + 3] =", "y[o + 4] =")}

    monkeypatch.setattr(emulate, "files_of", broken)
    machine = emulate.EmulatedMachine(emulate.build(program), program)
    with pytest.raises(ExecutionError, match="written beside"):
        machine.run([np.zeros((1, 8), np.int8)])


def test_missing_packages_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(product(8, 4, 8, "double")[0])
    with pytest.raises(CompileError, match="unknown core 'm1'"):
        emulate.build(program, "m1")
    image = emulate.build(program)
    monkeypatch.setitem(__import__("sys").modules, "unicorn", None)
    with pytest.raises(Error, match="the emulator needs the package 'unicorn'"):
        emulate.EmulatedMachine(image, program)
    monkeypatch.setattr(toolchain, "zig", lambda: None)
    with pytest.raises(CompileError, match="ziglang"):
        emulate.build(program)
