"""Logarithms, exponentials and cube roots of f32 and f64 scalars, to about one unit in the last place.

All are made of `log` and `exp` of sums of two floats (`powers.py`), so that nothing is lost where results are close to 0.
"""

from __future__ import annotations

import math
from fractions import Fraction

from rlx import mlir
from rlx.lower.libm.powers import exp_of_rest, exp_pair, exp_rest, half_log, log_pair, product, split
from rlx.lower.libm.scalars import Scalars
from rlx.lower.libm.series import LN2, LN10
from rlx.lower.libm.words import Words

_Pair = tuple["mlir.Value", "mlir.Value"]

# Beyond these, `exp x` swallows the 1 that is taken off, or is swallowed by it.
_FAR = {"f32": 15.0, "f64": 34.0}
# How many bits the upper part of a factor has, so that its product with an exponent is exact.
_BITS = {"f32": 14, "f64": 40}


def log1p(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`log(1 + x)`; NaN below -1. The sign of a zero is kept."""
    result = log1p_of_pair(s, x, s.constant(0.0))
    result = s.select(s.compare("eq", x, s.constant(math.inf)), x, result)
    undefined = s.arith.ori(s.is_nan(x), s.compare("lt", x, s.constant(-1.0)))
    result = s.select(undefined, s.constant(math.nan), result)
    return s.select(s.compare("eq", x, s.constant(0.0)), x, result)


def log1p_of_pair(s: Scalars, x: mlir.Value, x_low: mlir.Value) -> mlir.Value:
    """`log(1 + x + x_low)` for a finite x above -1, where x_low is a correction to x; minus infinity for -1."""
    zero, one = s.constant(0.0), s.constant(1.0)
    u = s.add(one, x)
    is_large = s.compare("gt", x, one)
    lost = s.select(is_large, s.sub(one, s.sub(u, x)), s.sub(x, s.sub(u, one)))
    high, low = log_pair(s, u)
    correction = s.div(s.add(lost, x_low), u)
    # At 0 and where it overflows, there is nothing to correct.
    plain = s.arith.ori(s.compare("eq", u, zero), s.compare("eq", u, s.constant(math.inf)))
    return s.add(high, s.add(low, s.select(plain, zero, correction)))


def expm1(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`exp(x) - 1`. The sign of a zero is kept."""
    limit = s.constant(_FAR[s.dtype.name])
    size = s.math.absf(x)
    zero, one = s.constant(0.0), s.constant(1.0)
    is_far = s.arith.ori(s.compare("gt", size, limit), s.is_nan(x))
    far = s.sub(exp_pair(s, x, zero), one)
    count, high, low = exp_rest(s, s.select(is_far, one, x), zero)
    w = Words(s)
    power = w.power_of_two(w.to_integer(count))
    r, curve = exp_of_rest(s, high, low)
    near = s.math.fma(power, s.add(r, curve), s.sub(power, one))
    return s.select(s.compare("eq", x, zero), x, s.select(is_far, far, near))


def exp2(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`2**x`, exact for whole numbers."""
    w = Words(s)
    ln2, ln2_low = w.parts(LN2)
    # Beyond, all is 0 or infinity. What is left of x is exact, and so are products with 0.
    limit = s.constant(2.0 * w.format.bias)
    bounded = s.min(s.max(x, s.neg(limit)), limit)
    whole = s.math.roundeven(bounded)
    fraction = s.sub(bounded, whole)
    high = s.mul(fraction, ln2)
    low = s.math.fma(fraction, ln2_low, s.math.fma(fraction, ln2, s.neg(high)))
    r, curve = exp_of_rest(s, high, low)
    value = s.add(s.constant(1.0), s.add(r, curve))
    # 2^n in four factors: n reaches far beyond the exponents of the format on both sides.
    n = w.to_integer(s.select(s.is_nan(x), s.constant(0.0), whole))
    half = w.right_signed(n, 1)
    for part in (half, w.sub(n, half)):
        quarter = w.right_signed(part, 1)
        value = s.mul(s.mul(value, w.power_of_two(quarter)), w.power_of_two(w.sub(part, quarter)))
    return s.select(s.is_nan(x), x, value)


def log2(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The logarithm to base 2, exact for powers of 2; NaN below 0."""
    exponent, m = split(s, x)
    return _special_logs(s, x, _of_base(s, exponent, s.constant(0.0), half_log(s, m), 2 / LN2))


def log10(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The logarithm to base 10; NaN below 0."""
    exponent, m = split(s, x)
    bits, ratio = _BITS[s.dtype.name], LN2 / LN10
    high = Fraction(round(ratio * 2**bits), 2**bits)
    base = s.mul(exponent, s.constant(float(high)))
    return _special_logs(
        s, x, _of_base(s, base, s.mul(exponent, s.constant(float(ratio - high))), half_log(s, m), 2 / LN10)
    )


def _of_base(s: Scalars, base: mlir.Value, base_low: mlir.Value, log: _Pair, factor: Fraction) -> mlir.Value:
    """`base + base_low + factor·log`, where the base is 0 or larger than the rest."""
    high, low = product(s, log, Words(s).parts(factor))
    total = s.add(base, high)
    return s.add(total, s.add(s.add(s.sub(base, total), high), s.add(low, base_low)))


def _special_logs(s: Scalars, x: mlir.Value, value: mlir.Value) -> mlir.Value:
    zero, infinity = s.constant(0.0), s.constant(math.inf)
    value = s.select(s.compare("eq", x, infinity), infinity, value)
    value = s.select(s.compare("eq", x, zero), s.constant(-math.inf), value)
    undefined = s.arith.ori(s.is_nan(x), s.compare("lt", x, zero))
    return s.select(undefined, s.constant(math.nan), value)


def cbrt(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The real cube root, with the sign of x."""
    w = Words(s)
    size = s.math.absf(x)
    high, low = product(s, log_pair(s, size), w.parts(Fraction(1, 3)))
    root = w.with_sign_flipped(exp_pair(s, high, low), w.sign(x))
    plain = s.arith.ori(s.compare("eq", x, s.constant(0.0)), s.compare("eq", size, s.constant(math.inf)))
    return s.select(s.arith.ori(plain, s.is_nan(x)), x, root)
