"""`lgamma`, `digamma` and `erfinv`: compositions that are computed in f64 and differentiated to any order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx.functions.elementwise.gamma_below import LOG_GAMMA_ROWS, digamma_below, log_gamma_below
from rlx.functions.elementwise.gamma_exact import bernoulli
from rlx.ir.dtype import DType, f32, f64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.numerics.arithmetic import OperatorArithmetic, polynomial
from rlx.ops.lift import cast, inexact, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# Arguments from here on use the asymptotic series, smaller ones the Taylor series at 2.
_START = 7.5
# For f32, Log Γ uses the asymptotic series from here on. Its truncation error of 5e-14 matters only close to the roots,
# and no f32 argument is that close to a root.
_NARROW_START = 5.5
_BERNOULLI = bernoulli(8)
_EULER = 0.5772156649015329
# The positive root of digamma, its rounding error in f64, and log Γ at the root.
_ROOT, _ROOT_REST, _LEAST = 1.4616321449683622, 9.549995429965697e-17, -0.12148629053584961
# erfinv(y)/y between two limits of w = -log(1 - y²): polynomials in the relative position from -1 to 1, which
# interpolate it at Chebyshev points to 5e-9. The constant comes first. For f32, w never exceeds the third limit.
_LIMITS = (0.0, 5.0, 16.7, 37.0)
_PIECES = (
    (
        1.501409351728,
        0.6166007234735,
        -0.02610828076207,
        -0.01957419400714,
        0.008525934497756,
        -0.0004843499506763,
        -0.0008364687381238,
        0.0002840751528844,
        2.515743530646e-05,
        -3.333980932836e-05,
        4.14957744369e-06,
    ),
    (
        3.128060537114,
        0.8930662603448,
        -0.1165120719364,
        0.02907171776198,
        -0.008299694902118,
        0.002068508750353,
        -0.0001706472916063,
        -0.0002607395643993,
        0.0003274312451827,
        -0.0002632138305088,
        8.973547101485e-05,
    ),
    (
        5.033470753901,
        0.9894284031305,
        -0.09373956753268,
        0.01756203194482,
        -0.004086524834863,
        0.00106160202233,
        -0.0002943907491143,
        8.250849987185e-05,
        -2.445115445546e-05,
        1.022772825983e-05,
        -3.237486402975e-06,
    ),
)


def _wide(b: Builder, value: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the operand as floats, and in f64."""
    x = inexact(b, tensor_like(b, value, f32))
    if x.dtype.is_complex:
        raise ShapeError(f"it takes real numbers, not {x.dtype.name}")
    return x, cast(b, x, f64)


def _polynomial(coefficients: Sequence[float | Tensor], x: Tensor) -> Tensor:
    """Return the polynomial with these coefficients, the highest power first."""
    return polynomial(OperatorArithmetic(), x, coefficients[::-1])


def _zeta(s: int, q: float) -> float:
    """Return Hurwitz' zeta function, Σ (q + n)^-s, by the Euler-Maclaurin formula."""
    count = 16
    end = q + count
    terms = [(q + n) ** -s for n in range(count)]
    terms += [end ** (1 - s) / (s - 1), 0.5 * end**-s]
    rising = float(s)  # s·(s + 1)·…/(2k)!
    for k, number in enumerate(_BERNOULLI, 1):
        terms.append(float(number) / math.factorial(2 * k) * rising * end ** (1 - s - 2 * k))
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return math.fsum(terms)


def _taylor(order: int = 27) -> list[float]:
    """Return the Taylor series of digamma at 2, lowest power last. By default it has f64 accuracy for |x - 2| <= 1/2."""
    return [(-1) ** k * _zeta(k, 2.0) for k in range(order, 1, -1)] + [1 - _EULER]


class _GammaParts:
    """The decomposition of an argument of Γ that the functions in this module share.

    Below -1/2 the argument is reflected, `Γ(x)Γ(1 - x) = π/sin(πx)`. From `start` on the asymptotic series holds. In
    between, the argument is `nearest + rest` with `|rest| <= 1/2`, and the recurrence `Γ(x + 1) = x·Γ(x)` leads to
    `Γ(2 + rest)`.
    """

    def __init__(self, b: Builder, x: Tensor, start: float = _START) -> None:
        self.start = start
        self.infinite = b.isinf(x)
        x = b.where(self.infinite, 1.0, x)
        self.below = x < -0.5
        # πx reduced by whole turns, which do not change sine and tangent.
        angle = (x - b.stop_gradient(b.round(x))) * math.pi
        self.pole = self.below & (angle == 0)
        self.angle = b.where(self.below & b.bitwise_not(self.pole), angle, math.pi / 2)
        self.value = b.where(self.below, 1.0 - x, x)
        self.small = self.value < start
        near = b.where(self.small, self.value, 2.0)
        self.nearest = b.stop_gradient(b.round(near))
        self.rest = near - self.nearest
        self.inverse = 1.0 / b.where(self.small, start, self.value)
        self.before = self.nearest < 2

    def factors(self) -> list[tuple[Tensor, Tensor]]:
        """Return pairs of a condition and a factor. The factors whose condition holds relate Γ(2 + rest) to Γ(x).

        Γ(x) is Γ(2 + rest) times the factors; if x is `before` 2, it is divided by them.
        """
        up = [(self.nearest > j, self.rest + float(j)) for j in range(2, int(self.start))]
        return [(self.before, 1.0 + self.rest), (self.nearest < 1, self.rest), *up]

    def sine(self) -> Tensor:
        """Return the sine of the angle, which is at most π/2. The power series has an error of 3e-16 there."""
        series = [(-1) ** n / math.factorial(2 * n + 1) for n in range(9, -1, -1)]
        return self.angle * _polynomial(series, self.angle * self.angle)


def _at_root(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, list[float]]:
    """Return whether x is near the positive root of digamma, its distance, and digamma over the distance as a series."""
    distance = (x - _ROOT) - _ROOT_REST
    near = b.abs(distance) < 0.25
    return near, b.where(near, distance, 0.0), [(-1) ** (m + 1) * _zeta(m + 1, _ROOT) for m in range(22, 0, -1)]


@helper
def lgamma(b: Builder, x: TensorLike) -> Tensor:
    """SciPy's `gammaln`, PyTorch's `lgamma`: log |Γ(x)|; inf at 0, -1, -2 … and at both infinities.

    It is computed in f64: by Stirling's series from 7.5 (f32: 5.5) on, by the Taylor series at 2 and the recurrence
    below that, and by the reflection `Γ(x)Γ(1 - x) = π/sin(πx)` below -1/2. For f64 arguments between -30.5 and -1/2 it
    is the distance from the nearest root times a series (`gamma_below`).

    Its derivative is `digamma`, also at poles and infinities.
    """
    x = inexact(b, tensor_like(b, x, f32))

    def rule(args: Tensors, tangents: Tensors) -> tuple[Tensor]:
        return (tangents[0] * digamma(args[0].builder, args[0]),)

    return b.custom_fn(_log_gamma, x, jvp=rule)


def _log_gamma(x: Tensor) -> Tensor:
    b = x.builder
    own, x = _wide(b, x)
    parts = _GammaParts(b, x, _START if own.dtype is f64 else _NARROW_START)
    taylor = _taylor()
    powers = range(len(taylor), 0, -1)
    near = parts.rest * _polynomial([c / k for c, k in zip(taylor, powers, strict=True)], parts.rest)
    product = b.where(parts.small, 1.0, parts.value)
    for used, factor in parts.factors():
        product = product * b.where(used, factor, 1.0)
    logarithm = b.log(b.abs(product))
    series = [float(n / (2 * k * (2 * k - 1))) for k, n in enumerate(_BERNOULLI, 1)]
    tail = parts.inverse * _polynomial(series[::-1], parts.inverse * parts.inverse)
    far = (parts.value - 0.5) * (logarithm - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5 + tail)
    positive = b.where(parts.small, near + b.where(parts.before, -logarithm, logarithm), far)
    if own.dtype is f64:
        at_root, distance, series = _at_root(b, x)
        powers = range(len(series) + 1, 1, -1)
        higher = _polynomial([c / k for c, k in zip(series, powers, strict=True)], distance)
        positive = b.where(at_root, distance * distance * higher + _LEAST, positive)
    reflected = b.log(math.pi / b.abs(parts.sine())) - positive
    if own.dtype is f64:
        below = parts.below & (x > -LOG_GAMMA_ROWS - 0.5) & b.bitwise_not(parts.pole)
        reflected = b.where(below, log_gamma_below(b, b.where(below, x, -1.5)), reflected)
    result = b.where(parts.below, reflected, positive)
    return cast(b, b.where(parts.infinite | parts.pole, np.inf, result), own.dtype)


@helper
def digamma(b: Builder, x: TensorLike) -> Tensor:
    """SciPy's `digamma`: the derivative of `lgamma`; NaN at -1, -2 … and -inf, -inf at 0, inf at -0.

    It is computed in f64: by the asymptotic series from 7.5 on, by the Taylor series at 2 and the recurrence below
    that, and by the reflection below -1/2. Near the positive root it has its own series. For f64 arguments below -1/4
    it is the distance from the nearest root times a series, and below -64 the reflection in double-f64 arithmetic
    (`gamma_below`).
    """
    own, given = _wide(b, x)
    zero = given == 0
    x = b.where(zero, 1.0, given)  # so that 0 has no infinite term in the derivative
    parts = _GammaParts(b, x)
    near = _polynomial(_taylor(), parts.rest)
    # The sum of 1/factor as one fraction.
    top, bottom = b.zeros_like(x), b.ones_like(x)
    for used, factor in parts.factors():
        top, bottom = b.where(used, top * factor + bottom, top), bottom * b.where(used, factor, 1.0)
    steps = b.where(parts.before, -top, top) / bottom
    inverse = parts.inverse
    square = inverse * inverse
    series = [float(n / (2 * k)) for k, n in enumerate(_BERNOULLI, 1)]
    tail = 0.5 * inverse + square * _polynomial(series[::-1], square)
    positive = b.where(parts.small, near, b.log(parts.value) - tail) + steps
    if own.dtype is f64:
        at_root, distance, series = _at_root(b, x)
        positive = b.where(at_root, distance * _polynomial(series, distance), positive)
    if own.dtype is f64:
        below = (x < -0.25) & b.bitwise_not(parts.pole | parts.infinite)
        result = b.where(below, digamma_below(b, b.where(below, x, -1.5)), positive)
    else:
        result = b.where(parts.below, positive - math.pi * b.cos(parts.angle) / b.sin(parts.angle), positive)
    # NaN, with an infinite derivative, as next to the pole.
    result = b.where(parts.pole, np.nan - 1.0 / b.where(parts.pole, x - b.stop_gradient(x), 1.0), result)
    result = b.where(zero, -1.0 / b.where(zero, given, 1.0), result)
    return cast(b, b.where(parts.infinite, b.where(x > 0, np.inf, np.nan), result), own.dtype)


def _near_erfinv(b: Builder, size: Tensor) -> Tensor:
    """Return `erfinv(size)` for 0 <= size < 1 in f64, to 5e-9 plus the rounding error of f32 if size is f32."""
    wide = cast(b, size, f64)
    w = -b.log(cast(b, (1.0 - wide) * (1.0 + wide), size.dtype))
    pieces = [
        (2 / (high - low), -(high + low) / (high - low), *coefficients)
        for low, high, coefficients in zip(_LIMITS, _LIMITS[1:], _PIECES, strict=False)
    ]
    beyond = [w >= limit for limit in (_LIMITS[1:3] if size.dtype is f64 else _LIMITS[1:2])]

    def chosen(values: Sequence[float], dtype: DType) -> Tensor:
        value = b.constant(values[0], dtype=dtype)
        for condition, other in zip(beyond, values[1:], strict=False):
            value = b.where(condition, b.constant(other, dtype=dtype), value)
        return value

    scale, shift, first, second, *others = zip(*pieces, strict=True)
    place = cast(b, w, f64) * chosen(scale, f64) + chosen(shift, f64)
    # The other terms are so small relative to the first two that f32 is accurate enough for them.
    rest = _polynomial([chosen(c, size.dtype) for c in reversed(others)], cast(b, place, size.dtype))
    return ((cast(b, rest, f64) * place + chosen(second, f64)) * place + chosen(first, f64)) * wide


@helper
def erfinv(b: Builder, x: TensorLike) -> Tensor:
    """SciPy's `erfinv`: the inverse of `erf`; infinities at 1 and -1, NaN outside.

    It uses polynomials, and for f64 one step of Halley's method. The step uses `erfc` where |x| is above 1/2, so that
    no digits are lost near 1.
    """
    x = inexact(b, tensor_like(b, x, f32))
    if x.dtype.is_complex:
        raise ShapeError(f"it takes real numbers, not {x.dtype.name}")
    y = x if x.dtype is f64 else cast(b, x, f32)
    size = b.abs(y)
    inside = size < 1
    size = b.where(inside, size, 0.25)
    result = _near_erfinv(b, size)
    if y.dtype is f64:
        upper = size > 0.5
        error = b.where(upper, (1.0 - size) - b.erfc(result), b.erf(result) - size)
        step = error * (0.5 * math.sqrt(math.pi)) * b.exp(result * result)
        result = result - step / (1.0 + result * step)
    result = cast(b, result, x.dtype)
    signed = b.where(x < 0, -result, result)
    # Here x² is negligible compared to 1, and the correction of the step would underflow.
    signed = b.where(b.abs(x) < 1e-9, x * (0.5 * math.sqrt(math.pi)), signed)
    # Infinities and NaN, whose derivatives are also infinite and NaN.
    outer = b.where(inside, 0.0, x)
    return b.where(inside, signed, outer / b.sqrt(1.0 - outer * outer))
