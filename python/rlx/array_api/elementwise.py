"""Elementwise functions of the array API. Each is one op or helper, with the standard's name and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.array_api.arrays import builder
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import common
from rlx.ops.numpy_functions import METHOD_OF

_UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"),
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "square", "reciprocal", "abs", "negative"),
    *("isfinite", "isinf", "isnan", "logical_not", "bitwise_invert"),
)
_ROUNDING = ("ceil", "floor", "round", "trunc")
_BINARY = (
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "pow",
        "atan2",
        "hypot",
        "logaddexp",
        "copysign",
        "maximum",
        "minimum",
        "nextafter",
    ),
    *("remainder", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("bitwise_left_shift", "bitwise_right_shift"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)

_OWN = ("clip", "conj", "floor_divide", "imag", "positive", "real", "sign", "signbit", "tanh")
__all__ = [*_OWN, *_UNARY, *_ROUNDING, *_BINARY]  # pyright: ignore[reportUnsupportedDunderAll]


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    own = METHOD_OF.get(name, name)

    def function(x: Tensor, /) -> Tensor:
        return getattr(builder(x), own)(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The array API's `{name}`: `rlx.ops.{own}`."
    return function


def _rounding(name: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return getattr(builder(x), name)(x) if x.dtype.is_inexact else x

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The array API's `{name}`: `rlx.ops.{name}`; integers as they are."
    return function


def _binary(name: str) -> Callable[[TensorLike, TensorLike], Tensor]:
    own = METHOD_OF.get(name, name)

    def function(x1: TensorLike, x2: TensorLike, /) -> Tensor:
        return getattr(builder(x1, x2), own)(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The array API's `{name}`: `rlx.ops.{own}`."
    return function


globals().update({name: _unary(name) for name in _UNARY})
globals().update({name: _rounding(name) for name in _ROUNDING})
globals().update({name: _binary(name) for name in _BINARY})


def floor_divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The quotient, rounded down: `rlx.ops.floor_divide`, but `divide` if an operand is infinite, as in the standard.

    For infinite operands NumPy, and the operator `//` of tensors, give NaN or -1.
    """
    b = builder(x1, x2)
    x1, x2 = common(b, x1, x2)
    quotient = b.floor_divide(x1, x2)
    if not x1.dtype.is_float:
        return quotient
    return b.where(b.isinf(x1) | b.isinf(x2), b.stop_gradient(x1 / x2), quotient)


def sign(x: Tensor, /) -> Tensor:
    """`rlx.ops.sign`, except that it is 0 for -0, where `rlx.ops.sign` is -0."""
    found = x.builder.sign(x)
    return x.builder.where(x == 0, 0.0, found) if x.dtype.is_float else found


def signbit(x: Tensor, /) -> Tensor:
    """Whether the sign bit is set, also for NaN, where `rlx.ops.signbit` is False."""
    return x.builder.bitcast(x, x.dtype.signed_word) < 0


def tanh(x: Tensor, /) -> Tensor:
    """`rlx.ops.tanh`, except that for ±∞ + iy the zero has the sign of y, as in the standard.

    In C99 it has the sign of sin 2y.
    """
    found = x.builder.tanh(x)
    if not x.dtype.is_complex:
        return found
    b: Builder = x.builder
    limit = b.complex(b.copysign(1.0, x.real), b.copysign(0.0, x.imag))
    return b.where(b.isinf(x.real) & b.isfinite(x.imag), b.stop_gradient(limit), found)


def positive(x: Tensor, /) -> Tensor:
    """The tensor, unchanged."""
    return x


def conj(x: Tensor, /) -> Tensor:
    """The conjugate; real numbers are unchanged."""
    return x.builder.conjugate(x) if x.dtype.is_complex else x


def real(x: Tensor, /) -> Tensor:
    """The real part."""
    return x.real


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part."""
    return x.imag


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """Elements clamped to an interval, in the dtype of `x`."""
    b = builder(x)
    result: Tensor = x
    for bound, joined in ((min, b.maximum), (max, b.minimum)):
        if bound is None:
            continue
        if not isinstance(bound, Tensor) and x.dtype.is_integer:
            if isinstance(bound, float) and math.isinf(bound):
                continue
            bound = sorted((int(x.dtype.min), int(bound), int(x.dtype.max)))[1]
        result = joined(result, bound if not isinstance(bound, Tensor) else b.cast(bound, x.dtype))
    return result
