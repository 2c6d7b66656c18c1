"""Hyperbolic functions of f32 and f64 scalars and their inverses, to about 1 ulp.

They are series where results are small, else sums of exponentials, and logarithms of sums of two floats.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from rlx import mlir
from rlx.numerics.arithmetic import sum_error
from rlx.numerics.logarithms import log1p_of_pair
from rlx.numerics.powers import exp_pair, log_pair, short_log
from rlx.numerics.scalars import Scalars
from rlx.numerics.series import LN2, economise, horner
from rlx.numerics.words import FloatBits, with_sign_of

_Pair = tuple["mlir.Value", "mlir.Value"]

_TOLERANCE = {"f32": 2.0**-28, "f64": 2.0**-58}
# From here on `sqrt(x² ± 1)` rounds to x.
_FAR = {"f32": 2.0**14, "f64": 2.0**28}


def _half_exp(s: Scalars, size: mlir.Value) -> mlir.Value:
    """`exp(size)/2`, even where `exp(size)` overflows."""
    high, low = FloatBits(s).parts(LN2)
    x = s.sub(size, high)
    return exp_pair(s, x, s.sub(s.sub(s.sub(size, x), high), low))


def sinh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Hyperbolic sine. The sign of a zero is kept."""
    size = s.math.absf(x)
    half = _half_exp(s, size)
    far = s.sub(half, s.div(s.constant(0.25), half))
    is_near = s.compare("lt", size, s.constant(1.0))
    bounded = s.select(is_near, size, s.constant(0.0))
    square = s.mul(bounded, bounded)
    near = s.math.fma(s.mul(bounded, square), horner(s, square, _sinh_series(s.dtype.name)), bounded)
    return with_sign_of(s, s.select(is_near, near, far), x)


def cosh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Hyperbolic cosine."""
    half = _half_exp(s, s.math.absf(x))
    return s.add(half, s.div(s.constant(0.25), half))


@cache
def _sinh_series(dtype: str) -> tuple[float, ...]:
    """P(z) with sinh x = x + x·z·P(z), z = x², up to 1."""
    interval = Fraction(0), Fraction(1)
    return economise(lambda n: Fraction(1, math.factorial(2 * n + 3)), 16, interval, _TOLERANCE[dtype])


# --- inverses ---------------------------------------------------------------------------------------


def asinh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Inverse of `sinh`. The sign of a zero is kept."""
    size = s.math.absf(x)
    is_far = s.compare("gt", size, s.constant(_FAR[s.dtype.name]))
    one = s.constant(1.0)
    bounded = s.select(is_far, one, size)
    square, lost = _squared(s, bounded)
    total = s.add(square, one)
    below = s.select(s.compare("gt", square, one), s.sub(one, s.sub(total, square)), s.sub(square, s.sub(total, one)))
    root, root_low = _root(s, total, s.add(below, lost))
    # sqrt(1 + x²) - 1 = x²/(1 + sqrt(1 + x²)), which is small with x.
    under = s.add(one, root)
    share = s.div(square, under)
    under_lost = s.add(s.sub(root, s.sub(under, one)), root_low)
    rest = s.sub(s.math.fma(s.neg(share), under, square), s.mul(share, under_lost))
    share_low = s.div(s.add(rest, lost), under)
    y, y_low = _sum(s, bounded, share)
    near = log1p_of_pair(s, y, s.add(y_low, share_low))
    result = with_sign_of(s, s.select(is_far, _log_of_double(s, size), near), x)
    return s.select(s.arith.ori(s.compare("eq", x, s.constant(0.0)), s.is_nan(x)), x, result)


def acosh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Non-negative inverse of `cosh`; NaN below 1."""
    one = s.constant(1.0)
    is_far = s.compare("gt", x, s.constant(_FAR[s.dtype.name]))
    undefined = s.arith.ori(s.compare("lt", x, one), s.is_nan(x))
    bounded = s.select(s.arith.ori(is_far, undefined), one, x)
    excess = s.sub(bounded, one)
    excess_low = s.sub(s.sub(bounded, excess), one)
    # x² - 1 = d·(d + 2) with d = x - 1
    above = s.add(bounded, one)
    above_low = s.sub(one, s.sub(above, bounded))
    area = s.mul(excess, above)
    area_low = s.add(s.math.fma(excess, above, s.neg(area)), s.math.fma(excess, above_low, s.mul(excess_low, above)))
    root, root_low = _root(s, area, area_low)
    y, y_low = _sum(s, root, excess)
    near = log1p_of_pair(s, y, s.add(y_low, s.add(root_low, excess_low)))
    near = s.select(s.compare("eq", bounded, one), s.constant(0.0), near)
    return s.select(undefined, s.constant(math.nan), s.select(is_far, _log_of_double(s, x), near))


def atanh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Inverse of `tanh`; infinite at 1 and -1, NaN beyond. The sign of a zero is kept."""
    one, size = s.constant(1.0), s.math.absf(x)
    is_inside = s.compare("lt", size, one)
    bounded = s.select(is_inside, size, s.constant(0.0))
    # (1 + x)/(1 - x) = 1 + 2x/(1 - x)
    under = s.sub(one, bounded)
    under_low = s.sub(s.sub(one, under), bounded)
    twice = s.add(bounded, bounded)
    ratio = s.div(twice, under)
    ratio_low = s.div(s.sub(s.math.fma(s.neg(ratio), under, twice), s.mul(ratio, under_low)), under)
    found = s.mul(s.constant(0.5), log1p_of_pair(s, ratio, ratio_low))
    at_one = s.select(s.compare("eq", size, one), s.constant(math.inf), s.constant(math.nan))
    result = with_sign_of(s, s.select(is_inside, found, at_one), x)
    return s.select(s.compare("eq", x, s.constant(0.0)), x, result)


def _log_of_double(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`log(2x)` for a large x."""
    high, low = log_pair(s, x, short_log)
    ln2, ln2_low = FloatBits(s).parts(LN2)
    total = s.add(high, ln2)
    is_infinite = s.compare("eq", x, s.constant(math.inf))
    lost = s.add(s.add(s.sub(high, total), ln2), s.add(low, ln2_low))
    return s.select(is_infinite, x, s.add(total, lost))


def _squared(s: Scalars, x: mlir.Value) -> _Pair:
    """The square as a float and its rounding error."""
    square = s.mul(x, x)
    return square, s.math.fma(x, x, s.neg(square))


def _root(s: Scalars, square: mlir.Value, square_low: mlir.Value) -> _Pair:
    """The root of a sum of two floats, as a sum of two floats; 0 for 0."""
    root = s.math.sqrt(square)
    rest = s.add(s.math.fma(s.neg(root), root, square), square_low)
    is_zero = s.compare("eq", root, s.constant(0.0))
    divisor = s.select(is_zero, s.constant(1.0), s.add(root, root))
    return root, s.select(is_zero, s.constant(0.0), s.div(rest, divisor))


def _sum(s: Scalars, a: mlir.Value, b: mlir.Value) -> _Pair:
    """A sum and its rounding error, for operands in any order of magnitude (D. E. Knuth's two-sum)."""
    total = s.add(a, b)
    return total, sum_error(s, a, b, total)
