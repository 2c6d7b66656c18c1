"""Contractions with one product at a time, for all shapes. `fused_matmul.py` and
`fused_conv.py` have faster loops for constant weights.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, f32, i8, i32, u32
from rlx.ir.shape import Shape, shape_of
from rlx.ops.contraction.contraction import DotDims
from rlx.ops.convolution.geometry import ConvGeometry, PoolGeometry
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.targets.c.lower.elementwise import bounds_of, within
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.kernel import IndexBody, KernelWriter
from rlx.targets.c.lower.reduce import taps
from rlx.targets.c.lower.rules import loops
from rlx.targets.c.lower.values import Affine, Index, Scalar, broadcast, computed_in, limits, scalar, stored_type


class Products:
    """A variable with a sum of products, in the dtype of the result.

    Where the sum might overflow, integers are multiplied as unsigned, and the sum is converted back at the end.

    Args:
        body: The statements to add to.
        dtype: The dtype of the result.
        bounds: The least and greatest possible partial sum.
        start: The initial value.
    """

    def __init__(self, body: IndexBody, dtype: DType, bounds: tuple[int, int], start: Scalar | None = None):
        self.dtype, self.bounds = dtype, bounds
        self.fits = dtype is f32 or within(bounds, computed_in(dtype))
        self.variable = body.fresh("sum")
        plain = stored_type(computed_in(dtype))
        self.kind = plain if self.fits or dtype is u32 else f"u{plain}"
        first = start.text if start is not None else ("0.0f" if dtype is f32 else "0")
        if start is not None and not self.fits:
            first = f"({self.kind}){start.term}"
        body.writer.line(f"{self.kind} {self.variable} = {first};")

    def add(self, body: IndexBody, a: Scalar, b: Scalar) -> None:
        """Add a product."""
        if self.fits or self.dtype is u32:
            body.writer.line(f"{self.variable} += {a.term} * {b.term};")
        else:
            body.writer.line(f"{self.variable} += ({self.kind}){a.term} * ({self.kind}){b.term};")

    def result(self, body: IndexBody) -> Scalar:
        """The sum, in the dtype."""
        if self.dtype in (f32, u32):
            return scalar(self.variable, self.dtype)
        if self.fits and within(self.bounds, self.dtype):
            return Scalar(self.variable, self.dtype, *self.bounds)
        return body.local(scalar(f"({stored_type(self.dtype)}){self.variable}", self.dtype, simple=False), "total")


def product_bounds(a: tuple[int, int], b: tuple[int, int], count: int) -> tuple[int, int]:
    """Return the least and greatest sum of a number of products."""
    one, other = Scalar("", i32, *a), Scalar("", i32, *b)
    low, high = bounds_of("mul", one, other)
    return min(0, low * count), max(0, high * count)


def minus(x: Scalar, zero_point: int) -> Scalar:
    """`x - zero_point`, which must fit."""
    if not zero_point:
        return x
    text = f"{x.term} {'-' if zero_point > 0 else '+'} {abs(zero_point)}"
    return Scalar(text, i32, x.low - zero_point, x.high - zero_point, False)


@loops("matmul")
def matmul(kernel: KernelWriter, result: Shape, lhs: mlir.Value, rhs: mlir.Value) -> None:
    left, right = shape_of(lhs), shape_of(rhs)
    depth = left.static[-1]
    bounds = product_bounds(kernel.bounds(lhs), kernel.bounds(rhs), depth)

    def run(body: IndexBody, index: Index) -> None:
        # For a vector, operand and result lack the axis of rows or columns.
        batch_rank = result.rank - (left.rank > 1) - (right.rank > 1)
        batch = index[:batch_rank]
        row = index[batch_rank : batch_rank + (left.rank > 1)]
        column = index[batch_rank + (left.rank > 1) :]
        total = Products(body, result.dtype, bounds)

        def inner(inside: IndexBody, k: Index) -> None:
            a = inside.element(lhs, (*_of_batch(batch, left.static[:-2]), *row, k[0]))
            b = inside.element(rhs, (*_of_batch(batch, right.static[:-2]), k[0], *column))
            total.add(inside, a, b)
            _noted(body, inside)

        kernel.nest([depth], inner, ["r"], body)
        kernel.finish(body, index, total.result(body))

    kernel.nest(result.static, run)


def _of_batch(batch: Index, dims: Any) -> Index:
    return broadcast(batch, dims) if len(dims) else ()


def _noted(body: IndexBody, inside: IndexBody) -> None:
    """Add the offsets and variables used inside a loop to those of the enclosing statements."""
    body.places += inside.places
    body.read |= inside.read


@loops("dot_general")
def dot_general(kernel: KernelWriter, result: Shape, lhs: mlir.Value, rhs: mlir.Value, *, dims: DotDims) -> None:
    left, right = shape_of(lhs), shape_of(rhs)
    depth: list[int] = [left.static[a] for a in dims.lhs_contracting]
    bounds = product_bounds(kernel.bounds(lhs), kernel.bounds(rhs), prod(depth))
    free = dims.free(left.rank, right.rank)

    def run(body: IndexBody, index: Index) -> None:
        batch, rest = index[: len(dims.lhs_batch)], index[len(dims.lhs_batch) :]
        rows, columns = rest[: len(free[0])], rest[len(free[0]) :]
        total = Products(body, result.dtype, bounds)

        def inner(inside: IndexBody, k: Index) -> None:
            places: list[Index] = []
            sides = (
                (left, dims.lhs_contracting, dims.lhs_batch, free[0], rows),
                (right, dims.rhs_contracting, dims.rhs_batch, free[1], columns),
            )
            for shape, contracting, batches, others, at_others in sides:
                at = dict(zip((*contracting, *batches, *others), (*k, *batch, *at_others), strict=True))
                places.append(tuple(at[a] for a in range(shape.rank)))
            total.add(inside, inside.element(lhs, places[0]), inside.element(rhs, places[1]))
            _noted(body, inside)

        kernel.nest(depth, inner, [f"r{n}" if len(depth) > 1 else "r" for n in range(len(depth))], body)
        kernel.finish(body, index, total.result(body))

    kernel.nest(result.static, run)


@loops("conv")
def conv(kernel: KernelWriter, result: Shape, x: mlir.Value, w: mlir.Value, *, geometry: ConvGeometry) -> None:
    bounds = product_bounds(kernel.bounds(x), kernel.bounds(w), prod(shape_of(w).static[1:]))
    window_loops = _WindowLoops(kernel, x, w, geometry)

    def run(body: IndexBody, index: Index) -> None:
        total = Products(body, result.dtype, bounds)
        window_loops.write(body, index, total)
        kernel.finish(body, index, total.result(body))

    kernel.nest(result.static, run, conv_names(result.rank))


def conv_names(rank: int) -> list[str]:
    """The variables of an index of a convolution's result."""
    return [
        "n",
        "channel",
        *(["out_x"] if rank == 3 else ["out_y", "out_x"] if rank == 4 else ["out_z", "out_y", "out_x"]),
    ]


@dataclass(frozen=True)
class _WindowLoops:
    """Loops over channels and the window of a convolution, around one product.

    Attributes:
        kernel: Where to write.
        x: The images.
        w: The kernels.
        geometry: The windows.
        zero_points: Those of x and w.
    """

    kernel: KernelWriter
    x: mlir.Value
    w: mlir.Value
    geometry: ConvGeometry
    zero_points: tuple[int, int] = (0, 0)

    def write(self, body: IndexBody, index: Index, total: Products) -> None:
        """Add the products for one element of the result."""
        shape, weights, groups = shape_of(self.x), shape_of(self.w), self.geometry.groups
        per_group, outputs = weights.static[1], weights.static[0] // groups
        channel, out = index[1], body.writer
        with ExitStack() as stack:
            first = Affine()
            if groups > 1 and outputs == 1:
                first = channel * per_group
            elif groups > 1:
                name = body.fresh("first")
                out.line(f"const int32_t {name} = {body.text_of(channel)} / {outputs} * {per_group};")
                first = Affine.of(name)
            at = Affine()
            if per_group > 1:
                stack.enter_context(out.loop("c", per_group))
                at = Affine.of("c")
            outer = IndexBody(self.kernel, out, around=body)
            sizes = weights.static[2:]
            windows = PoolGeometry(sizes, self.geometry.stride, self.geometry.padding)
            place = taps(outer, index[2:], shape.static[2:], windows, self.geometry.dilation, stack)
            names = ["kx"] if len(sizes) == 1 else ["ky", "kx"] if len(sizes) == 2 else ["kz", "ky", "kx"]
            window = tuple(Affine.of(n) if d > 1 else Affine() for n, d in zip(names, sizes, strict=True))
            inside = IndexBody(self.kernel, out, around=outer)
            a = inside.element(self.x, (index[0], first + at, *place))
            b = inside.element(self.w, (channel, at, *window))
            total.add(inside, minus(a, self.zero_points[0]), minus(b, self.zero_points[1]))
            _noted(body, outer)
            _noted(body, inside)


# --- products of 8-bit integers ---------------------------------------------------------------------------


def scaled(body: IndexBody, sum_: Scalar, multiplier: Scalar | None, quantization: ProductQuantization) -> Scalar:
    """Convert a sum in i32 to the result: unchanged, or multiplied by a float."""
    if multiplier is None:
        return sum_
    product = body.local(scalar(f"(float){sum_.term} * {multiplier.term}", f32, simple=False), "product")
    if quantization.dtype is f32:
        return product
    (low, high), zero_point = limits(i8), quantization.out_zero_point
    moved = f" + {zero_point}.0f" if zero_point >= 0 else f" - {-zero_point}.0f"
    body.need("math")
    return scalar(f"{body.need('narrow_of_f32')}(rintf({product.text}){moved}, {low}, {high})", i8)


def sum_bounds(kernel: KernelWriter, operands: QuantizedOperands[mlir.Value], zeros: tuple[int, int], axis: int) -> Any:
    """Return the least and greatest partial sum of any result, including the bias."""
    w, bias = operands.w, operands.bias
    (x_low, x_high), (x_zero, w_zero) = kernel.bounds(operands.x), zeros
    weights, count = constant_of(w), prod(shape_of(w).static) // max(1, shape_of(w).static[axis])
    if weights is None:
        low, high = product_bounds((x_low - x_zero, x_high - x_zero), (-128 - w_zero, 127 - w_zero), count)
    else:
        moved = np.moveaxis(weights.astype(np.int64) - w_zero, axis, 0)
        moved = moved.reshape(moved.shape[0], -1)
        ends = np.stack([moved * (x_low - x_zero), moved * (x_high - x_zero)])
        low = int(np.minimum(ends.min(0), 0).sum(-1).min(initial=0))
        high = int(np.maximum(ends.max(0), 0).sum(-1).max(initial=0))
    if bias is not None:
        bias_low, bias_high = kernel.bounds(bias) if constant_of(bias) is None else _ends(constant_of(bias))
        low, high = low + min(0, bias_low), high + max(0, bias_high)
    return low, high


def _ends(array: np.ndarray) -> tuple[int, int]:
    return int(array.min(initial=0)), int(array.max(initial=0))


def plain_conv(
    kernel: KernelWriter,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    geometry: ConvGeometry,
    quantization: ProductQuantization,
) -> None:
    """A convolution of 8-bit integers, product by product."""
    bias, multiplier = operands.bias, operands.multiplier
    kernel.constants |= {operands.w: "weights", bias: "bias", multiplier: "multiplier"}
    bounds = sum_bounds(kernel, operands, quantization.factors, 0)
    window_loops = _WindowLoops(kernel, operands.x, operands.w, geometry, quantization.factors)

    def run(body: IndexBody, index: Index) -> None:
        start = None if bias is None else body.element(bias, (index[1],))
        total = Products(body, i32, bounds, start)
        window_loops.write(body, index, total)
        by = None if multiplier is None else body.element(multiplier, (index[1],) * shape_of(multiplier).rank)
        kernel.finish(body, index, scaled(body, total.result(body), by, quantization))

    kernel.nest(result.static, run, conv_names(4))


def plain_matmul(
    kernel: KernelWriter,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    quantization: ProductQuantization,
) -> None:
    """A product with a matrix of 8-bit integers, product by product."""
    x, w, bias, multiplier = operands.x, operands.w, operands.bias, operands.multiplier
    kernel.constants |= {w: "weights", bias: "bias", multiplier: "multiplier"}
    zeros = quantization.factors
    bounds = sum_bounds(kernel, operands, zeros, 1)

    def run(body: IndexBody, index: Index) -> None:
        start = None if bias is None else body.element(bias, index[-1:])
        total = Products(body, i32, bounds, start)

        def inner(inside: IndexBody, k: Index) -> None:
            a, b = inside.element(x, (*index[:-1], k[0])), inside.element(w, (k[0], index[-1]))
            total.add(inside, minus(a, zeros[0]), minus(b, zeros[1]))
            _noted(body, inside)

        kernel.nest([shape_of(w).static[0]], inner, ["r"], body)
        by = None if multiplier is None else body.element(multiplier, index[-1:] if shape_of(multiplier).rank else ())
        kernel.finish(body, index, scaled(body, total.result(body), by, quantization))

    kernel.nest(result.static, run)
