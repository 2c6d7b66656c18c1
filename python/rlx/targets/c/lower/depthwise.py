"""Depthwise convolutions of 8-bit integers with constant weights: windows inside of the image have no loops."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod

import numpy as np

from rlx import mlir
from rlx.ir.dtype import i8, i32
from rlx.ir.shape import Shape, shape_of
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.targets.c.lower.contraction import sum_bounds
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.kernel import IndexBody, KernelWriter
from rlx.targets.c.lower.layer import layer_of
from rlx.targets.c.lower.values import Affine, Index, Scalar

# Windows of more elements are loops, whose code is smaller.
_MOST_TAPS = 25


def depthwise_conv(
    kernel: KernelWriter,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    geometry: ConvGeometry,
    quantization: ProductQuantization,
) -> bool:
    """Write a convolution of each channel alone. Returns False, without writing, if the loops are not for it."""
    writer = _DepthwiseWriter(kernel, result, operands, geometry, quantization)
    if not writer.fits or 0 in result.static:
        return False
    kernel.nest(result.static, writer.run, ["n", "channel", "out_y", "out_x"])
    return True


class _DepthwiseWriter:
    """Writes the statements for one element of the result."""

    def __init__(
        self,
        kernel: KernelWriter,
        result: Shape,
        operands: QuantizedOperands[mlir.Value],
        geometry: ConvGeometry,
        quantization: ProductQuantization,
    ):
        self.kernel, self.operands, self.geometry, self.result = kernel, operands, geometry, result
        self.zeros = quantization.factors
        self.x_dims, self.sizes = shape_of(operands.x).static, shape_of(operands.w).static[2:]

    @property
    def pointer(self) -> str:
        """The name of the images."""
        return self.kernel.pointer(self.operands.x)

    @property
    def fits(self) -> bool:
        """Whether weights are constant, sums cannot overflow, and windows are small and fit into the image."""
        small = 1 < prod(self.sizes) <= _MOST_TAPS and shape_of(self.operands.w).static[1] == 1
        inside = all(k <= d for k, d in zip(self.sizes, self.x_dims[2:], strict=True))
        plain = set(self.geometry.dilation) == {1}
        return small and inside and plain and layer_of(self.kernel, self.operands, self.zeros, 0) is not None

    def run(self, body: IndexBody, index: Index) -> None:
        """Write the sum of a window, and what follows it."""
        w, kernel = body.writer, self.kernel
        array = constant_of(self.operands.w).astype(np.int64)
        start = np.zeros(len(array), np.int64) if self.operands.bias is None else constant_of(self.operands.bias)
        moved = start - self.zeros[0] * array.sum((1, 2, 3))
        weights = kernel.table(
            "weights", array.astype(np.int8), i8, f"{len(array)} windows of {prod(self.sizes)} weights"
        )
        inner = kernel.table(
            "bias", moved.astype(np.int32), i32, "Biases, from which the zero point of the input is removed."
        )
        channel = body.text_of(index[1])
        top, left, taps, total = (body.fresh(name) for name in ("top", "left", "taps", "sum"))
        for name, at, axis in ((top, index[2], 0), (left, index[3], 1)):
            pad = self.geometry.padding[2 * axis]
            text = body.text_of(at * self.geometry.stride[axis] + -pad)
            w.line(f"const int32_t {name} = {text};")
        w.line(f"const int8_t *const {taps} = {weights} + {body.text_of(index[1] * prod(self.sizes))};")
        place = str(body.place((index[0], index[1], Affine(), Affine()), self.x_dims))
        base = "" if place == "0" else f"{place} + "
        bounds = sum_bounds(kernel, self.operands, self.zeros, 0)
        w.line(f"int32_t {total};")
        if any(self.geometry.padding):
            last = [d - k for d, k in zip(self.x_dims[2:], self.sizes, strict=True)]
            test = f"({top} >= 0) && ({top} <= {last[0]}) && ({left} >= 0) && ({left} <= {last[1]})"
            with w.block(f"if ({test})"):
                self._window(body, (top, left, taps, total), base, f"{inner}[{channel}]")
            border = kernel.table("border_bias", np.asarray(start, np.int32), i32, "Biases at the border of the image.")
            with w.block("else"):
                self._border(body, (top, left, taps, total), base, f"{border}[{channel}]")
        else:
            self._window(body, (top, left, taps, total), base, f"{inner}[{channel}]")
        kernel.finish(body, index, Scalar(total, i32, *bounds))

    def _window(self, body: IndexBody, names: tuple[str, ...], base: str, bias: str) -> None:
        """The products of a window inside of the image."""
        (top, left, taps, total), width = names, self.x_dims[3]
        w, window = body.writer, body.fresh("window")
        w.line(f"const int8_t *const {window} = {self.pointer} + {base}{width} * {top} + {left};")
        w.line(f"{total} = {bias};")
        for ky in range(self.sizes[0]):
            for kx in range(self.sizes[1]):
                w.line(f"{total} += {window}[{ky * width + kx}] * {taps}[{ky * self.sizes[1] + kx}];")

    def _border(self, body: IndexBody, names: tuple[str, ...], base: str, bias: str) -> None:
        """The products of the part of a window that is inside of the image. A test is written only where it may fail."""
        (top, left, taps, total), (_, _, height, width), w = names, self.x_dims, body.writer
        corner, zero = body.fresh("corner"), self.zeros[0]
        w.line(f"const int32_t {corner} = {base}{width} * {top} + {left};")
        w.line(f"{total} = {bias};")
        rows, columns = (self._tests(name, axis, d) for axis, (name, d) in enumerate(((top, height), (left, width))))
        for ky, row in enumerate(rows):
            with w.block(f"if ({row})") if row else nullcontext():
                for kx, column in enumerate(columns):
                    pixel = f"{self.pointer}[{corner} + {ky * width + kx}]" if ky or kx else f"{self.pointer}[{corner}]"
                    pixel = f"({pixel} {'-' if zero > 0 else '+'} {abs(zero)})" if zero else pixel
                    with w.block(f"if ({column})") if column else nullcontext():
                        w.line(f"{total} += {pixel} * {taps}[{ky * self.sizes[1] + kx}];")

    def _tests(self, corner: str, axis: int, size: int) -> list[str]:
        """The condition that a row or a column of the window is inside of the image, for each; empty if it always is."""
        first = -self.geometry.padding[2 * axis]
        last = first + self.geometry.stride[axis] * (self.result.static[2 + axis] - 1)
        tests: list[str] = []
        for k in range(self.sizes[axis]):
            below = [f"({corner} >= {-k})"] if first + k < 0 else []
            beyond = [f"({corner} <= {size - 1 - k})"] if last + k > size - 1 else []
            tests.append(" && ".join([*below, *beyond]))
        return [test[1:-1] if test.count("(") == 1 else test for test in tests]
