"""What kind of number something is, rounding, signs and remainders: exact functions that are made of others."""

from __future__ import annotations

import math
from typing import Any

from rlx.ir.dtype import f32, i16
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.lift import cast, common, constant_scalar, in_compute, inexact, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# --- rounding and signs -----------------------------------------------------------------------------


def real(b: Builder, x: Any) -> Tensor:
    """A tensor, array or number as a tensor that is not complex.

    Raises:
        ShapeError: It is complex.
    """
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        raise ShapeError(f"is not defined for {x.dtype.name}")
    return x


@helper
@in_compute
def trunc(b: Builder, x: Any) -> Tensor:
    """NumPy's `trunc`: floats rounded toward zero; integers as they are. Its derivative is 0."""
    x = real(b, x)
    return b.where(x < 0.0, b.ceil(x), b.floor(x)) if x.dtype.is_float else x


@helper
def rint(b: Builder, x: Any) -> Tensor:
    """NumPy's `rint`, as `round`: to the nearest whole number, halves to the even one."""
    return b.round(x)


@helper
def sign(b: Builder, x: Any) -> Tensor:
    """NumPy's `sign`: 1, -1, and `x` itself where it is 0 or NaN; of the dtype of `x`. Its derivative is 0.

    Of complex numbers it is `x/|x|`, 0 where x is 0, the direction of an infinite part, and NaN where either is NaN or both are
    infinite.
    """
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        return _complex_sign(b, b.stop_gradient(x))
    if x.dtype.is_bool:
        raise ShapeError("is not defined for bool")
    return _real_sign(b, x)


@in_compute
def _real_sign(b: Builder, x: Tensor) -> Tensor:
    if not x.dtype.is_signed:
        return b.minimum(x, 1)
    return b.where(x > 0, 1, b.where(x < 0, -1, b.stop_gradient(x)))


def _complex_sign(b: Builder, z: Tensor) -> Tensor:
    """`z/|z|`, where z is brought near 1 by a power of two if its size may not be a normal f32."""
    real_part, imaginary = b.real(z), b.imag(z)
    greater = b.maximum(b.abs(real_part), b.abs(imaginary))
    scale = b.where(greater > 2.0**60, 2.0**-66, b.where(greater < 2.0**-60, 2.0**66, 1.0))
    parts = (real_part * scale, imaginary * scale)
    size = b.abs(b.complex(*parts))
    unknown = b.isnan(z)
    directed: list[Tensor] = []
    for part, other in (parts, parts[::-1]):
        at_infinity = b.where(b.isinf(part), b.where(b.isinf(other), math.nan, sign(b, part)), part * 0.0)
        found = part / b.where(size == 0.0, 1.0, size)
        found = b.where(size == 0.0, 0.0, b.where(b.isinf(size), at_infinity, found))
        directed.append(b.where(unknown, math.nan, found))
    return b.complex(*directed)


@helper
def signbit(b: Builder, x: Any) -> Tensor:
    """NumPy's `signbit`: whether a number has a minus, as -0.0 has; False for NaN, whatever its sign."""
    x = real(b, x)
    if not x.dtype.is_float:
        return x < 0
    x = cast(b, x, x.dtype.compute) if x.dtype.storage else x  # which may lack the infinity that 1/x is
    return b.bitwise_or(x < 0.0, b.bitwise_and(x == 0.0, 1.0 / x < 0.0))


@helper
@in_compute
def copysign(b: Builder, magnitude: Any, x: Any) -> Tensor:
    """NumPy's `copysign`: floats of the size of the first with the sign of the second (see `signbit`)."""
    magnitude, x = common(b, magnitude, x)
    size = b.abs(inexact(b, real(b, magnitude)))
    return b.where(signbit(b, x), -size, size)


@helper
def nextafter(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `nextafter`: the float next to the first in the direction of the second, which it is if they are equal; NaN if
    either is. Its derivative is 0.
    """
    x, y = (b.stop_gradient(inexact(b, real(b, v))) for v in common(b, lhs, rhs))
    if x.dtype.storage:
        return _next_code(b, x, y)
    words = x.dtype.signed_word
    bits, least = b.bitcast(x, words), constant_scalar(b, 1, words)
    sign = constant_scalar(b, int(words.min), words)
    # Of one sign, sizes are in the order of their bits.
    grows = b.eq(y > x, bits >= 0)
    stepped = b.where(grows, bits + 1, bits - 1)
    from_zero = b.where(y > 0.0, least, b.bitwise_or(sign, least))
    found = b.bitcast(b.where(x == 0.0, from_zero, stepped), x.dtype)
    found = b.where(x == y, y, found)
    return b.where(b.isnan(x) | b.isnan(y), math.nan, found)


def _next_code(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The number of a storage float next to x towards y, by its place among the numbers of the format."""
    kind, layout = x.dtype, x.dtype.float_format
    assert layout is not None
    word, half = kind.unsigned_word, layout.sign_bit

    def place(v: Tensor) -> Tensor:
        code = cast(b, b.bitcast(v, word), i16)
        return b.where(code < half, code, half - code) if layout.signed else code

    start, end = place(x), place(y)
    moved = start + cast(b, end > start, i16) - cast(b, end < start, i16)
    below = moved < 0
    if layout.signed and layout.special != "fnuz":  # a zero keeps the sign of x
        below = b.bitwise_or(below, b.bitwise_and(b.eq(moved, 0), start < 0))
    code = b.where(below, half - moved, moved) if layout.signed else moved
    found = b.where(b.eq(start, end), y, b.bitcast(cast(b, code, word), kind))
    return found if layout.special == "finite" else b.where(b.isnan(x) | b.isnan(y), math.nan, found)


@helper
def square(b: Builder, x: Any) -> Tensor:
    """NumPy's `square`: `x * x`."""
    x = tensor_like(b, x, f32)
    return x * x


@helper
def reciprocal(b: Builder, x: Any) -> Tensor:
    """`1 / x` of floats and complex numbers; of integers as a float, as `1.0 / x` is."""
    return 1.0 / tensor_like(b, x, f32)


@helper
def clip(b: Builder, x: Any, min: Any = None, max: Any = None) -> Tensor:
    """NumPy's `clip`: `minimum(maximum(x, min), max)`. A bound that is None is none; others broadcast, and promote."""
    x = real(b, x)
    x = x if min is None else b.maximum(x, min)
    return x if max is None else b.minimum(x, max)


# --- quotients and remainders -----------------------------------------------------------------------


@helper
def fmod(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `fmod`, JAX's `lax.rem`: what is left after division, with the sign of `lhs`; exact.

    NaN for an infinite `lhs` or for `rhs = 0`, but of integers `lhs` itself. The derivatives are 1 and
    `-trunc(lhs / rhs)`.
    """
    return b.binary("rem", lhs, rhs)


@helper
@in_compute
def remainder(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `remainder`, `lhs % rhs`: what is left after `floor_divide`, with the sign of `rhs`.

    NaN for an infinite `lhs` or for `rhs = 0`, but of integers `lhs` itself.
    """
    lhs, rhs = common(b, lhs, rhs)
    return _with_sign_of(b, b.binary("rem", lhs, rhs), rhs)[0]


@helper
@in_compute
def mod(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `mod`, as `remainder`."""
    return remainder(b, lhs, rhs)


def _with_sign_of(b: Builder, rest: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is left after a division that truncates as what is left after one that rounds down; and where they differ."""
    if not rest.dtype.is_signed:
        return rest, None
    differs = b.bitwise_and(rest != 0, b.bitwise_xor(rest < 0, rhs < 0))
    if rest.dtype.is_integer:  # by 0, nothing is divided
        differs = b.bitwise_and(differs, rhs != 0)
        return b.where(differs, rest + rhs, rest), differs
    # A zero has the sign of rhs, and the derivative of the rest.
    zero = b.where(rhs < 0.0, constant_scalar(b, -0.0, rest.dtype), 0.0) - (b.stop_gradient(rest) - rest)
    return b.where(rest == 0.0, zero, b.where(differs, rest + rhs, rest)), differs


@helper
@in_compute
def floor_divide(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `floor_divide`, `lhs // rhs`: the quotient, rounded down, of the dtype of the operands.

    Of floats it is `(lhs - remainder) / rhs` rounded to a whole number, and `lhs / rhs` for `rhs = 0`; of integers -1 for
    `rhs = 0` (for unsigned ones, where all bits are 1, the greatest number), and the least integer by -1 is itself.
    """
    lhs, rhs = common(b, lhs, rhs)
    return _divided(b, lhs, rhs)[0]


@helper
@in_compute
def divmod(b: Builder, lhs: Any, rhs: Any) -> tuple[Tensor, Tensor]:
    """Python's `divmod`: `floor_divide` and `remainder`."""
    lhs, rhs = common(b, lhs, rhs)
    return _divided(b, lhs, rhs)


def _divided(b: Builder, lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    if lhs.dtype.is_integer:
        quotient = b.binary("trunc_div", lhs, rhs)
        rest, differs = _with_sign_of(b, b.binary("rem", lhs, rhs), rhs)
        return quotient if differs is None else quotient - b.cast(differs, quotient.dtype), rest
    truncated = b.binary("rem", lhs, rhs)
    rest, differs = _with_sign_of(b, truncated, rhs)
    plain = b.stop_gradient(lhs / rhs)
    # A whole number up to rounding, so that rounding to the nearest is right where rounding down may be off by one.
    whole = b.stop_gradient(b.round((lhs - truncated) / rhs))
    whole = whole if differs is None else b.where(differs, whole - 1.0, whole)
    whole = b.where(whole == 0.0, b.where(signbit(b, plain), constant_scalar(b, -0.0, whole.dtype), 0.0), whole)
    return b.where(rhs == 0.0, plain, whole), rest


# --- kinds of numbers -------------------------------------------------------------------------------


@helper
def isnan(b: Builder, x: Any) -> Tensor:
    """NumPy's `isnan`: bools, where numbers are NaN."""
    x = tensor_like(b, x, f32)
    return b.compare("ne", x, x)


@helper
def isinf(b: Builder, x: Any) -> Tensor:
    """NumPy's `isinf`: bools, where numbers are infinite, either part of complex ones."""
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        return b.bitwise_or(isinf(b, b.real(x)), isinf(b, b.imag(x)))
    return b.abs(x) == math.inf if x.dtype.is_float else b.compare("ne", x, x)


@helper
def isfinite(b: Builder, x: Any) -> Tensor:
    """NumPy's `isfinite`: bools, where numbers are neither infinite nor NaN, in both parts of complex ones."""
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        return b.bitwise_and(isfinite(b, b.real(x)), isfinite(b, b.imag(x)))
    return b.abs(x) < math.inf if x.dtype.is_float else b.compare("eq", x, x)


@helper
def nan_to_num(
    b: Builder, x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NumPy's `nan_to_num`: numbers in place of NaN and infinities; for the latter, by default, the greatest and the least."""
    if nan is None or isinstance(nan, bool):
        raise ShapeError(
            f"nan is a number, not {nan}: there is no copy=", hint="g.nan_to_num(x, nan=0.0): tensors are never changed"
        )
    x = real(b, x)
    if not x.dtype.is_float:
        return x
    greatest = float(x.dtype.max)
    x = b.where(x == math.inf, greatest if posinf is None else posinf, x)
    x = b.where(x == -math.inf, -greatest if neginf is None else neginf, x)
    return b.where(b.compare("ne", x, x), nan, x)
