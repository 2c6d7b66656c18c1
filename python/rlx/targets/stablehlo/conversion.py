"""Casts with the meaning of `rlx.cast`: integers saturate, and narrow floats are rounded once."""

from __future__ import annotations

import math

from rlx.ir.dtype import DType, f32, f64, u8, u32
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered


def converted(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """Another dtype, with the meaning of `rlx.cast`: floats become integers toward zero, saturating, and NaN 0."""
    if x.dtype is kind:
        return x
    if kind.is_bool:
        return emit.compare("ne", x, 0)
    if kind.is_complex:
        if x.dtype.is_complex:
            parts = (emit.convert(emit.elementwise(n, x, kind=x.dtype.part), kind.part) for n in ("real", "imag"))
            return emit.elementwise("complex", *parts, kind=kind)
        return emit.elementwise("complex", real := converted(emit, x, kind.part), emit.like(real, 0), kind=kind)
    if x.dtype.is_complex:
        x = emit.elementwise("real", x, kind=x.dtype.part)
    given = x
    if x.dtype.storage:
        x = _widened(emit, x)
    if x.dtype.is_float and kind.is_integer:
        return emit.convert(_saturated(emit, x, kind), kind)
    layout = kind.float_format
    if layout is None or kind in (f32, f64):
        return emit.convert(x, kind)
    is_wide = x.dtype.bits >= 32 and x.dtype is not f32
    if not layout.mantissa:
        return _exponents(emit, _as_f64(emit, x) if is_wide else emit.convert(x, f32), kind)
    x = _rounded_to_odd(emit, _as_f64(emit, x)) if is_wide else x
    if layout.special == "finite" and x.dtype.is_float:
        x = _without_nan(emit, x, given)
        # XLA makes 0 of an infinity where it folds constants.
        x = emit.min(emit.max(x, float(kind.min)), float(kind.max))
    return emit.convert(x, kind)


def _widened(emit: HloEmitter, x: Lowered) -> Lowered:
    """Numbers of a storage dtype in the dtype of its arithmetic."""
    layout, wide = x.dtype.float_format, emit.convert(x, x.dtype.compute)
    if layout is None or layout.has_zero:
        return wide
    # XLA makes infinity of NaN where it folds constants.
    is_nan = emit.compare("eq", emit.bitcast(x, x.dtype.unsigned_word), layout.nan_code)
    return emit.select(is_nan, emit.like(wide, math.nan), wide)


def _as_f64(emit: HloEmitter, x: Lowered) -> Lowered:
    """Numbers as f64: integers with at most 53 digits, the last of which is 1 where digits are lost."""
    if x.dtype.is_integer and x.dtype.bits == 64:
        last = emit.select(emit.compare("ne", emit.both(x, 0x7FF), 0), emit.like(x, 0x800), 0)
        shortened = emit.either(emit.both(x, ~0x7FF if x.dtype.is_signed else (1 << 64) - 0x800), last)
        near = emit.compare("le", x, 2**53)
        near = emit.both(near, emit.compare("ge", x, -(2**53))) if x.dtype.is_signed else near
        x = emit.select(near, x, shortened)
    return emit.convert(x, f64)


def _rounded_to_odd(emit: HloEmitter, x: Lowered) -> Lowered:
    """f64 as f32 whose last bit is 1 where digits are lost: rounding this gives the same as rounding once.

    XLA rounds f64 and integers to f32 first, and what this gives to a narrower float.
    """
    near = emit.convert(x, f32)
    back = emit.convert(near, f64)
    beyond = emit.compare("gt", emit.elementwise("abs", back), emit.elementwise("abs", x))
    lost = emit.both(emit.compare("ne", back, x), emit.compare("lt", emit.elementwise("abs", x), math.inf))
    bits = emit.bitcast(near, u32)
    bits = emit.sub(bits, emit.convert(beyond, u32))  # toward zero
    return emit.bitcast(emit.either(bits, emit.convert(lost, u32)), f32)


def _exponents(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """f32 or f64 as the nearest power of two, the larger one at a tie, in a dtype that has the exponent alone.

    What is not positive or too large is NaN. XLA takes the least powers, which are denormal in f32, for 0; and where it folds
    constants, such as the sum of no numbers, it makes the least power of a 0.
    """
    layout, wide, word = kind.float_format, x.dtype.float_format, x.dtype.unsigned_word
    assert layout is not None and wide is not None
    bits = emit.bitcast(x, word)
    exponent = emit.elementwise("shift_right_logical", bits, wide.mantissa)
    fraction, half = emit.both(bits, 2**wide.mantissa - 1), 2 ** (wide.mantissa - 1)
    lowest = wide.bias - layout.bias
    is_least, is_up = emit.compare("eq", exponent, lowest), emit.compare("ge", fraction, half)
    # ml_dtypes, and so the evaluator, gives the second power for all that lies between the first two. In f32 the first one is
    # half of the least number that is not denormal.
    is_up = emit.select(is_least, emit.compare("gt", fraction, 0 if lowest else half), is_up)
    nan = layout.nan_code
    code = emit.sub(emit.max(emit.add(exponent, emit.convert(is_up, word)), lowest), lowest)
    is_number = emit.both(emit.compare("ne", bits, 0), emit.compare("lt", bits, wide.infinity_code))
    code = emit.select(is_number, emit.min(code, nan), nan)
    return emit.bitcast(emit.convert(code, u8), kind)


def _without_nan(emit: HloEmitter, x: Lowered, given: Lowered) -> Lowered:
    """Floats with a zero of the other sign for NaN, as the evaluator has it in a format without NaN.

    Args:
        emit: The emitter.
        x: The floats.
        given: The same before a conversion, which may have changed the sign of NaN.
    """
    layout = given.dtype.float_format
    zero: Lowered | float = -0.0
    if layout is not None and layout.signed:
        is_negative = emit.compare("lt", emit.bitcast(given, given.dtype.signed_word), 0)
        zero = emit.select(is_negative, emit.like(x, 0.0), -0.0)
    return emit.select(emit.compare("ne", x, x), zero, x)


def _saturated(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """Floats as integers in the range of a dtype, in the dtype of its arithmetic."""
    if x.dtype is not accumulator(x.dtype):
        x = emit.convert(x, f32)
    above = emit.compare("ge", x, float(int(kind.max) + 1))
    below = emit.compare("le", x, float(kind.min))
    outside = emit.either(emit.either(above, below), emit.compare("ne", x, x))
    inside = emit.convert(emit.select(outside, 0, x), kind.compute)
    return emit.select(below, int(kind.min), emit.select(above, int(kind.max), inside))
