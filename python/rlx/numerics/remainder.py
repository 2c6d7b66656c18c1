"""Exact remainders of f32 or f64 scalars, by integer arithmetic.

Both operands are an integer times a power of two. `(a·2^n) mod b` is computed in steps, and the free bits of a word limit the
part of `n` in each step. Code generators call C's `fmod` instead, which is not available for f64, or multiply a rounded
quotient, which is not exact.
"""

from __future__ import annotations

import math

from rlx import mlir
from rlx.numerics.scalars import Scalars
from rlx.numerics.words import FloatBits


def remainder(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """`a - b·trunc(a/b)` with the sign of `a`; NaN for an infinite `a`, for `b = 0` and for NaN."""
    w, arith = FloatBits(s), s.arith
    fraction = w.format.fraction
    bits_a, bits_b = w.of(s.math.absf(a)), w.of(s.math.absf(b))
    exponent_a, exponent_b = (_exponent(w, bits) for bits in (bits_a, bits_b))
    size_a, size_b = (_whole(w, bits) for bits in (bits_a, bits_b))
    divisor = arith.maxui(size_b, w.constant(1))
    gap = w.sub(exponent_a, exponent_b)
    rest = _scaled_remainder(s, w, arith.remui(size_a, divisor), divisor, gap)
    # Back to a float: the bits of normal results, and those of subnormal results.
    as_float = w.of(arith.uitofp(s.element, rest))
    scale = w.sub(exponent_b, w.constant(w.format.bias + fraction))
    normal = w.add(as_float, arith.shli(scale, w.constant(fraction)))
    leading = w.add(arith.shrui(as_float, w.constant(fraction)), scale)
    is_normal = arith.cmpi(arith.CmpIPredicate.sgt, leading, w.constant(0))
    up = arith.minui(w.sub(exponent_b, w.constant(1)), w.constant(w.format.width - 1))
    found = arith.select(is_normal, normal, arith.shli(rest, up))
    is_zero = arith.cmpi(arith.CmpIPredicate.eq, rest, w.constant(0))
    found = arith.select(is_zero, w.constant(0), found)
    result = w.with_sign_flipped(w.float_of(found), w.sign(a))
    # Where the exponent of b is larger, the result is a. This includes an infinite b.
    is_less = arith.cmpi(arith.CmpIPredicate.slt, exponent_a, exponent_b)
    result = s.select(is_less, a, result)
    infinite = s.compare("eq", s.math.absf(a), s.constant(math.inf))
    undefined = arith.ori(arith.ori(infinite, s.compare("eq", b, s.constant(0.0))), arith.ori(s.is_nan(a), s.is_nan(b)))
    return s.select(undefined, s.constant(math.nan), result)


def _exponent(w: FloatBits, bits: mlir.Value) -> mlir.Value:
    """The stored exponent of a magnitude, but 1 for subnormals, whose bits count the same power of two."""
    return w.arith.maxsi(w.arith.shrui(bits, w.constant(w.format.fraction)), w.constant(1))


def _whole(w: FloatBits, bits: mlir.Value) -> mlir.Value:
    """The integer significand of a magnitude."""
    leading = w.constant(1 << w.format.fraction)
    is_normal = w.arith.cmpi(w.arith.CmpIPredicate.uge, bits, leading)
    fraction = w.arith.andi(bits, w.constant((1 << w.format.fraction) - 1))
    return w.arith.select(is_normal, w.arith.ori(fraction, leading), fraction)


def _scaled_remainder(s: Scalars, w: FloatBits, rest: mlir.Value, divisor: mlir.Value, gap: mlir.Value) -> mlir.Value:
    """`(rest·2^gap) mod divisor` for `rest < divisor`; a negative gap is 0."""
    scf, arith = mlir.dialect("scf"), s.arith
    free = w.format.width - (w.format.fraction + 1)
    loop = scf.WhileOp([w.integer, w.integer], [rest, gap])
    before = loop.before.blocks.append(w.integer, w.integer)
    with mlir.ir.InsertionPoint(before):
        left = arith.cmpi(arith.CmpIPredicate.sgt, before.arguments[1], w.constant(0))
        scf.ConditionOp(left, list(before.arguments))
    after = loop.after.blocks.append(w.integer, w.integer)
    with mlir.ir.InsertionPoint(after):
        value, left = after.arguments
        taken = arith.minsi(left, w.constant(free))
        scf.YieldOp([arith.remui(arith.shli(value, taken), divisor), w.sub(left, taken)])
    return loop.results[0]
