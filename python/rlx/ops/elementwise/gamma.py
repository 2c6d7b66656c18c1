"""`lgamma`, `digamma` and `erfinv`: compositions that are computed in f64, and differentiated as they are, to any order."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.dtype import f32, f64
from rlx.ir.errors import ShapeError
from rlx.ops.lift import cast, inexact, tensor_like
from rlx.ops.surface import helper

# The asymptotic series are taken from here on; to it arguments are moved by the recurrence Γ(x + 1) = x·Γ(x).
_START = 8
# Bernoulli numbers B2, B4 …: NIST's Digital Library of Mathematical Functions, table 24.2.
_BERNOULLI = [
    Fraction(n, d) for n, d in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))
]
# M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012): polynomials in w - 2.5 and sqrt(w) - 3 with
# w = -log(1 - y²), to single precision, lowest power last.
_NEAR = (2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 2.1858087e-4, -1.25372503e-3)
_NEAR += (-4.17768164e-3, 0.246640727, 1.50140941)
_FAR = (-2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3, 5.73950773e-3, -7.6224613e-3)
_FAR += (9.43887047e-3, 1.00167406, 2.83297682)


def _wide(b: Builder, value: Any) -> tuple[Tensor, Tensor]:
    """The operand as floats, and in f64."""
    x = inexact(b, tensor_like(b, value, f32))
    if x.dtype.is_complex:
        raise ShapeError("it takes real numbers, not c64")
    return x, cast(b, x, f64)


def _polynomial(coefficients: Any, x: Tensor) -> Any:
    """Horner's scheme, highest power first."""
    result: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _reflected(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether x is below 1/2, then 1 - x or else x, and πx less its whole turns, which sine and tangent do not see."""
    below = x < 0.5
    fraction = x - b.stop_gradient(b.round(x))
    return below, b.where(below, 1.0 - x, x), fraction * math.pi


def _moved(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Whether x lies before the start of the series, and x moved behind it."""
    before = x < _START
    return before, b.where(before, x + _START, x)


@helper
def lgamma(b: Builder, x: Any) -> Tensor:
    """SciPy's `gammaln`, PyTorch's `lgamma`: log |Γ(x)|; inf at 0, -1, -2 … and at both infinities.

    Stirling's series from 8 on, the recurrence below and the reflection `Γ(x)Γ(1 - x) = π/sin(πx)` below 1/2, in f64. Near the
    roots of f64 arguments (1, 2 and between negative integers) the error is absolute, about 1e-15 for each unit of log Γ.
    """
    own, x = _wide(b, x)
    infinite = b.isinf(x)
    below, right, angle = _reflected(b, b.where(infinite, 1.0, x))
    before, z = _moved(b, right)
    start: Any = 1.0
    for k in range(_START):
        start = start * b.where(before, right + float(k), 1.0)
    inverse = 1.0 / z
    series = [float(n / (2 * k * (2 * k - 1))) for k, n in enumerate(_BERNOULLI, 1)]
    tail = inverse * _polynomial(series[::-1], inverse * inverse)
    positive = (z - 0.5) * b.log(z) - z + (0.5 * math.log(2 * math.pi)) + tail - b.log(start)
    pole = below & (angle == 0)
    sine = b.abs(b.sin(b.where(below & b.bitwise_not(pole), angle, math.pi / 2)))
    result = b.where(below, math.log(math.pi) - b.log(sine) - positive, positive)
    # Exact at the roots, where rounding would leave all that there is; the derivative stays.
    result = b.where((x == 1) | (x == 2), result - b.stop_gradient(result), result)
    return cast(b, b.where(infinite | pole, np.inf, result), own.dtype)


@helper
def digamma(b: Builder, x: Any) -> Tensor:
    """SciPy's `digamma`: the derivative of `lgamma`; NaN at -1, -2 … and -inf, an infinity of the other sign at 0 and -0.

    The asymptotic series from 8 on, the recurrence below and the reflection below 1/2, in f64.
    """
    own, x = _wide(b, x)
    infinite, zero = b.isinf(x), x == 0
    below, right, angle = _reflected(b, b.where(infinite, 1.0, x))
    before, z = _moved(b, right)
    steps: Any = 0.0
    for k in range(_START):
        steps = steps + 1.0 / b.where(before, right + float(k), 1.0)
    inverse = 1.0 / z
    square = inverse * inverse
    series = [float(n / (2 * k)) for k, n in enumerate(_BERNOULLI, 1)]
    positive = b.log(z) - 0.5 * inverse - square * _polynomial(series[::-1], square) - b.where(before, steps, 0.0)
    pole = below & (angle == 0)
    safe = b.where(below & b.bitwise_not(pole), angle, 1.0)
    result = b.where(below, positive - math.pi * b.cos(safe) / b.sin(safe), positive)
    result = b.where(pole, np.nan, result)
    result = b.where(zero, -1.0 / b.where(zero, x, 1.0), result)
    return cast(b, b.where(infinite, b.where(x > 0, np.inf, np.nan), result), own.dtype)


@helper
def erfinv(b: Builder, x: Any) -> Tensor:
    """SciPy's `erfinv`: the inverse of `erf`; infinities at 1 and -1, NaN outside.

    M. Giles' polynomials, then Halley's steps in f64 (one, for f64 three), of `erfc` where |x| is above 1/2: no digits
    are lost near 1.
    """
    own, y = _wide(b, x)
    size = b.abs(y)
    inside = size < 1
    size = b.where(inside, size, 0.25)
    rest = 1.0 - size
    w = -b.log(rest * (1.0 + size))
    far = w >= 5
    near_value = _polynomial(_NEAR, b.where(far, 0.0, w) - 2.5)
    far_value = _polynomial(_FAR, b.sqrt(b.where(far, w, 9.0)) - 3.0)
    result = b.where(far, far_value, near_value) * size
    if own.dtype is f64:  # nearer to 1 than f32 can be: erfc x ~ exp(-x²)/(x·sqrt(π))
        tail = b.sqrt(b.where(far, w, 9.0) + math.log(2) - 0.5 * b.log(math.pi * b.where(far, w, 9.0)))
        result = b.where(w > 15, tail, result)
    upper = size > 0.5
    for _ in range(3 if own.dtype is f64 else 1):
        error = b.where(upper, rest - b.erfc(result), b.erf(result) - size)
        step = error * (0.5 * math.sqrt(math.pi)) * b.exp(result * result)
        result = result - step / (1.0 + result * step)
    signed = b.where(y < 0, -result, result)
    signed = b.where(y == 0, y * (0.5 * math.sqrt(math.pi)), signed)
    outside = b.where(y == 1, np.inf, b.where(y == -1, b.full_like(y, -np.inf), np.nan))
    return cast(b, b.where(inside, signed, outside), own.dtype)
