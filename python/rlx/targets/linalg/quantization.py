"""Lowering rules for quantisation to 8-bit integers, and for their products with sums in i32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType, f32, i8, i32, i64
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.ops.quantization.requantize import BITS, RIGHTMOST, FixedPoint, Requantization
from rlx.targets.linalg.contraction import matmul_2d
from rlx.targets.linalg.convolution import emit_convolution
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers

# Near these numbers the ulp is 1. Adding one of them to a number rounds it to an integer, with ties to even.
_WHOLE_BESIDE = {"f32": 1.5 * 2**23, "f64": 1.5 * 2**52}


def _stored(s: Scalars, scaled: mlir.Value, zero_point: mlir.Value, dtype: DType) -> mlir.Value:
    """`saturate(round(scaled) + zero_point)` as a stored 8-bit integer, NaN as the zero point.

    Args:
        s: Scalars of the dtype of `scaled`, f32 or f64.
        scaled: A scalar.
        zero_point: A scalar i32, which is saturated to the range of `dtype`.
        dtype: i8 or u8.
    """
    arith, word, whole = s.arith, storage_type(i32), Scalars(i32)
    least, most = whole.constant(int(dtype.min)), whole.constant(int(dtype.max))
    zero_point = whole.max(whole.min(zero_point, most), least)

    # Bounds are integers, so that numbers can be clamped before rounding. The clamped numbers are small enough to round.
    lower, upper = (arith.sitofp(s.element, whole.sub(n, zero_point)) for n in (least, most))
    inside = arith.minnumf(arith.maxnumf(scaled, lower), upper)
    beside = s.constant(_WHOLE_BESIDE[s.dtype.name])
    steps = arith.subf(arith.addf(inside, beside), beside)
    steps = arith.select(s.is_nan(scaled), s.constant(0), steps)
    return arith.trunci(storage_type(dtype), arith.addi(arith.fptosi(word, steps), zero_point))


@lowers("quantize")
def quantize(
    low: LoopEmitter,
    results: list[Shape],
    x: Lowered,
    scale: Lowered,
    zero_point: Lowered,
    *,
    axis: int | None,
    **_: Any,
) -> mlir.Value:
    s, dtype = Scalars(x.shape.dtype), results[0].dtype

    def body(value: mlir.Value, by: mlir.Value, zero: mlir.Value) -> mlir.Value:
        divisor = s.convert(by, f32) if s.outer.name == "f64" else by
        return _stored(s, s.div(s.enter(value), divisor), zero, dtype)

    operands = [x, *(_along(low, v, axis, x.shape.rank) for v in (scale, zero_point))]
    return low.map(results[0].dims, storage_type(dtype), operands, body)


def _along(low: LoopEmitter, values: Lowered, axis: int | None, rank: int) -> Lowered:
    """Reshape one number for each position of an axis, or one for all, to broadcast against a tensor of a rank."""
    if axis is None or values.shape.rank == 0:
        return values
    dims = (*values.shape.dims, *(1,) * (rank - 1 - axis))
    return Lowered(low.reshape(values.value, values.shape.dims, dims), values.shape.with_dims(dims))


def _centred(low: LoopEmitter, x: Lowered, zero_point: int) -> Lowered:
    """`x - zero_point` in i32."""
    s = Scalars(i32)
    value = low.map(x.shape.dims, s.element, [x], lambda v: s.sub(s.convert(v, i8), s.constant(zero_point)))
    return Lowered(value, x.shape.with_dtype(i32))


def _moved_by(low: LoopEmitter, w: Lowered, kept: int, zero_point: int) -> Lowered:
    """The correction of a sum of products if the other factor is `x - zero_point`: `-zero_point·Σ w`.

    Args:
        low: The emitter.
        w: 8-bit weights.
        kept: The axis of the result's channels.
        zero_point: The zero point of the other factor.
    """
    dims, s = w.shape.dims, Scalars(i32)
    out = low.filled((dims[kept],), s.element, 0)
    if 0 not in dims:
        iterators = [PARALLEL if i == kept else REDUCTION for i in range(len(dims))]
        inputs = [(w.value, tuple(range(len(dims))))]
        out = low.generic(inputs, [(out, (kept,))], iterators, lambda v, sum_: s.add(sum_, s.convert(v, i8)))
    total = Lowered(out, Shape((dims[kept],), i32))
    return Lowered(
        low.map(total.shape.dims, s.element, [total], lambda v: s.mul(v, s.constant(-zero_point))), total.shape
    )


def _finished(
    low: LoopEmitter,
    result: Shape,
    total: mlir.Value,
    terms: Sequence[Lowered],
    multiplier: Lowered | None,
    zero_point: int,
) -> mlir.Value:
    """The sum of a product, in i32, and of terms for each position of axis 1, times the multiplier, in the result's dtype."""
    if multiplier is None and not terms:
        return total
    whole, s = Scalars(i32), Scalars(f32)

    def body(*scalars: mlir.Value) -> mlir.Value:
        sum_, *others = scalars
        by = None if multiplier is None else others.pop()
        for other in others:
            sum_ = whole.add(sum_, other)
        if by is None:
            return sum_
        scaled = s.mul(s.convert(sum_, i32), by)
        return scaled if result.dtype is f32 else _stored(s, scaled, whole.constant(zero_point), i8)

    factors = [] if multiplier is None else [multiplier]
    operands = [_along(low, v, 1, result.rank) for v in (*terms, *factors)]
    return low.map(result.dims, storage_type(result.dtype), [Lowered(total, result.with_dtype(i32)), *operands], body)


@lowers("q_matmul")
def q_matmul(
    low: LoopEmitter,
    results: list[Shape],
    operands: QuantizedOperands[Lowered],
    *,
    quantization: ProductQuantization,
) -> mlir.Value:
    """`Σ (x - a)·w = Σ x·w - a·Σ w`, so that the factors of the product are 8-bit integers. `Σ w` is a constant."""
    x, w, (x_zero_point, w_zero_point) = operands.x, operands.w, quantization.factors
    terms = [] if operands.bias is None else [operands.bias]
    if w_zero_point:
        x, w = _centred(low, x, x_zero_point), _centred(low, w, w_zero_point)
    elif x_zero_point:
        terms.append(_moved_by(low, w, 1, x_zero_point))
    rows, (k, n) = product_of(x.shape.dims[:-1]), w.shape.dims
    total = matmul_2d(low, low.reshape(x.value, x.shape.dims, (rows, k)), w.value, rows, n, i32)
    result = Shape((rows, n), quantization.dtype)
    finished = _finished(low, result, total, terms, operands.multiplier, quantization.out_zero_point)
    return low.reshape(finished, (rows, n), results[0].dims)


@lowers("q_conv2d")
def q_conv2d(
    low: LoopEmitter,
    results: list[Shape],
    operands: QuantizedOperands[Lowered],
    *,
    geometry: ConvGeometry,
    quantization: ProductQuantization,
) -> mlir.Value:
    """As `q_matmul`. The padding is zero after subtracting the zero point, so it is `x_zero_point` before."""
    x, w, (x_zero_point, w_zero_point) = operands.x, operands.w, quantization.factors
    terms, fill = [] if operands.bias is None else [operands.bias], x_zero_point
    if w_zero_point:
        x, w, fill = _centred(low, x, x_zero_point), _centred(low, w, w_zero_point), 0
    elif x_zero_point:
        terms.append(_moved_by(low, w, 0, x_zero_point))
    total = emit_convolution(low, results[0].with_dtype(i32), x, w, geometry, fill)
    return _finished(low, results[0], total, terms, operands.multiplier, quantization.out_zero_point)


@lowers("requantize")
def requantize(
    low: LoopEmitter,
    results: list[Shape],
    x: Lowered,
    factor: FixedPoint[Lowered],
    *,
    requantization: Requantization,
) -> mlir.Value:
    mode, dtype, arith, s = requantization.mode, requantization.dtype, low.arith, Scalars(i64)
    bits = BITS[mode]

    def body(value: mlir.Value, multiplier: mlir.Value, by: mlir.Value) -> mlir.Value:
        value, multiplier, by = (arith.extsi(s.element, v) for v in (value, multiplier, by))
        by = s.max(s.min(by, s.constant(bits - 1)), s.constant(RIGHTMOST))
        if mode == "double":
            scaled = _doubly(s, value, multiplier, by)
        else:
            right = s.sub(s.constant(bits), by)
            half = arith.shli(s.constant(1), s.sub(right, s.constant(1)))
            product = s.mul(value, multiplier if bits > 15 else _last_bits(s, multiplier, 16))
            scaled = arith.shrsi(s.add(product, half), right)
        moved = s.add(scaled, s.constant(requantization.zero_point))
        inside = s.max(s.min(moved, s.constant(int(dtype.max))), s.constant(int(dtype.min)))
        return arith.trunci(storage_type(dtype), inside)

    return low.map(results[0].dims, storage_type(dtype), [x, factor.multiplier, factor.shift], body)


def _last_bits(s: Scalars, value: mlir.Value, count: int) -> mlir.Value:
    """The last bits of an i64 as a signed number."""
    unused = s.constant(64 - count)
    return s.arith.shrsi(s.arith.shli(value, unused), unused)


def _doubly(s: Scalars, value: mlir.Value, multiplier: mlir.Value, shift: mlir.Value) -> mlir.Value:
    """`value·multiplier·2^(shift - 31)`, rounded after the product and after the right shift."""
    arith, zero, one = s.arith, s.constant(0), s.constant(1)
    right = s.max(s.neg(shift), zero)
    moved = _last_bits(s, arith.shli(value, s.max(shift, zero)), 32)
    high = arith.shrsi(s.add(s.mul(moved, multiplier), s.constant(1 << 30)), s.constant(31))
    high = s.min(high, s.constant(int(i32.max)))
    half = arith.shrsi(arith.shli(one, right), one)
    away = arith.andi(s.compare("lt", high, zero), s.compare("gt", half, zero))
    return arith.shrsi(s.sub(s.add(high, half), arith.extui(s.element, away)), right)
