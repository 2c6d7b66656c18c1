"""Dtype promotion: common dtypes of operands, and the weak dtypes of scalars and arrays next to tensors."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import numpy as np

from rlx.ir.dtype import DTYPES, WIDE, DType, c64, c128, dtype, f32, f64, i32, i64, shown_number
from rlx.support.errors import Error
from rlx.support.short import short_repr


def promote(a: object, b: object) -> DType:
    """Return the common dtype of operands of dtypes `a` and `b`, which may be anything that `dtype` accepts.

    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====
    ..    bool  u8    i8    u16   i16   u32   i32   u64   i64   f16   bf16  f32   f64   c64   c128
    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====
    bool  bool  u8    i8    u16   i16   u32   i32   u64   i64   f16   bf16  f32   f64   c64   c128
    u8    u8    u8    i16   u16   i16   u32   i32   u64   i64   f32   f32   f32   f64   c64   c128
    i8    i8    i16   i8    i32   i16   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u16   u16   u16   i32   u16   i32   u32   i32   u64   i64   f32   f32   f32   f64   c64   c128
    i16   i16   i16   i16   i32   i16   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u32   u32   u32   i64   u32   i64   u32   i64   u64   i64   f32   f32   f32   f64   c64   c128
    i32   i32   i32   i32   i32   i32   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u64   u64   u64   f64   u64   f64   u64   f64   u64   f64   f64   f64   f64   f64   c128  c128
    i64   i64   i64   i64   i64   i64   i64   i64   f64   i64   f64   f64   f64   f64   c128  c128
    f16   f16   f32   f32   f32   f32   f32   f32   f64   f64   f16   f32   f32   f64   c64   c128
    bf16  bf16  f32   f32   f32   f32   f32   f32   f64   f64   f32   bf16  f32   f64   c64   c128
    f32   f32   f32   f32   f32   f32   f32   f32   f64   f64   f32   f32   f32   f64   c64   c128
    f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   c128  c128
    c64   c64   c64   c64   c64   c64   c64   c64   c128  c128  c64   c64   c64   c128  c64   c128
    c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128
    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====

    Commutative and idempotent. Two integers give the narrowest integer that holds both ranges; u64 with a signed
    integer, which no integer holds, gives f64. Two floats give the one that holds all values of the other, else f32;
    two storage floats give f32. An integer with a float gives f32, or f64 if one of the two is i64, u64 or f64. Complex
    dtypes follow the same rule. For dtypes with arithmetic, promotion is associative with one exception: u32, a signed
    integer narrower than i64, and a float narrower than f64 or c64. The two integers give i64, which with a float gives
    f64, but either integer with the float gives f32.
    """
    result = _PROMOTIONS.get((a, b)) if isinstance(a, DType) and isinstance(b, DType) else None
    return result if result is not None else _PROMOTIONS[dtype(a), dtype(b)]


def _promote(a: DType, b: DType) -> DType:
    if a is b or b.is_bool:
        return a
    if a.is_bool:
        return b
    if a.is_complex or b.is_complex:
        return c128 if WIDE & {a, b} else c64
    if a.is_float and b.is_float:
        return next((wide for wide, other in ((a, b), (b, a)) if holds(wide, other)), f32)
    if a.is_float or b.is_float:
        return f64 if WIDE & {a, b} else f32
    low, high = min(a.min, b.min), max(a.max, b.max)
    fitting = [d for d in DTYPES if d.is_integer and d.min <= low and high <= d.max]
    return min(
        fitting, key=lambda d: d.bits, default=f64
    )  # no integer dtype holds both u64 and negative numbers: f64, as in NumPy


def holds(wide: DType, other: DType) -> bool:
    """Whether `wide` holds every value of the float dtype `other`; False if `wide` is a storage dtype."""
    return not wide.storage and all(x >= y for x, y in zip(_reach(wide), _reach(other), strict=True))


def _reach(x: DType) -> tuple[int, ...]:
    """Return the bits of precision, the limits of small and large exponents, and the presence of a sign of a float dtype."""
    layout = x.float_format
    assert layout is not None
    return layout.mantissa, layout.bias + layout.mantissa - 1, layout.largest_exponent, int(layout.signed)


_PROMOTIONS = {(a, b): _promote(a, b) for a in DTYPES for b in DTYPES}


def weak(value: bool | int | float | complex, other: DType) -> DType:
    """Return the dtype of a Python scalar next to a tensor of dtype `other`.

    The scalar takes the tensor's dtype if that has the same or a higher kind, so ``x + 1`` and ``x * 0.5`` keep an f16
    tensor f16. Otherwise the scalar's kind decides: an int next to bool is i32, a float next to bool or integers is f32
    (f64 next to i64 and u64), a complex number is c64 (c128 next to i64, u64, f64 and c128). NumPy's float64 and
    complex128 scalars are subclasses of Python's float and complex, and are treated like them.

    Raises:
        Error: `value` is an int that does not fit the dtype, or is not a Python scalar.
    """
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        result = i32 if other.is_bool else other
        low, high = (f64.min, f64.max) if result.is_complex else (result.min, result.max)
        if not low <= value <= high:
            raise Error(
                f"the integer {shown_number(value)} beside a tensor of dtype {other.name} has to be {result.name}, "
                f"and lies outside {low} to {high}",
                hint="cast the tensor to a wider dtype first",
            )
        return result
    if isinstance(value, float):
        return other if other.is_inexact else promote(f32, other)
    if isinstance(value, complex):
        return promote(c64, other)
    raise Error(
        f"expected a Python bool, int, float or complex, not {short_repr(value)} of type {type(value).__name__}"
    )


def beside(array: np.ndarray | np.generic) -> DType:
    """Return the dtype of a NumPy array for promotion with tensors of other dtypes.

    NumPy uses f64, c128 and i64 for numbers written without a dtype. To avoid widening, these count as f32, c64 and
    i32, as in JAX; i64 only if all its numbers fit. Next to f64, c128 and i64 they keep all digits.
    """
    own = dtype(array.dtype)
    if own is f64:
        return f32
    if own is c128:
        return c64
    if own is i64 and (not array.size or (i32.min <= array.min() and array.max() <= i32.max)):
        return i32
    return own
