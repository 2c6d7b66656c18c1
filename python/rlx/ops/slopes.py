"""The derivatives of activations."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

from rlx.ir.builder import Builder, Tensor

# Beyond this, derivatives of the smooth steps are 0 or 1 to the last bit of f64; held there, infinities have the limits.
_FAR = 1000.0


def _held(b: Builder, x: Tensor) -> Tensor:
    return b.minimum(b.maximum(x, -_FAR), _FAR)


def _gelu(b: Builder, x: Tensor) -> Tensor:
    """`Φ(x) + x·φ(x)`, with the normal distribution `Φ(x) = gelu(x)/x` and its density `φ`."""
    x = _held(b, x)
    tiny = b.abs(x) < 1e-30
    distribution = b.where(tiny, 0.5, b.gelu(x) / b.where(tiny, 1.0, x))
    return distribution + x * b.exp(x * x * -0.5) * (1 / sqrt(2 * pi))


def _gelu_approx(b: Builder, x: Tensor) -> Tensor:
    """With `u = sqrt(2/pi)·(x + 0.044715·x³)`: `gelu_approx(x) = x·sigmoid(2u)`, differentiated as a product."""
    x = _held(b, x)
    u2, rise = _gelu_approx_inner(x)
    step = b.sigmoid(u2)
    return step * (x * rise * b.sigmoid(-u2) + 1.0)


def _gelu_approx_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    """`2u` and its derivative."""
    square, factor = x * x, 2 * sqrt(2 / pi)
    return x * (square * 0.044715 + 1.0) * factor, (square * (3 * 0.044715) + 1.0) * factor


def _silu(b: Builder, x: Tensor) -> Tensor:
    x = _held(b, x)
    return b.sigmoid(x) * (x * b.sigmoid(-x) + 1.0)


def _sign(b: Builder, x: Tensor) -> Tensor:
    """1, -1, and x itself where it is 0 or NaN."""
    return b.where(x > 0.0, 1.0, b.where(x < 0.0, -1.0, x))


def _secant(b: Builder, x: Tensor) -> Tensor:
    """`1 - tanh(x)²`, without the difference: it would cancel where tanh is close to 1."""
    return b.sigmoid(x * 2.0) * b.sigmoid(x * -2.0) * 4.0


def _tangent_slope(b: Builder, x: Tensor) -> Tensor:
    tangent = b.tan(x)
    return tangent * tangent + 1.0


_DERIVATIVES: dict[str, Callable[[Any, Tensor], Any]] = {
    "gelu": _gelu,
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
}


def activation_derivative(b: Builder, kind: str, x: Tensor) -> Tensor:
    """The derivative of an activation at floats `x`, in their dtype.

    Args:
        b: The builder.
        kind: Any activation but `relu`, `neg` and `round`, whose gradients need no product.
        x: f32 or f64: narrower floats are for the caller to widen.
    """
    return _DERIVATIVES[kind](b, x)


# --- with the result at hand -------------------------------------------------------------------------


def _gelu_of_result(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """`Φ(x) + x·φ(x)`, with `Φ(x) = y/x`."""
    zero = x == 0.0
    distribution = b.where(zero, 0.5, y / b.where(zero, 1.0, x))
    return distribution + x * b.exp(x * x * -0.5) * (1 / sqrt(2 * pi))


def _gelu_approx_of_result(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    u2, rise = _gelu_approx_inner(x)
    step = b.sigmoid(u2)
    return step + y * rise * (1.0 - step)


def _silu_of_result(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    step = b.sigmoid(x)
    return step + y * (1.0 - step)


# Where the result gives the derivative for less than its operand does: of x and y = f(x).
_OF_RESULT: dict[str, Callable[[Any, Tensor, Tensor], Any]] = {
    "exp": lambda b, x, y: y,
    "sigmoid": lambda b, x, y: y * (1.0 - y),
    "tanh": lambda b, x, y: (1.0 - y) * (1.0 + y),
    "sqrt": lambda b, x, y: 0.5 / y,
    "rsqrt": lambda b, x, y: y / x * -0.5,
    "gelu": _gelu_of_result,
    "gelu_approx": _gelu_approx_of_result,
    "silu": _silu_of_result,
}


def slope(b: Builder, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """The derivative of an activation at x, given its result y, in their dtype (f32, f64, or c64 where it is holomorphic)."""
    of_result = _OF_RESULT.get(kind)
    return of_result(b, x, y) if of_result else activation_derivative(b, kind, x)
