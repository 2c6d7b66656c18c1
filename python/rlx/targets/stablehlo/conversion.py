"""Casts with the semantics of `rlx.cast`: integers saturate, and narrow floats are rounded once."""

from __future__ import annotations

import math

from rlx.ir.dtype import DType, f32, f64, u8, u32
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered


def emit_cast(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """Convert to another dtype with the semantics of `rlx.cast`. Floats to integers: toward zero, saturating, NaN to 0."""
    if x.dtype is kind:
        return x
    if kind.is_bool:
        return emit.compare("ne", x, 0)
    if kind.is_complex:
        if x.dtype.is_complex:
            parts = (emit.convert(emit.elementwise(n, x, kind=x.dtype.part), kind.part) for n in ("real", "imag"))
            return emit.elementwise("complex", *parts, kind=kind)
        return emit.elementwise("complex", real := emit_cast(emit, x, kind.part), emit.like(real, 0), kind=kind)
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
        # XLA's constant folding would convert an infinity to 0.
        x = emit.min(emit.max(x, float(kind.min)), float(kind.max))
    return emit.convert(x, kind)


def _widened(emit: HloEmitter, x: Lowered) -> Lowered:
    """Convert numbers of a storage dtype to the dtype of its arithmetic."""
    layout, wide = x.dtype.float_format, emit.convert(x, x.dtype.compute)
    if layout is None or layout.has_zero:
        return wide
    # XLA's constant folding would convert NaN to infinity.
    is_nan = emit.compare("eq", emit.bitcast(x, x.dtype.unsigned_word), layout.nan_code)
    return emit.select(is_nan, emit.like(wide, math.nan), wide)


def _as_f64(emit: HloEmitter, x: Lowered) -> Lowered:
    """Convert numbers to f64. Integers are rounded to odd at 53 bits."""
    if x.dtype.is_integer and x.dtype.bits == 64:
        last = emit.select(emit.compare("ne", emit.both(x, 0x7FF), 0), emit.like(x, 0x800), 0)
        shortened = emit.either(emit.both(x, ~0x7FF if x.dtype.is_signed else (1 << 64) - 0x800), last)
        near = emit.compare("le", x, 2**53)
        near = emit.both(near, emit.compare("ge", x, -(2**53))) if x.dtype.is_signed else near
        x = emit.select(near, x, shortened)
    return emit.convert(x, f64)


def _rounded_to_odd(emit: HloEmitter, x: Lowered) -> Lowered:
    """Round f64 to odd in f32. Rounding the result to a narrower float is the same as rounding once.

    XLA rounds f64 and integers to f32 first, and then to a narrower float.
    """
    near = emit.convert(x, f32)
    back = emit.convert(near, f64)
    beyond = emit.compare("gt", emit.elementwise("abs", back), emit.elementwise("abs", x))
    lost = emit.both(emit.compare("ne", back, x), emit.compare("lt", emit.elementwise("abs", x), math.inf))
    bits = emit.bitcast(near, u32)
    bits = emit.sub(bits, emit.convert(beyond, u32))  # toward zero
    return emit.bitcast(emit.either(bits, emit.convert(lost, u32)), f32)


def _exponents(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """Round f32 or f64 to the nearest power of two, with ties up, in a dtype with only an exponent.

    Numbers that are not positive or too large become NaN. XLA's own conversion treats the least powers, which are subnormal in
    f32, as 0. XLA's constant folding, for example of an empty sum, converts 0 to the least power.
    """
    layout, wide, word = kind.float_format, x.dtype.float_format, x.dtype.unsigned_word
    assert layout is not None and wide is not None
    bits = emit.bitcast(x, word)
    exponent = emit.elementwise("shift_right_logical", bits, wide.mantissa)
    fraction, half = emit.both(bits, 2**wide.mantissa - 1), 2 ** (wide.mantissa - 1)
    lowest = wide.bias - layout.bias
    is_least, is_up = emit.compare("eq", exponent, lowest), emit.compare("ge", fraction, half)
    # ml_dtypes, and so the evaluator, rounds all numbers between the first two powers to the second one. In f32, the first
    # power is half the smallest normal number.
    is_up = emit.select(is_least, emit.compare("gt", fraction, 0 if lowest else half), is_up)
    nan = layout.nan_code
    code = emit.sub(emit.max(emit.add(exponent, emit.convert(is_up, word)), lowest), lowest)
    is_number = emit.both(emit.compare("ne", bits, 0), emit.compare("lt", bits, wide.infinity_code))
    code = emit.select(is_number, emit.min(code, nan), nan)
    return emit.bitcast(emit.convert(code, u8), kind)


def _without_nan(emit: HloEmitter, x: Lowered, given: Lowered) -> Lowered:
    """Replace NaN by a zero of the other sign, as the evaluator does for a format without NaN.

    Args:
        emit: The emitter.
        x: The floats.
        given: The floats before a conversion, which may have changed the sign of NaN.
    """
    layout = given.dtype.float_format
    zero: Lowered | float = -0.0
    if layout is not None and layout.signed:
        is_negative = emit.compare("lt", emit.bitcast(given, given.dtype.signed_word), 0)
        zero = emit.select(is_negative, emit.like(x, 0.0), -0.0)
    return emit.select(emit.compare("ne", x, x), zero, x)


def _saturated(emit: HloEmitter, x: Lowered, kind: DType) -> Lowered:
    """Convert floats to integers in the range of a dtype, in the dtype of its arithmetic."""
    if x.dtype is not accumulator(x.dtype):
        x = emit.convert(x, f32)
    above = emit.compare("ge", x, float(int(kind.max) + 1))
    below = emit.compare("le", x, float(kind.min))
    outside = emit.either(emit.either(above, below), emit.compare("ne", x, x))
    inside = emit.convert(emit.select(outside, 0, x), kind.compute)
    return emit.select(below, int(kind.min), emit.select(above, int(kind.max), inside))
