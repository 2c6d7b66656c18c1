"""The error function of f32 and f64 scalars and its complement, to about 1 ulp."""

from __future__ import annotations

import math
from fractions import Fraction

from rlx import mlir
from rlx.numerics.coefficients import (
    ERF_FAR,
    ERF_NEAR,
    ERF_P,
    ERF_Q,
    ERF_SPLIT,
    ERF_TOP,
    ERFC_SCALED,
    ERFC_SHIFT,
    ERFC_SHORT,
    ERFC_SLOPE,
)
from rlx.numerics.powers import exp_of_rest, exp_rest, times_power_of_two
from rlx.numerics.scalars import Scalars
from rlx.numerics.series import horner
from rlx.numerics.words import FloatBits, with_sign_of

# `erf(x)/x` is at most 1.13. As 1 + (P - Q)/Q, less of the quotient's rounding error remains.
_EXCESS = [p - q for p, q in zip(ERF_P, ERF_Q, strict=True)]

# From here on the complement is 0.
_ZERO, _SHORT_ZERO = 27.5, 10.5
# Up to here `erf x = _SLOPE·x` in f64.
_TINY, _SLOPE = 1e-300, 2 / math.sqrt(math.pi)


def erf(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The error function. The sign of a zero is kept."""
    size = s.math.absf(x)
    if s.dtype.name == "f32":
        return with_sign_of(s, _by_polynomials(s, size), x)
    near = s.math.fma(size, _excess(s, size), size)
    # Without an fma instruction this is a product, which may be flushed to 0 if it is subnormal.
    near = s.select(s.compare("lt", size, s.constant(_TINY)), s.mul(size, s.constant(_SLOPE)), near)
    far = s.sub(s.constant(1.0), _complement(s, size))
    value = s.select(s.compare("lt", size, s.constant(0.5)), near, far)
    return s.select(s.is_nan(x), x, with_sign_of(s, value, x))


def _by_polynomials(s: Scalars, size: mlir.Value) -> mlir.Value:
    """`erf(size)` in f32; NaN stays NaN. It takes a third of the time of a version that is also precise for the complement.

    Both polynomials are evaluated as one, with selected argument and coefficients. A selection is cheaper than a step of a
    second polynomial.
    """
    near = s.compare("lt", size, s.constant(ERF_SPLIT))
    x = _at_most(s, size, ERF_TOP)
    scale = 2 / (ERF_TOP - ERF_SPLIT)
    place = s.math.fma(x, s.constant(scale), s.constant(-1 - scale * ERF_SPLIT))
    place = s.select(near, s.mul(x, x), place)
    pairs = zip(ERF_NEAR, ERF_FAR, strict=True)
    *coefficients, value = (s.select(near, s.constant(a), s.constant(b)) for a, b in pairs)
    for coefficient in reversed(coefficients):
        value = s.math.fma(value, place, coefficient)
    square = s.mul(value, value)
    return s.select(near, s.math.fma(value, x, x), s.math.fma(s.neg(square), square, s.constant(1.0)))


def _at_most(s: Scalars, x: mlir.Value, limit: float) -> mlir.Value:
    """The minimum, or NaN if x is NaN. It is one instruction on x86-64; `minimumf`, which also orders zeros, takes three."""
    bound = s.constant(limit)
    return s.select(s.compare("gt", x, bound), bound, x)


def erfc(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`1 - erf(x)`, without cancellation."""
    one, size = s.constant(1.0), s.math.absf(x)
    short = s.dtype.name == "f32"
    excess = horner(s, s.mul(x, x), ERF_NEAR) if short else _excess(s, size)
    near = s.math.fma(s.neg(x), excess, s.sub(one, x))
    complement = _short_complement(s, size) if short else _complement(s, size)
    far = s.select(s.compare("lt", x, s.constant(0.0)), s.sub(s.constant(2.0), complement), complement)
    return s.select(s.is_nan(x), x, s.select(s.compare("lt", size, s.constant(0.5)), near, far))


def _excess(s: Scalars, size: mlir.Value) -> mlir.Value:
    """`erf(x)/x - 1` up to 0.5."""
    bounded = _at_most(s, size, 0.5)
    square = s.mul(bounded, bounded)
    return s.div(horner(s, square, _EXCESS), horner(s, square, ERF_Q))


def _complement(s: Scalars, size: mlir.Value) -> mlir.Value:
    """`erfc(size)` of f64 from 0.5 on."""
    one = s.constant(1.0)
    least = s.constant(0.5)
    x = _at_most(s, s.select(s.compare("gt", size, least), size, least), _ZERO)
    square = s.mul(x, x)
    square_low = s.math.fma(x, x, s.neg(square))
    count, r, r_low = exp_rest(s, s.neg(square), s.neg(square_low))
    r, curve = exp_of_rest(s, r, r_low)
    decay = s.add(one, r)
    decay_low = s.add(s.add(s.sub(one, decay), r), curve)
    place = s.sub(one, s.div(s.constant(7.0), s.add(x, s.constant(3.0))))
    first, *others = ERFC_SCALED
    base, base_low = FloatBits(s).parts(Fraction(first))
    tail = s.mul(place, horner(s, place, others))
    scaled = s.add(base, tail)
    scaled_low = s.add(s.add(s.sub(base, scaled), tail), base_low)
    twice = s.add(x, x)
    under = s.add(twice, one)
    under_low = s.sub(one, s.sub(under, twice))
    inverse = s.div(one, under)
    quotient = s.mul(scaled, inverse)
    rest = s.sub(s.math.fma(s.neg(quotient), under, scaled), s.sub(s.mul(quotient, under_low), scaled_low))
    low = s.math.fma(decay_low, quotient, s.mul(decay, s.mul(rest, inverse)))
    return times_power_of_two(s, s.math.fma(decay, quotient, low), count)


def _short_complement(s: Scalars, size: mlir.Value) -> mlir.Value:
    """`erfc(size)` of f32 from 0.5 on, with an error of less than 2 ulp."""
    one, bound = s.constant(1.0), s.constant(_SHORT_ZERO)
    x = s.select(s.compare("lt", size, bound), size, bound)
    square = s.mul(x, x)
    count, r, r_low = exp_rest(s, s.neg(square), s.neg(s.math.fma(x, x, s.neg(square))))
    r, curve = exp_of_rest(s, r, r_low)
    under = s.add(x, one)
    inverse = s.div(one, under)
    scaled = horner(s, s.math.fma(inverse, s.constant(ERFC_SLOPE), s.constant(ERFC_SHIFT)), ERFC_SHORT)
    quotient = s.mul(scaled, inverse)
    under_low = s.sub(x, s.sub(under, one))
    rest = s.math.fma(s.neg(quotient), under_low, s.math.fma(s.neg(quotient), under, scaled))
    rest = s.mul(rest, inverse)
    rest = s.math.fma(rest, r, rest)
    value = s.add(quotient, s.math.fma(quotient, r, s.math.fma(quotient, curve, rest)))
    return times_power_of_two(s, value, count)
