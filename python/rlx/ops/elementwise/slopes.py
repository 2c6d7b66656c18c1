"""Derivatives of activations."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt
from typing import Any

from rlx.ir.graph.builder import Builder, Tensor

# Beyond this, derivatives of the smooth steps are 0 or 1 to the last bit of f64. Operands are clamped to it, so that
# infinities give the limits.
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


_DERIVATIVES: dict[str, Callable[[Any, Tensor], Any]] = {
    "gelu_approx": _gelu_approx,
    "silu": _silu,
    "sigmoid": lambda b, x: b.sigmoid(x) * b.sigmoid(-x),
    "tanh": _secant,
    "exp": lambda b, x: b.exp(x),
    "log": lambda b, x: 1.0 / x,
    "sqrt": lambda b, x: b.rsqrt(x) * 0.5,
    "rsqrt": lambda b, x: b.rsqrt(x) / x * -0.5,
    "abs": _sign,
    "sin": lambda b, x: b.cos(x),
    "cos": lambda b, x: -b.sin(x),
    "tan": _tangent_slope,
    "atan": lambda b, x: 1.0 / (x * x + 1.0),
    "exp2": lambda b, x: b.exp2(x) * log(2),
    "expm1": lambda b, x: b.exp(x),
    "log2": lambda b, x: 1 / log(2) / x,
    "log10": lambda b, x: 1 / log(10) / x,
    "log1p": lambda b, x: 1.0 / (x + 1.0),
    "cbrt": lambda b, x: 1 / 3 / _squared(b.cbrt(x)),
    "erf": lambda b, x: b.exp(-x * x) * (2 / sqrt(pi)),
    "erfc": lambda b, x: b.exp(-x * x) * (-2 / sqrt(pi)),
    "asin": lambda b, x: b.rsqrt((1.0 - x) * (1.0 + x)),
    "acos": lambda b, x: -b.rsqrt((1.0 - x) * (1.0 + x)),
    "sinh": lambda b, x: b.cosh(x),
    "cosh": lambda b, x: b.sinh(x),
    "asinh": lambda b, x: b.rsqrt(x * x + 1.0),
    "acosh": lambda b, x: b.rsqrt((x - 1.0) * (x + 1.0)),
    "atanh": lambda b, x: 1.0 / ((1.0 - x) * (1.0 + x)),
}


def _squared(x: Tensor) -> Tensor:
    return x * x


def _cubed(x: Tensor) -> Tensor:
    return x * x * x


def activation_derivative(b: Builder, kind: str, x: Tensor) -> Tensor:
    """Return the derivative of an activation at floats `x`, in their dtype.

    Args:
        b: The builder.
        kind: Any activation of floats except `relu`, `neg`, `round`, `floor` and `ceil`, whose gradients need no
            product.
        x: f32 or f64. The caller widens narrower floats.
    """
    return _DERIVATIVES[kind](b, x)


# --- from the result of the activation ---------------------------------------------------------------


def _gelu_of_result(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Return `Φ(x) + x·φ(x)`, with `Φ(x) = y/x`, and its limits far out."""
    bounded, zero = _bounded(b, x), x == 0.0
    share = b.where(bounded == x, y / b.where(zero, 1.0, x), b.cast(x > 0.0, x.dtype))
    distribution = b.where(zero, 0.5, share)
    return distribution + bounded * _density(b, bounded)


def _density(b: Builder, x: Tensor) -> Tensor:
    """Return the density of the normal distribution."""
    return b.exp(x * x * -0.5) * (1 / sqrt(2 * pi))


# Derivatives as functions of x and y = f(x), where they are cheaper than from x alone and equally exact.
_OF_RESULT: dict[str, Callable[[Any, Tensor, Tensor], Any]] = {
    "exp": lambda b, x, y: y,
    "sqrt": lambda b, x, y: 0.5 / y,
    "rsqrt": lambda b, x, y: y / x * -0.5,
    "sigmoid": lambda b, x, y: y * b.sigmoid(-x),
    "gelu": _gelu_of_result,
}


def slope(b: Builder, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """Return the derivative of an activation at x, given its result y, in their dtype.

    The dtype is f32, f64, or c64 if the activation is holomorphic.
    """
    if kind == "tanh" and x.dtype.is_complex:
        return (1.0 - y) * (1.0 + y)
    of_result = _OF_RESULT.get(kind)
    return of_result(b, x, y) if of_result else activation_derivative(b, kind, x)


# --- second derivatives ------------------------------------------------------------------------------


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


_SECOND: dict[str, Callable[[Any, Tensor], Any]] = {
    "gelu": _gelu_second,
    "gelu_approx": _gelu_approx_second,
    "silu": _silu_second,
    "sigmoid": lambda b, x: b.sigmoid(x) * b.sigmoid(-x) * (1.0 - b.sigmoid(x) * 2.0),
    "tanh": lambda b, x: b.tanh(x) * _secant(b, x) * -2.0,
    "exp": lambda b, x: b.exp(x),
    "log": lambda b, x: -1.0 / (x * x),
    "sqrt": lambda b, x: b.rsqrt(x) / x * -0.25,
    "rsqrt": lambda b, x: b.rsqrt(x) / (x * x) * 0.75,
    "sin": lambda b, x: -b.sin(x),
    "cos": lambda b, x: -b.cos(x),
    "tan": lambda b, x: b.tan(x) * _tangent_slope(b, x) * 2.0,
    "atan": lambda b, x: x * -2.0 / ((x * x + 1.0) * (x * x + 1.0)),
    "exp2": lambda b, x: b.exp2(x) * log(2) ** 2,
    "expm1": lambda b, x: b.exp(x),
    "log2": lambda b, x: -1 / log(2) / (x * x),
    "log10": lambda b, x: -1 / log(10) / (x * x),
    "log1p": lambda b, x: -1.0 / _squared(x + 1.0),
    "cbrt": lambda b, x: -2 / 9 / (x * _squared(b.cbrt(x))),
    "erf": lambda b, x: b.exp(-x * x) * x * (-4 / sqrt(pi)),
    "erfc": lambda b, x: b.exp(-x * x) * x * (4 / sqrt(pi)),
    "asin": lambda b, x: x * _cubed(b.rsqrt((1.0 - x) * (1.0 + x))),
    "acos": lambda b, x: -x * _cubed(b.rsqrt((1.0 - x) * (1.0 + x))),
    "sinh": lambda b, x: b.sinh(x),
    "cosh": lambda b, x: b.cosh(x),
    "asinh": lambda b, x: -x * _cubed(b.rsqrt(x * x + 1.0)),
    "acosh": lambda b, x: -x * _cubed(b.rsqrt((x - 1.0) * (x + 1.0))),
    "atanh": lambda b, x: x * 2.0 / _squared((1.0 - x) * (1.0 + x)),
}


def second_derivative(b: Builder, kind: str, x: Tensor) -> Tensor | None:
    """Return the second derivative of an activation at x (f32 or f64); None if it is zero except at kinks.

    It has its own formula: some formulas for the first derivative choose between branches, and differentiating them
    would give wrong values.
    """
    rule = _SECOND.get(kind)
    return None if rule is None else rule(b, x)
