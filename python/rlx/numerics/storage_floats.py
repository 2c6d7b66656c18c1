"""Floats of at most 8 bits, stored in bytes: conversion to and from f32 and f64 by integer arithmetic."""

from __future__ import annotations

from rlx import mlir
from rlx.dialect.dtypes import FloatFormat
from rlx.ir.dtype import DType
from rlx.numerics.scalars import Scalars, constant
from rlx.numerics.words import FloatBits


def decoded(s: Scalars, byte: mlir.Value, dtype: DType) -> mlir.Value:
    """Return the exact value of a stored byte.

    Args:
        s: Scalars of f32 or f64.
        byte: The bits of the number, as i8. Higher bits are ignored.
        dtype: A storage float.
    """
    layout = _layout(dtype)
    w, arith = FloatBits(s), s.arith
    word = arith.extui(w.integer, byte)
    size = w.both(word, w.constant(layout.sign_bit - 1))
    moved = w.left(size, w.format.fraction - layout.mantissa)
    bits = w.add(moved, w.constant(w.format.bias - layout.bias << w.format.fraction))
    if layout.mantissa:
        # Subnormals: they become the fraction of a power of two with the same ulp, which is then subtracted.
        beside = w.format.bias - layout.bias + 1 << w.format.fraction
        exponent = 2.0 ** (1 - layout.bias)
        low = w.of(s.sub(w.float_of(w.add(moved, w.constant(beside))), s.constant(exponent)))
        bits = arith.select(w.below(size, w.constant(1 << layout.mantissa)), low, bits)
    else:
        low = w.constant(w.bits_of_constant(2.0**-layout.bias))
        bits = arith.select(_equal(w, size, 0), low, bits)
    bits = _with_specials(w, layout, word, size, bits)
    if layout.signed:
        count = w.format.width - 1 - (layout.exponent + layout.mantissa)
        bits = w.either(bits, w.both(w.left(word, count), w.constant(w.sign_mask)))
    return w.float_of(bits)


def _with_specials(
    w: FloatBits, layout: FloatFormat, word: mlir.Value, size: mlir.Value, bits: mlir.Value
) -> mlir.Value:
    """Replace the bits of a magnitude by those of infinity or NaN where the code represents one."""
    infinity, nan = w.bits_of_constant(float("inf")), w.bits_of_constant(float("nan"))
    if layout.special == "ieee":
        rest = w.left(w.both(size, w.constant((1 << layout.mantissa) - 1)), w.format.fraction - layout.mantissa)
        is_finite = w.below(size, w.constant(layout.infinity_code))
        return w.arith.select(is_finite, bits, w.either(rest, w.constant(infinity)))
    if layout.special == "fn":
        return w.arith.select(_equal(w, size, layout.nan_code), w.constant(nan), bits)
    if layout.special == "fnuz":
        return w.arith.select(_equal(w, word, layout.nan_code), w.constant(nan), bits)
    return bits


def encoded(s: Scalars, x: mlir.Value, dtype: DType) -> mlir.Value:
    """Return the byte of the storage float nearest to a scalar; ties are rounded to even.

    Numbers that are too large become infinity, or NaN in formats without infinity, or the largest number in formats without
    both. In a format without a sign, zero and negative numbers become NaN. As in ml_dtypes, NaN becomes a zero of the other
    sign in a format without NaN, and a number between the two smallest of a format without mantissa becomes the larger one.

    Args:
        s: Scalars of f32 or f64.
        x: A scalar of that dtype.
        dtype: A storage float.
    """
    layout = _layout(dtype)
    w, arith = FloatBits(s), s.arith
    bits = w.of(x)
    size = w.both(bits, w.constant(w.sign_mask - 1))
    code = _rounded_code(w, layout, size)
    is_nan = w.below(w.constant(w.bits_of_constant(float("inf"))), size)
    beyond = {"ieee": layout.infinity_code, "finite": layout.largest_code}.get(layout.special)
    too_large = arith.cmpi(arith.CmpIPredicate.sgt, code, w.constant(layout.largest_code))
    code = arith.select(too_large, w.constant(layout.nan_code if beyond is None else beyond), code)
    if not layout.signed:
        negative = w.is_set(bits, w.sign_mask)
        invalid = arith.ori(is_nan, arith.ori(negative, _equal(w, size, 0)))
        return _byte(w, arith.select(invalid, w.constant(layout.nan_code), code))
    sign = w.right(w.both(bits, w.constant(w.sign_mask)), w.format.width - 1 - (layout.exponent + layout.mantissa))
    if layout.special == "fnuz":
        has_sign = arith.ori(_equal(w, code, 0), _equal(w, code, layout.nan_code))
        code = w.either(code, arith.select(has_sign, w.constant(0), sign))
        return _byte(w, arith.select(is_nan, w.constant(layout.nan_code), code))
    if layout.special == "finite":
        opposite = w.flipped(sign, w.constant(layout.sign_bit))
        return _byte(w, arith.select(is_nan, opposite, w.either(code, sign)))
    return _byte(w, w.either(arith.select(is_nan, w.constant(layout.nan_code), code), sign))


def is_not_zero(byte: mlir.Value, dtype: DType) -> mlir.Value:
    """Whether a stored byte is not a zero; true for NaN."""
    layout = _layout(dtype)
    arith = mlir.dialect("arith")
    if not layout.mantissa:
        return constant(1, mlir.ir.IntegerType.get_signless(1))
    mask = (layout.sign_bit << 1) - 1 if layout.special == "fnuz" else layout.sign_bit - 1
    size = arith.andi(byte, constant(mask, byte.type))
    return arith.cmpi(arith.CmpIPredicate.ne, size, constant(0, byte.type))


def _rounded_code(w: FloatBits, layout: FloatFormat, size: mlir.Value) -> mlir.Value:
    """The code that a magnitude rounds to without an upper limit, as a signed integer."""
    s, arith = w.s, w.arith
    dropped = w.format.fraction - layout.mantissa
    rebias = w.constant(w.format.bias - layout.bias << layout.mantissa)
    if not layout.mantissa:
        # The leading bit is also the last bit, and so odd: ties are rounded up.
        code = w.sub(w.right(w.add(size, w.constant(1 << dropped - 1)), dropped), rebias)
        is_least = arith.cmpi(arith.CmpIPredicate.sle, size, w.constant(w.bits_of_constant(2.0**-layout.bias)))
        return arith.select(is_least, w.constant(0), arith.maxsi(code, w.constant(1)))
    below_half, last = w.constant((1 << dropped - 1) - 1), w.both(w.right(size, dropped), w.constant(1))
    code = w.sub(w.right(w.add(w.add(size, below_half), last), dropped), rebias)
    beside = 2.0 ** (w.format.fraction + 1 - layout.bias - layout.mantissa)
    small = w.sub(w.of(s.add(w.float_of(size), s.constant(beside))), w.constant(w.bits_of_constant(beside)))
    is_small = w.below(size, w.constant(w.bits_of_constant(2.0 ** (1 - layout.bias))))
    return arith.select(is_small, small, code)


def _layout(dtype: DType) -> FloatFormat:
    assert dtype.float_format is not None
    return dtype.float_format


def _equal(w: FloatBits, value: mlir.Value, code: int) -> mlir.Value:
    return w.arith.cmpi(w.arith.CmpIPredicate.eq, value, w.constant(code))


def _byte(w: FloatBits, code: mlir.Value) -> mlir.Value:
    return w.arith.trunci(mlir.ir.IntegerType.get_signless(8), code)
