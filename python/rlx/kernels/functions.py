"""Elementary functions of f32 values in kernels.

Each is an approximation of a few operations. The largest error is given in ulp, as the tests measure it. Results below the
smallest normal number are 0, because compiled programs flush them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.ir.dtype import f32, i32, u16, u32
from rlx.kernels.values import Value, like, where
from rlx.numerics.coefficients import NORMAL, NORMAL_LIMIT


def of_bf16(bits: Value) -> Value:
    """The f32 values of bf16 numbers that are given by their bits, as u16."""
    return (bits.to(u32) << 16).bits(f32)


def of_f16(bits: Value) -> Value:
    """The f32 values of f16 numbers that are given by their bits, as u16."""
    return Value(bits.machine, bits.machine.widen_half(bits.data, bits.lanes), f32, bits.lanes)


def to_bf16(x: Value) -> Value:
    """The bits, as u16, of the bf16 numbers nearest to f32 values; ties to even."""
    bits = x.bits(u32)
    # Half a unit of the upper bits, or slightly less if they are even, carries into them. A NaN would carry into the sign.
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return where(x == x, rounded, 0x7FC0).to(u16)


def to_f16(x: Value) -> Value:
    """The bits, as u16, of the f16 numbers nearest to f32 values; ties to even."""
    bits = x.bits(u32)
    size = bits & 0x7FFFFFFF
    # Half a unit of the upper bits, or slightly less if they are even, carries into them. The exponents differ by 112.
    normal = ((size + (((size >> 13) & 1) + 0xFFF)) >> 13) - (112 << 10)
    # The sum with 1/2 is rounded to the unit of the subnormal numbers of f16.
    subnormal = (abs(x) + 0.5).bits(u32) - 0x3F000000
    small = where(size < 0x38800000, subnormal, normal)
    whole = where(size < 0x47800000, small, where(x == x, like(0x7C00, size), 0x7E00))
    return (whole | (bits >> 31) << 15).to(u16)


_LOG2_E = 1.4426950408889634
# log(2) in two parts: the product of the first one with an integer of up to 9 bits is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
ROUNDING = 12582912.0  # 1.5 · 2^23: adding it rounds a float to an integer, which is then in the lowest bits
# (exp(r) - 1 - r) / r² for |r| <= log(2)/2, a minimax polynomial.
_EXP = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166838899254799,
    0.008368710987269878,
    0.0013814608100801706,
)
# 2·atanh(s) / s - 2, divided by s², in powers of s².
_LOG = (0.6666666666, 0.4, 0.285714285, 0.2222222, 0.1818)
_ROOT_OF_HALF = 0x3F3504F3  # the bits of sqrt(1/2)
_LEAST, _GREATEST = -87.33, 88.72


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial by Horner's rule, the constant coefficient first."""
    result = like(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        result = result.fma(x, coefficient)
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
    shifted = x.fma(_LOG2_E, ROUNDING)
    n = shifted - ROUNDING
    r = n.fma(-_LN2_LOW, n.fma(-_LN2_HIGH, x))
    scale = ((shifted.bits(i32) << 23) + (127 << 23)).bits(x.element)  # type: ignore[arg-type]
    q = (r * r).fma(polynomial(r, _EXP), r)
    return _scaled(scale, q)


def _scaled(scale: Value, fraction: Value) -> Value:
    """Return scale · (1 + fraction), where scale · fraction may be below the smallest normal number."""
    return scale.fma(fraction, scale) if scale.machine.cpu.has_fma else (fraction + 1.0) * scale


def log(x: Value) -> Value:
    """The natural logarithm, to 1 ulp: -inf for 0, NaN for negative numbers."""
    # x = 2^n · (1 + z), with 1 + z between the roots of 1/2 and 2; log(1 + z) = 2·atanh(s).
    bits = x.bits(i32)
    exponent = (bits - _ROOT_OF_HALF) >> 23
    z = (bits - (exponent << 23)).bits(x.element) - 1.0
    s = z / (z + 2.0)
    w = s * s
    n = exponent.to(x.element)
    y = n.fma(_LN2_HIGH, n.fma(_LN2_LOW, z - s * (z - w * polynomial(w, _LOG))))
    y = where(x == 0.0, float("-inf"), where(x == float("inf"), x, y))
    return where(x >= 0.0, y, float("nan"))


# 2^f for |f| <= 1/2, without the constant 1: a minimax polynomial.
_EXP2 = (
    0.6931471805599453,
    0.24022650695910072,
    0.05550410866482158,
    0.009618129107628477,
    0.0013333558146428443,
    0.00015403530393381608,
)


def exp2_of_nonpositive(x: Value) -> Value:
    """2^x for numbers up to 0, to 1 ulp."""
    shifted = x + ROUNDING
    fraction = x - (shifted - ROUNDING)
    scale = ((shifted.bits(i32) << 23) + (127 << 23)).bits(x.element)  # type: ignore[arg-type]
    return where(x < -126.0, 0.0, _scaled(scale, fraction * polynomial(fraction, _EXP2)))


def transposed(rows: Sequence[Value]) -> list[Value]:
    """The columns of a square matrix that is given as its rows: log2(lanes) rounds of interleaved lanes."""
    size = len(rows)
    low = [i for pair in zip(range(size // 2), range(size, size + size // 2), strict=True) for i in pair]
    high = [i + size // 2 for i in low]
    values = list(rows)
    for _ in range(size.bit_length() - 1):
        half = size // 2
        values = [values[i // 2].shuffle(values[i // 2 + half], high if i % 2 else low) for i in range(size)]
    return values


# (tanh(x) - x) / x³ for |x| < 0.3.
_TANH = (-0.333332419395, 0.133314788, -0.0537397, 0.0208)


def gelu(x: Value) -> Value:
    """x·Φ(x), with Φ the normal distribution; -0 at minus infinity. The error is at most 2e-7 of |x|."""
    u = (x * x).fma(2 / NORMAL_LIMIT**2, -1.0)
    y = x * x.fma(polynomial(u, NORMAL), 0.5)
    return where(abs(x) > NORMAL_LIMIT, where(x > 0.0, x, -0.0), y)


def gelu_approx(x: Value) -> Value:
    """x/2 · (1 + tanh(sqrt(2/π)·(x + 0.044715 x³))): x · sigmoid of twice the argument; -0 at minus infinity."""
    return _times_sigmoid(x, (x * x).fma(0.044715, 1.0) * x * (2 * 0.7978845608028654))


def _times_sigmoid(x: Value, z: Value) -> Value:
    """Return x · sigmoid(z), for z of the sign of x; -0 at minus infinity.

    Where sigmoid(z) is near the smallest normal number, it is computed times exp(16), because x · sigmoid(z) is greater.
    """
    size = abs(z)
    is_far = size > 64.0
    shift, factor = where(is_far, like(16.0, x), 0.0), where(is_far, like(8886110.520507872, x), 1.0)
    power = exp_of_nonpositive(shift - size)
    is_negative = x < 0.0
    y = where(is_negative, x * power, x) / where(is_negative, factor + power, 1.0 + power)
    return where(x == -math.inf, -0.0, y)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent, to 4 ulp."""
    size = abs(x)
    power = exp_of_nonpositive(where(size > 10.0, 10.0, size) * -2.0)
    far = (1.0 - power) / (1.0 + power)
    square = x * x
    near = x.fma(square * polynomial(square, _TANH), x)
    return where(size < 0.3, near, where(x < 0.0, -far, far))


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)), to 2 ulp."""
    power = exp_of_nonpositive(-abs(x))
    return where(x < 0.0, power, 1.0) / (1.0 + power)


def silu(x: Value) -> Value:
    """The product of x and sigmoid(x); -0 at minus infinity."""
    return _times_sigmoid(x, x)


def relu(x: Value) -> Value:
    """0 for negative numbers, x for all others."""
    return where(x < 0.0, 0.0, x)


# The activations that kernels apply to their results, by the names of rlx.activation.
ACTIVATIONS: dict[str | None, Callable[[Value], Value]] = {
    None: lambda x: x,
    "gelu": gelu,
    "gelu_approx": gelu_approx,
    "silu": silu,
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
