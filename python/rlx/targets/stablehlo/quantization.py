"""Lowering rule for requantisation, in integer arithmetic."""

from __future__ import annotations

from rlx.ir.dtype import i32, i64
from rlx.ir.shape import Shape
from rlx.ops.quantization.requantize import BITS, RIGHTMOST, FixedPoint, Requantization
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("requantize")
def requantize(
    emit: HloEmitter,
    results: list[Shape],
    x: Lowered,
    factor: FixedPoint[Lowered],
    *,
    requantization: Requantization,
) -> Lowered:
    mode, dtype = requantization.mode, requantization.dtype
    bits, operands = BITS[mode], (x, factor.multiplier, factor.shift)
    x, multiplier, shift = (emit.broadcast(emit.convert(v, i64), results[0].static) for v in operands)
    shift = emit.clamp(shift, RIGHTMOST, bits - 1)
    if mode == "double":
        scaled = _doubly(emit, x, multiplier, shift)
    else:
        right = emit.sub(emit.like(shift, bits), shift)
        half = _left(emit, emit.like(right, 1), emit.sub(right, 1))
        product = emit.mul(x, multiplier if bits > 15 else _last_bits(emit, multiplier, 16))
        scaled = _right(emit, emit.add(product, half), right)
    return emit.convert(emit.clamp(emit.add(scaled, requantization.zero_point), int(dtype.min), int(dtype.max)), dtype)


def _left(emit: HloEmitter, x: Lowered, by: Lowered) -> Lowered:
    return emit.elementwise("shift_left", x, by)


def _right(emit: HloEmitter, x: Lowered, by: Lowered) -> Lowered:
    return emit.elementwise("shift_right_arithmetic", x, by)


def _last_bits(emit: HloEmitter, x: Lowered, count: int) -> Lowered:
    """The last bits of i64 as signed numbers."""
    unused = emit.like(x, 64 - count)
    return _right(emit, _left(emit, x, unused), unused)


def _doubly(emit: HloEmitter, x: Lowered, multiplier: Lowered, shift: Lowered) -> Lowered:
    """`x·multiplier·2^(shift - 31)`, rounded after the product and after the right shift."""
    one = emit.like(x, 1)
    right = emit.max(emit.neg(shift), 0)
    moved = _last_bits(emit, _left(emit, x, emit.max(shift, 0)), 32)
    high = _right(emit, emit.add(emit.mul(moved, multiplier), 1 << 30), emit.like(x, 31))
    high = emit.min(high, int(i32.max))
    half = _right(emit, _left(emit, one, right), one)
    away = emit.both(emit.compare("lt", high, 0), emit.compare("gt", half, 0))
    return _right(emit, emit.sub(emit.add(high, half), emit.convert(away, i64)), right)
