"""Derivatives of activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi, sqrt

from rlx.ir.graph.builder import Builder, Tensor

# Beyond this, derivatives of the smooth steps are exactly 0 or 1 in f64. Operands are clamped to it, so that infinities
# give the limits.
_FAR = 1000.0


def _bounded(b: Builder, x: Tensor) -> Tensor:
    return b.minimum(b.maximum(x, -_FAR), _FAR)


def _gelu_approx(b: Builder, x: Tensor) -> Tensor:
    """With `u = sqrt(2/pi)·(x + 0.044715·x³)`: `gelu_approx(x) = x·sigmoid(2u)`, differentiated as a product."""
    x = _bounded(b, x)
    u2, rise = _gelu_approx_inner(x)
    step = b.sigmoid(u2)
    return step * (x * rise * b.sigmoid(-u2) + 1.0)


def _gelu_approx_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return `2u` and its derivative."""
    square, factor = x * x, 2 * sqrt(2 / pi)
    return x * (square * 0.044715 + 1.0) * factor, (square * (3 * 0.044715) + 1.0) * factor


def _silu(b: Builder, x: Tensor) -> Tensor:
    x = _bounded(b, x)
    return b.sigmoid(x) * (x * b.sigmoid(-x) + 1.0)


def _sign(b: Builder, x: Tensor) -> Tensor:
    """Return 1, -1, or x itself where it is 0 or NaN."""
    return b.where(x > 0.0, 1.0, b.where(x < 0.0, -1.0, x))


def _secant(b: Builder, x: Tensor) -> Tensor:
    """Return `1 - tanh(x)²` without a difference, which would cancel where tanh is close to 1."""
    return b.sigmoid(x * 2.0) * b.sigmoid(x * -2.0) * 4.0


def _tangent_slope(b: Builder, x: Tensor) -> Tensor:
    tangent = b.tan(x)
    return tangent * tangent + 1.0


def _squared(x: Tensor) -> Tensor:
    return x * x


def _cubed(x: Tensor) -> Tensor:
    return x * x * x


def _gelu_of_result(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Return `Φ(x) + x·φ(x)`, with `Φ(x) = y/x`, and its limits for large arguments."""
    bounded, zero = _bounded(b, x), x == 0.0
    share = b.where(bounded == x, y / b.where(zero, 1.0, x), b.cast(x > 0.0, x.dtype))
    distribution = b.where(zero, 0.5, share)
    return distribution + bounded * _density(b, bounded)


def _density(b: Builder, x: Tensor) -> Tensor:
    """Return the density of the normal distribution."""
    return b.exp(x * x * -0.5) * (1 / sqrt(2 * pi))


def _silu_second(b: Builder, x: Tensor) -> Tensor:
    x = _bounded(b, x)
    step = b.sigmoid(x)
    return step * b.sigmoid(-x) * (2.0 + x * (1.0 - step * 2.0))


def _gelu_second(b: Builder, x: Tensor) -> Tensor:
    x = _bounded(b, x)
    return _density(b, x) * (2.0 - x * x)


def _gelu_approx_second(b: Builder, x: Tensor) -> Tensor:
    """Return the second derivative of `x·s(v(x))`, with the sigmoid s: `2·s'·v' + x·(s''·v'² + s'·v'')`."""
    x = _bounded(b, x)
    v, rise = _gelu_approx_inner(x)
    step = b.sigmoid(v)
    first = step * b.sigmoid(-v)
    second = first * (1.0 - step * 2.0)
    bend = x * (6 * 0.044715 * 2 * sqrt(2 / pi))
    return first * rise * 2.0 + x * (second * rise * rise + first * bend)


@dataclass(frozen=True)
class Slopes:
    """The derivatives of an activation at floats `x`, in their dtype: a row of the table.

    Attributes:
        first: The derivative at x. None for the exact `gelu`, which has it from the result only.
        second: The second derivative at x. It has its own formula: some formulas for the first derivative choose between
            branches, and differentiating them would give wrong values. None if it is zero except at kinks.
        of_result: The derivative from x and `y = f(x)`, where that is cheaper than from x alone and equally exact.
    """

    first: Callable[[Builder, Tensor], Tensor] | None
    second: Callable[[Builder, Tensor], Tensor] | None = None
    of_result: Callable[[Builder, Tensor, Tensor], Tensor] | None = None


# Every activation of floats except `relu`, `neg`, `round`, `floor` and `ceil`, whose gradients need no product.
_SLOPES: dict[str, Slopes] = {
    "gelu_approx": Slopes(first=_gelu_approx, second=_gelu_approx_second),
    "silu": Slopes(first=_silu, second=_silu_second),
    "sigmoid": Slopes(
        first=lambda b, x: b.sigmoid(x) * b.sigmoid(-x),
        second=lambda b, x: b.sigmoid(x) * b.sigmoid(-x) * (1.0 - b.sigmoid(x) * 2.0),
        of_result=lambda b, x, y: y * b.sigmoid(-x),
    ),
    "tanh": Slopes(first=_secant, second=lambda b, x: b.tanh(x) * _secant(b, x) * -2.0),
    "exp": Slopes(first=lambda b, x: b.exp(x), second=lambda b, x: b.exp(x), of_result=lambda b, x, y: y),
    "log": Slopes(first=lambda b, x: 1.0 / x, second=lambda b, x: -1.0 / (x * x)),
    "sqrt": Slopes(
        first=lambda b, x: b.rsqrt(x) * 0.5,
        second=lambda b, x: b.rsqrt(x) / x * -0.25,
        of_result=lambda b, x, y: 0.5 / y,
    ),
    "rsqrt": Slopes(
        first=lambda b, x: b.rsqrt(x) / x * -0.5,
        second=lambda b, x: b.rsqrt(x) / (x * x) * 0.75,
        of_result=lambda b, x, y: y / x * -0.5,
    ),
    "abs": Slopes(first=_sign),
    "sin": Slopes(first=lambda b, x: b.cos(x), second=lambda b, x: -b.sin(x)),
    "cos": Slopes(first=lambda b, x: -b.sin(x), second=lambda b, x: -b.cos(x)),
    "tan": Slopes(first=_tangent_slope, second=lambda b, x: b.tan(x) * _tangent_slope(b, x) * 2.0),
    "atan": Slopes(
        first=lambda b, x: 1.0 / (x * x + 1.0), second=lambda b, x: x * -2.0 / ((x * x + 1.0) * (x * x + 1.0))
    ),
    "exp2": Slopes(first=lambda b, x: b.exp2(x) * log(2), second=lambda b, x: b.exp2(x) * log(2) ** 2),
    "expm1": Slopes(first=lambda b, x: b.exp(x), second=lambda b, x: b.exp(x)),
    "log2": Slopes(first=lambda b, x: 1 / log(2) / x, second=lambda b, x: -1 / log(2) / (x * x)),
    "log10": Slopes(first=lambda b, x: 1 / log(10) / x, second=lambda b, x: -1 / log(10) / (x * x)),
    "log1p": Slopes(first=lambda b, x: 1.0 / (x + 1.0), second=lambda b, x: -1.0 / _squared(x + 1.0)),
    "cbrt": Slopes(
        first=lambda b, x: 1 / 3 / _squared(b.cbrt(x)), second=lambda b, x: -2 / 9 / (x * _squared(b.cbrt(x)))
    ),
    "erf": Slopes(
        first=lambda b, x: b.exp(-x * x) * (2 / sqrt(pi)), second=lambda b, x: b.exp(-x * x) * x * (-4 / sqrt(pi))
    ),
    "erfc": Slopes(
        first=lambda b, x: b.exp(-x * x) * (-2 / sqrt(pi)), second=lambda b, x: b.exp(-x * x) * x * (4 / sqrt(pi))
    ),
    "asin": Slopes(
        first=lambda b, x: b.rsqrt((1.0 - x) * (1.0 + x)),
        second=lambda b, x: x * _cubed(b.rsqrt((1.0 - x) * (1.0 + x))),
    ),
    "acos": Slopes(
        first=lambda b, x: -b.rsqrt((1.0 - x) * (1.0 + x)),
        second=lambda b, x: -x * _cubed(b.rsqrt((1.0 - x) * (1.0 + x))),
    ),
    "sinh": Slopes(first=lambda b, x: b.cosh(x), second=lambda b, x: b.sinh(x)),
    "cosh": Slopes(first=lambda b, x: b.sinh(x), second=lambda b, x: b.cosh(x)),
    "asinh": Slopes(first=lambda b, x: b.rsqrt(x * x + 1.0), second=lambda b, x: -x * _cubed(b.rsqrt(x * x + 1.0))),
    "acosh": Slopes(
        first=lambda b, x: b.rsqrt((x - 1.0) * (x + 1.0)),
        second=lambda b, x: -x * _cubed(b.rsqrt((x - 1.0) * (x + 1.0))),
    ),
    "atanh": Slopes(
        first=lambda b, x: 1.0 / ((1.0 - x) * (1.0 + x)), second=lambda b, x: x * 2.0 / _squared((1.0 - x) * (1.0 + x))
    ),
    "gelu": Slopes(first=None, second=_gelu_second, of_result=_gelu_of_result),
}


def slope(b: Builder, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """Return the derivative of an activation at x, given its result y, in their dtype.

    The dtype is f32, f64, or c64 if the activation is holomorphic.
    """
    if kind == "tanh" and x.dtype.is_complex:
        return (1.0 - y) * (1.0 + y)
    row = _SLOPES[kind]
    return row.of_result(b, x, y) if row.of_result else activation_derivative(b, kind, x)


def activation_derivative(b: Builder, kind: str, x: Tensor) -> Tensor:
    """Return the derivative of an activation at x (f32 or f64; the caller widens narrower floats)."""
    first = _SLOPES[kind].first
    assert first is not None, f"{kind} has its derivative from the result only"
    return first(b, x)


def second_derivative(b: Builder, kind: str, x: Tensor) -> Tensor | None:
    """Return the second derivative of an activation at x (f32 or f64); None if it is zero except at kinks."""
    second = _SLOPES[kind].second if kind in _SLOPES else None
    return None if second is None else second(b, x)
