"""Logarithms, exponentials and cube roots of f32 and f64 scalars, to about 1 ulp.

All use `log` and `exp` of sums of two floats (`powers.py`), so that results close to 0 keep their relative precision.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from rlx import mlir
from rlx.numerics.powers import (
    TOLERANCE,
    exp_of_rest,
    exp_pair,
    exp_rest,
    log_pair,
    product,
    short_log,
    split,
    times_power_of_two,
)
from rlx.numerics.scalars import Scalars
from rlx.numerics.series import LN2, LN10, economise, horner
from rlx.numerics.words import FloatBits

_Pair = tuple["mlir.Value", "mlir.Value"]

# Below the first limit `exp(x) - 1` is -1. From the others on it is infinite.
_MINUS_ONE, _INFINITE = -40.0, {"f32": 90.0, "f64": 711.0}
# The bits of the upper part of a factor. Its product with an exponent is exact.
_BITS = {"f32": 14, "f64": 40}


def log(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The natural logarithm; NaN below 0. Compilers expand `log` of f32 well, but that of f64 takes three times as long."""
    return s.math.log(x) if s.dtype.name != "f64" else accurate_log(s, x)


def accurate_log(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`log`, without the compiler's own function."""
    return _special_logs(s, x, s.add(*log_pair(s, x, short_log)))


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
    high, low = log_pair(s, u, short_log)
    correction = s.div(s.add(lost, x_low), u)
    # No correction at 0 and where it overflows.
    plain = s.arith.ori(s.compare("eq", u, zero), s.compare("eq", u, s.constant(math.inf)))
    return s.add(high, s.add(low, s.select(plain, zero, correction)))


def expm1(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`exp(x) - 1`. The sign of a zero is kept."""
    least, most = s.constant(_MINUS_ONE), s.constant(_INFINITE[s.dtype.name])
    bounded = s.select(s.compare("gt", x, least), x, least)
    count, high, low = exp_rest(s, s.select(s.compare("lt", bounded, most), bounded, most), s.constant(0.0))
    r, curve = exp_of_rest(s, high, low)
    # 2^n·(exp r) - 1 with 2^n in two factors, a and b: b·(a·(exp r - 1) + (a - 1/b)).
    w = FloatBits(s)
    n = w.to_integer(count)
    half = w.right_signed(n, 1)
    other = w.sub(n, half)
    power = w.power_of_two(half)
    rest = s.sub(power, w.power_of_two(w.sub(w.constant(0), other)))
    value = s.mul(s.math.fma(power, s.add(r, curve), rest), w.power_of_two(other))
    return s.select(s.arith.ori(s.compare("eq", x, s.constant(0.0)), s.is_nan(x)), x, value)


def exp2(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`2**x`, exact for integers."""
    w = FloatBits(s)
    # Outside these limits, the result is 0 or infinity.
    least, most = -(w.format.bias + w.format.fraction + 2.0), w.format.bias + 2.0
    bounded = s.select(s.compare("gt", x, s.constant(least)), x, s.constant(least))  # NaN also becomes the limit
    bounded = s.select(s.compare("lt", bounded, s.constant(most)), bounded, s.constant(most))
    whole = s.nearest(bounded)
    fraction = s.sub(bounded, whole)
    value = s.math.fma(fraction, horner(s, fraction, _exp2_series(s.dtype.name)), s.constant(1.0))
    return s.select(s.is_nan(x), x, times_power_of_two(s, value, whole))


@cache
def _exp2_series(dtype: str) -> tuple[float, ...]:
    """`(2**x - 1)/x` for |x| <= 0.5."""
    interval = Fraction(-1, 2), Fraction(1, 2)
    return economise(lambda n: LN2 ** (n + 1) / math.factorial(n + 1), 18, interval, 2 * TOLERANCE[dtype])


def log2(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The logarithm to base 2, exact for powers of 2; NaN below 0."""
    exponent, m = split(s, x)
    return _special_logs(s, x, _of_base(s, exponent, None, short_log(s, m), 1 / LN2))


def log10(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The logarithm to base 10; NaN below 0."""
    exponent, m = split(s, x)
    bits, ratio = _BITS[s.dtype.name], LN2 / LN10
    high = Fraction(round(ratio * 2**bits), 2**bits)
    base = s.mul(exponent, s.constant(float(high)))
    return _special_logs(
        s, x, _of_base(s, base, s.mul(exponent, s.constant(float(ratio - high))), short_log(s, m), 1 / LN10)
    )


def _of_base(s: Scalars, base: mlir.Value, base_low: mlir.Value | None, log: _Pair, factor: Fraction) -> mlir.Value:
    """`base + base_low + factor·log`, where the base is 0 or larger than the rest. Without `base_low`, the base is exact."""
    high, low = product(s, log, FloatBits(s).parts(factor))
    total = s.add(base, high)
    low = low if base_low is None else s.add(low, base_low)
    return s.add(total, s.add(s.add(s.sub(base, total), high), low))


def _special_logs(s: Scalars, x: mlir.Value, value: mlir.Value) -> mlir.Value:
    zero, infinity = s.constant(0.0), s.constant(math.inf)
    value = s.select(s.compare("eq", x, infinity), infinity, value)
    value = s.select(s.compare("eq", x, zero), s.constant(-math.inf), value)
    undefined = s.arith.ori(s.is_nan(x), s.compare("lt", x, zero))
    return s.select(undefined, s.constant(math.nan), value)


def cbrt(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The real cube root, with the sign of x."""
    w = FloatBits(s)
    size = s.math.absf(x)
    high, low = product(s, log_pair(s, size, short_log), w.parts(Fraction(1, 3)))
    root = w.with_sign_flipped(exp_pair(s, high, low), w.sign(x))
    plain = s.arith.ori(s.compare("eq", x, s.constant(0.0)), s.compare("eq", size, s.constant(math.inf)))
    return s.select(s.arith.ori(plain, s.is_nan(x)), x, root)
