"""Elementary functions of f32 values in kernels.

Each is an approximation of a few operations. The largest error is given in ulp, as the tests measure it. Results below the
smallest normal number are 0, because compiled programs flush them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.dtype import i32
from rlx.kernels.values import Value, where

_LOG2_E = 1.4426950408889634
# log(2) in two parts: the product of the first one with an integer of up to 9 bits is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
_ROUNDING = 12582912.0  # 1.5 · 2^23: adding it rounds a float to an integer, which is then in the lowest bits
# (exp(r) - 1 - r) / r² for |r| <= log(2)/2, a minimax polynomial.
_EXP = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166838899254799,
    0.008368710987269878,
    0.0013814608100801706,
)
_LEAST, _GREATEST = -87.33, 88.72


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial by Horner's rule, the constant coefficient first."""
    result = x * 0.0 + coefficients[-1] if len(coefficients) == 1 else None
    for coefficient in reversed(coefficients[:-1]):
        result = x.fma(coefficients[-1], coefficient) if result is None else result.fma(x, coefficient)
    assert result is not None
    return result


def exp_of_nonpositive(x: Value) -> Value:
    """The exponential function for numbers up to 0, to 1 ulp. It saves the check for overflow."""
    return where(x < _LEAST, 0.0, _exp(x))


def exp(x: Value) -> Value:
    """The exponential function, to 1 ulp."""
    # 88 < x: half of the result, doubled, because 2^128 overflows.
    is_large = x > 88.0
    y = _exp(where(is_large, x - 0.6931471805599453, x))
    y = where(is_large, y * 2.0, y)
    return where(x > _GREATEST, float("inf"), where(x < _LEAST, 0.0, y))


def _exp(x: Value) -> Value:
    """Return 2^n · exp(r), which is exp(x), with n the integer nearest to x / log(2), for results that are normal numbers."""
    shifted = x.fma(_LOG2_E, _ROUNDING)
    n = shifted - _ROUNDING
    r = n.fma(-_LN2_LOW, n.fma(-_LN2_HIGH, x))
    scale = ((shifted.bits(i32) << 23) + (127 << 23)).bits(x.element)  # type: ignore[arg-type]
    q = (r * r).fma(polynomial(r, _EXP), r)
    return scale.fma(q, scale)
