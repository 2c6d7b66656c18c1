"""Compare instructions of C programs with those of CMSIS-NN, for the same layers on an emulated Cortex-M4.

    git clone https://github.com/ARM-software/CMSIS-NN
    python -m tools.bench_cmsis_nn CMSIS-NN

Both compute the same 8-bit layer with requantisation of each channel, from the same weights. GCC for Arm compiles RLX's code
with `-O2`, and CMSIS-NN with the level of its own CMake files. CMSIS-NN has the layout NHWC and RLX NCHW, so inputs and results
are transposed outside of what is measured. The results are compared bit for bit. Needs `pip install 'rlx[cortexm]'`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.report.text import table
from rlx.targets.c import emulate, toolchain
from rlx.targets.c.host import SOURCE
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.tables import table_of

# The level that the CMake files of CMSIS-NN choose. With `-ffreestanding`, its `memcpy` of words would be calls.
THEIR_LEVEL = "-Ofast"
ZERO = -3  # the zero point of inputs
STRING_H = """
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
"""
FOLDERS = ("ConvolutionFunctions", "FullyConnectedFunctions", "NNSupportFunctions")


@dataclass(frozen=True)
class Layer:
    """A layer of both.

    Attributes:
        name: Its name.
        graph: The graph for RLX.
        call: The statement that calls CMSIS-NN.
        weights: Its weights as CMSIS-NN stores them.
        products: The number of multiplications.
    """

    name: str
    graph: rlx.Graph
    call: str
    weights: np.ndarray
    products: int


def _random(shape: Sequence[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def _finished(g: Any, sums: Any, outputs: int, shape: tuple[int, ...]) -> rlx.Graph:
    scales = np.random.default_rng(outputs).uniform(0.0005, 0.002, shape)
    g.set_outputs({"y": g.rescale(sums, scales, zero_point=-128)})
    return g


def dense(depth: int, outputs: int) -> Layer:
    """A fully connected layer."""
    g: Any = rlx.Graph("layer")
    w = _random((depth, outputs), depth)
    bias = g.constant(np.arange(outputs, dtype=np.int32))
    sums = g.q_matmul(g.input("x", (1, depth), "i8"), g.constant(w), bias, x_zero_point=ZERO, dtype="i32")
    call = f"""
    const cmsis_nn_fc_params p = {{{-ZERO}, 0, -128, {{-128, 127}}}};
    const cmsis_nn_dims in = {{1, 1, 1, {depth}}}, filter = {{{depth}, 1, 1, {outputs}}}, out = {{1, 1, 1, {outputs}}};
    const cmsis_nn_dims b = {{1, 1, 1, {outputs}}};
    (void)arm_fully_connected_per_channel_s8(&context, &p, &quantization, &in, inputs[0], &filter, weights, &b, bias, &out,
                                             outputs[0]);"""
    return Layer(f"dense, {depth} to {outputs}", _finished(g, sums, outputs, (outputs,)), call, w.T, depth * outputs)


def convolution(channels: int, outputs: int, kernel: int, size: int, *, depthwise: bool = False) -> Layer:
    """A convolution with the same padding on all sides."""
    g: Any = rlx.Graph("layer")
    w = _random((outputs, 1 if depthwise else channels, kernel, kernel), channels)
    bias, pad = g.constant(np.arange(outputs, dtype=np.int32)), kernel // 2
    x = g.input("x", (1, channels, size, size), "i8")
    groups = channels if depthwise else 1
    sums = g.q_conv2d(x, g.constant(w), bias, padding=pad, groups=groups, x_zero_point=ZERO, dtype="i32")
    filter_ = f"{{1, {kernel}, {kernel}, {outputs}}}" if depthwise else f"{{{outputs}, {kernel}, {kernel}, {channels}}}"
    kind = "depthwise_conv" if depthwise else "convolve"
    multiple = "1, " if depthwise else ""
    call = f"""
    const cmsis_nn_{"dw_" if depthwise else ""}conv_params p = {{{-ZERO}, -128, {multiple}{{1, 1}}, {{{pad}, {pad}}}, {{1, 1}},
                                                               {{-128, 127}}}};
    const cmsis_nn_dims in = {{1, {size}, {size}, {channels}}}, filter = {filter_}, out = {{1, {size}, {size}, {outputs}}};
    const cmsis_nn_dims b = {{1, 1, 1, {outputs}}};
    (void)arm_{kind}_wrapper_s8(&context, &p, &quantization, &in, inputs[0], &filter, weights, &b, bias, &out, outputs[0]);"""
    order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
    name = f"{'depthwise, ' if depthwise else ''}{kernel}x{kernel}, {channels} to {outputs}"
    products = size * size * w.size
    return Layer(name, _finished(g, sums, outputs, (outputs, 1, 1)), call, w.transpose(order), products)


LAYERS: tuple[Callable[[], Layer], ...] = (
    lambda: dense(64, 32),
    lambda: dense(256, 64),
    lambda: convolution(16, 16, 3, 8),
    lambda: convolution(32, 32, 3, 8),
    lambda: convolution(16, 16, 1, 8),
    lambda: convolution(32, 32, 1, 8),
    lambda: convolution(64, 64, 1, 8),
    lambda: convolution(16, 16, 3, 8, depthwise=True),
)


def _harness(layer: Layer, program: CSource) -> str:
    """Return C with the interface of RLX's harness that calls CMSIS-NN."""
    ops = [op for group in program.groups for op in group.ops]
    (final,) = (op for op in ops if op.name == "rlx.requantize")
    factors = [
        np.broadcast_to(constant_of(v).reshape(-1), layer.graph.outputs[0].shape.static[1]) for v in final.operands[1:3]
    ]
    outputs = factors[0].size
    arrays = {
        "weights": (layer.weights.reshape(-1), "const int8_t"),
        "bias": (np.arange(outputs, dtype=np.int32), "const int32_t"),
        "multiplier": (factors[0].astype(np.int32), "int32_t"),
        "shift": (factors[1].astype(np.int32), "int32_t"),
    }
    lines = ['#include "arm_nnfunctions.h"', "#include <stddef.h>", "static int8_t scratch[1 << 16];"]
    for name, (array, kind) in arrays.items():
        stored = table_of(name, array, kind, "")
        lines += [f"static {kind} {stored.declarator} = {{", *stored.body, "};"]
    return "\n".join(
        [
            *lines,
            "const size_t rlx_layout[] = {4};",
            "void rlx_init(void *state);\nvoid rlx_init(void *state) { (void)state; }",
            "void rlx_call(void *, const void *const *, const void *const *, void *const *);",
            "void rlx_call(void *state, const void *const *params, const void *const *inputs, void *const *outputs)\n{",
            "    (void)state; (void)params;",
            "    const cmsis_nn_context context = {scratch, sizeof scratch};",
            f"    const cmsis_nn_per_channel_quant_params quantization = {{multiplier, shift}};{layer.call}",
            "}",
            "",
        ]
    )


def archive(checkout: Path, folder: Path) -> Path:
    """Compile the 8-bit functions of CMSIS-NN for a Cortex-M4."""
    every = [p for f in FOLDERS for p in sorted((checkout / "Source" / f).glob("*.c"))]
    sources = [p for p in every if "_s8" in p.name or "q7" in p.name]
    if not sources:
        sys.exit(f"error: {checkout} is not a checkout of CMSIS-NN: it has no Source/{FOLDERS[0]}")
    flags = [THEIR_LEVEL, "-ffunction-sections", f"-I{checkout / 'Include'}", f"-I{folder}"]
    for source in sources:
        toolchain.build([*toolchain.for_core("m4", "gcc"), *flags, "-c", str(source), "-o", f"{source.stem}.o"], folder)
    made = folder / "cmsis_nn.a"
    toolchain.build(["arm-none-eabi-ar", "rcs", made.name, *(f"{p.stem}.o" for p in sources)], folder)
    return made


def theirs(layer: Layer, program: CSource, checkout: Path, folder: Path) -> emulate.Image:
    """Build the layer with CMSIS-NN."""
    command = toolchain.for_core("m4", "gcc")
    (folder / SOURCE).write_text(_harness(layer, program))
    for name in (SOURCE, "runtime.c"):
        include = [f"-I{checkout / 'Include'}", "-I."]
        flags = ["-O2", "-ffreestanding", *include, *(["-fno-builtin"] if name == "runtime.c" else [])]
        toolchain.build([*command, *flags, "-c", name, "-o", f"{name}.o"], folder)
    link = ["-nostdlib", f"{SOURCE}.o", "cmsis_nn.a", "runtime.c.o", "-lgcc"]
    toolchain.build([*command, *link, "-T", "link.ld", "-o", "image.elf"], folder)
    return emulate.Image("m4", (folder / "image.elf").read_bytes(), 0, 0)


def measured(layer: Layer, checkout: Path, folder: Path) -> tuple[int, int]:
    """Return the instructions of RLX and of CMSIS-NN, whose results are equal.

    Raises:
        AssertionError: They differ.
    """
    program = CSource(rlx.Pipeline(target="cortexm").compile(layer.graph).lir)
    (entry,) = layer.graph.inputs
    x = _random(entry.shape.static, 1)
    own = emulate.EmulatedMachine(emulate.build(program, "m4", compiler="gcc"), program).run([x])
    last = np.moveaxis(x, 1, -1)
    other = emulate.EmulatedMachine(theirs(layer, program, checkout, folder), program).run([np.ascontiguousarray(last)])
    result = own.results[0]
    np.testing.assert_array_equal(
        np.moveaxis(result, 1, -1).reshape(-1), other.results[0].reshape(-1), err_msg=layer.name
    )
    return own.instructions, other.instructions


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare instructions of C programs with those of CMSIS-NN.")
    parser.add_argument("checkout", type=Path, help="a checkout of CMSIS-NN")
    checkout = parser.parse_args().checkout.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**emulate.runtime_files(), "string.h": STRING_H}.items():
            (folder / file).write_text(text)
        archive(checkout, folder)
        rows: list[list[str]] = []
        for make in LAYERS:
            layer = make()
            counts = measured(layer, checkout, folder)
            rows.append([layer.name, *(f"{count / layer.products:.2f}" for count in counts)])
    print("\n".join(table(rows, ["instructions per multiplication", "RLX", "CMSIS-NN"], right=range(1, 3))))


if __name__ == "__main__":
    main()
