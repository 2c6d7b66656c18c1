"""`a**b` of f32 and f64 scalars, with C99's special cases.

A code generator's own version is exp(b·log a): its error grows with the exponent of the result, and the result is NaN for
negative bases. Here log a is computed to 1.5 times the precision, as a sum of two floats (after the algorithm of K. C. Ng in
fdlibm's e_pow.c, with fused multiply-add instead of split factors).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from rlx import mlir
from rlx.numerics.scalars import Scalars, constant
from rlx.numerics.series import LN2, economise, horner
from rlx.numerics.words import FloatBits, nearest_even

_Pair = tuple["mlir.Value", "mlir.Value"]

# The bits of ln 2 in the upper float. Its product with an exponent is exact; a second float has the rest.
_LN2_BITS = {"f32": 14, "f64": 40}
# Beyond these limits exp is 0 or infinity. They are within the range of `times_power_of_two`.
_LARGEST_EXPONENT = {"f32": 120.0, "f64": 800.0}
_DENORMAL_SCALE = {"f32": 24, "f64": 54}
# Greatest absolute error of the series, whose values are at most about 1.
TOLERANCE = {"f32": 2.0**-30, "f64": 2.0**-60}


def power(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """`a**b`: 1 for b = 0 or a = 1, regardless of the other operand; NaN for a negative base and a fractional exponent."""
    zero, one = s.constant(0.0), s.constant(1.0)
    infinity, nan = s.constant(math.inf), s.constant(math.nan)
    either = s.arith.ori
    size = s.math.absf(a)
    result = exp_pair(s, *_scaled_log(s, size, b))
    result = s.select(s.compare("eq", size, one), one, result)
    w = FloatBits(s)
    whole = _is_whole(s, b)
    even = _is_whole(s, s.mul(b, s.constant(0.5)))
    odd = s.arith.andi(whole, s.arith.xori(even, constant(1, even.type)))
    result = w.with_sign_flipped(result, s.select(odd, w.sign(a), w.constant(0)))
    negative = s.arith.andi(s.compare("lt", a, zero), s.compare("lt", size, infinity))
    undefined = s.arith.andi(negative, s.arith.xori(whole, constant(1, whole.type)))
    undefined = either(undefined, either(s.is_nan(a), s.is_nan(b)))
    result = s.select(undefined, nan, result)
    return s.select(either(s.compare("eq", b, zero), s.compare("eq", a, one)), one, result)


def _is_whole(s: Scalars, x: mlir.Value) -> mlir.Value:
    size = s.math.absf(x)
    return s.compare("eq", nearest_even(s, size), size)


def _scaled_log(s: Scalars, size: mlir.Value, factor: mlir.Value) -> _Pair:
    """factor·log(size) as a sum of two floats."""
    high, low = log_pair(s, size, exact_log)
    product = s.mul(factor, high)
    lost = s.math.fma(factor, high, s.neg(product))
    return product, s.math.fma(factor, low, lost)


def log_pair(s: Scalars, size: mlir.Value, log: Callable[[Scalars, mlir.Value], _Pair]) -> _Pair:
    """log(size) for size >= 0 as a float and a correction; -infinity at 0.

    With size = 2^e·m and m between √½ and √2, it is e·log 2 + log(m), and `log` is `short_log` or `exact_log`.
    """
    exponent, m = split(s, size)
    high, low = log(s, m)
    ln2_high, ln2_low = ln2_pair(s)
    base = s.mul(exponent, ln2_high)
    total = s.add(base, high)
    lost = s.add(s.sub(base, total), high)
    rest = s.add(lost, s.math.fma(exponent, ln2_low, low))
    infinity = s.constant(math.inf)
    special = s.compare("eq", size, infinity)
    total = s.select(special, infinity, total)
    at_zero = s.compare("eq", size, s.constant(0.0))
    total = s.select(at_zero, s.constant(-math.inf), total)
    return total, s.select(s.arith.ori(special, at_zero), s.constant(0.0), rest)


def split(s: Scalars, size: mlir.Value) -> _Pair:
    """The exponent, as a float, and the mantissa between √½ and √2."""
    w = FloatBits(s)
    bits = _DENORMAL_SCALE[s.dtype.name]
    tiny = s.compare("lt", size, s.constant(2.0 ** (1 - w.format.bias)))
    size = s.select(tiny, s.mul(size, s.constant(2.0**bits)), size)
    word = w.of(size)
    offset = w.sub(word, w.constant(w.bits_of_constant(math.sqrt(0.5))))
    exponent = w.right_signed(offset, w.format.fraction)
    m = w.float_of(w.sub(word, w.left(exponent, w.format.fraction)))
    exponent = w.to_float(exponent)
    return s.select(tiny, s.sub(exponent, s.constant(float(bits))), exponent), m


def short_log(s: Scalars, m: mlir.Value) -> _Pair:
    """log(m) as a sum of two floats, with an error of 0.1 ulp of the larger.

    With f = m - 1 it is `f - (f²/2 - r·(f²/2 + R))`, where r = f/(2 + f) and `2·atanh r = 2·r + r·R`. The large terms are
    exact (after K. C. Ng's algorithm in fdlibm's e_log.c).
    """
    one = s.constant(1.0)
    f = s.sub(m, one)
    r = s.div(f, s.add(m, one))
    z = s.mul(r, r)
    curve = s.mul(z, horner(s, z, [2 * c for c in (1 / 3, *_log_series(s.dtype.name))]))
    half = s.mul(s.mul(s.constant(0.5), f), f)
    high = s.sub(f, half)
    return high, s.math.fma(r, s.add(half, curve), s.sub(s.sub(f, high), half))


def exact_log(s: Scalars, m: mlir.Value) -> _Pair:
    """log(m) to 1.5 times the precision.

    It is 2·atanh(r), r = (m - 1)/(m + 1), and `atanh r = r + r·z·(1/3 + z·R(z))` with z = r². All are sums of two floats.
    """
    fma = s.math.fma
    one = s.constant(1.0)
    over, under = s.sub(m, one), s.add(m, one)
    under_low = s.add(s.sub(one, under), m)
    r = s.div(over, under)
    r_low = s.div(s.sub(fma(s.neg(r), under, over), s.mul(r, under_low)), under)
    z = s.mul(r, r)
    z_low = fma(s.add(r, r), r_low, fma(r, r, s.neg(z)))
    third, third_low = FloatBits(s).parts(Fraction(1, 3))
    rest = s.mul(z, horner(s, z, _log_series(s.dtype.name)))
    u = s.add(third, rest)
    u_low = s.add(s.add(s.sub(third, u), rest), third_low)
    v, v_low = product(s, (z, z_low), (u, u_low))
    t, t_low = product(s, (r, r_low), (v, v_low))
    high = s.add(r, t)
    low = s.add(s.add(s.sub(r, high), t), s.add(r_low, t_low))
    return s.add(high, high), s.add(low, low)


def product(s: Scalars, a: _Pair, b: _Pair) -> _Pair:
    """The product of two sums of two floats."""
    fma = s.math.fma
    high = s.mul(a[0], b[0])
    return high, fma(a[0], b[1], fma(a[1], b[0], fma(a[0], b[0], s.neg(high))))


def exp_pair(s: Scalars, high: mlir.Value, low: mlir.Value) -> mlir.Value:
    """exp(high + low), where low is a correction to high. low is ignored where exp is 0, infinity or NaN."""
    limit = _LARGEST_EXPONENT[s.dtype.name]
    inside = s.compare("lt", s.math.absf(high), s.constant(limit))
    beyond = s.select(s.compare("gt", high, s.constant(0.0)), s.constant(limit), s.constant(-limit))
    bounded, low = s.select(inside, high, beyond), s.select(inside, low, s.constant(0.0))
    count, r, r_low = exp_rest(s, bounded, low)
    value = s.add(s.constant(1.0), s.add(*exp_of_rest(s, r, r_low)))
    return s.select(s.is_nan(high), high, times_power_of_two(s, value, count))


def times_power_of_two(s: Scalars, value: mlir.Value, count: mlir.Value) -> mlir.Value:
    """`value·2^count` for an integer `count`, in two factors, so that `count` may exceed the exponent range of the format."""
    w = FloatBits(s)
    n = w.to_integer(count)
    half = w.right_signed(n, 1)
    return s.mul(s.mul(value, w.power_of_two(half)), w.power_of_two(w.sub(n, half)))


def exp_rest(s: Scalars, high: mlir.Value, low: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
    """The multiple of log 2 nearest to high + low, as a float, and the remainder: at most log(2)/2, as a sum of two floats."""
    count = s.nearest(s.mul(high, s.constant(1 / math.log(2))))
    ln2_high, ln2_low = ln2_pair(s)
    rest = s.math.fma(s.neg(count), ln2_high, high)
    small = s.math.fma(s.neg(count), ln2_low, low)
    r = s.add(rest, small)
    return count, r, s.add(s.sub(rest, r), small)


def exp_of_rest(s: Scalars, r: mlir.Value, r_low: mlir.Value) -> _Pair:
    """`exp(r + r_low) - 1` as a sum of two floats, for |r| up to log(2)/2."""
    curve = s.mul(s.mul(r, r), horner(s, r, _exp_series(s.dtype.name)))
    return r, s.add(r_low, curve)


def ln2_pair(s: Scalars) -> _Pair:
    """Return log 2 as a float whose product with any exponent is exact, and the rest."""
    bits = _LN2_BITS[s.dtype.name]
    high = Fraction(round(LN2 * 2**bits), 2**bits)
    return s.constant(float(high)), s.constant(float(LN2 - high))


@cache
def _log_series(dtype: str) -> tuple[float, ...]:
    """R(z) with atanh r = r + r·z·(1/3 + z·R(z)), z = r², up to (3 - √8)² < 0.0295."""
    interval = Fraction(0), Fraction(295, 10000)
    return economise(lambda n: Fraction(1, 2 * n + 5), 24, interval, TOLERANCE[dtype] * 2**6)


@cache
def _exp_series(dtype: str) -> tuple[float, ...]:
    """E(r) with exp r = 1 + r + r²·E(r), for |r| up to log(2)/2 < 0.347."""
    interval = Fraction(-347, 1000), Fraction(347, 1000)
    return economise(lambda n: Fraction(1, math.factorial(n + 2)), 18, interval, TOLERANCE[dtype])
