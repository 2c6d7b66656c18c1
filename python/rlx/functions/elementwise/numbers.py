"""Classification of numbers, rounding, signs and remainders: exact functions that are composed of other ops."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

import math

from rlx.ir.dtype import f32, i16
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import cast, common, constant_scalar, in_compute, inexact, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# --- rounding and signs -----------------------------------------------------------------------------


def real(b: Builder, x: object) -> Tensor:
    """Return a tensor, array or number as a real tensor.

    Raises:
        ShapeError: The value is complex.
    """
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        raise ShapeError(f"is not defined for {x.dtype.name}")
    return x


@helper
@in_compute
def trunc(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `trunc`: floats rounded toward zero; integers unchanged. Its derivative is 0."""
    x = real(b, x)
    return b.where(x < 0.0, b.ceil(x), b.floor(x)) if x.dtype.is_float else x


@helper
def rint(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `rint`, the same as `round`: to the nearest integer, halves to the even one."""
    return b.round(x)


@helper
def sign(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `sign`: 1, -1, or `x` itself where it is 0 or NaN; in the dtype of `x`. Its derivative is 0.

    For complex numbers it is `x/|x|`, and 0 where x is 0. If one part is infinite, the result is the direction of that
    part. It is NaN if a part is NaN or both parts are infinite.
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
    """Return `z/|z|`. If the modulus may not be a normal f32, `z` is first scaled by a power of two to a size near 1."""
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
def signbit(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `signbit`: whether a number has a minus sign, including -0.0; False for NaN of either sign."""
    x = real(b, x)
    if not x.dtype.is_float:
        return x < 0
    x = cast(b, x, x.dtype.compute) if x.dtype.storage else x  # the storage dtype may lack the infinity 1/x
    return b.bitwise_or(x < 0.0, b.bitwise_and(x == 0.0, 1.0 / x < 0.0))


@helper
@in_compute
def copysign(b: Builder, magnitude: TensorLike, x: TensorLike) -> Tensor:
    """NumPy's `copysign`: floats with the magnitude of the first operand and the sign of the second (see `signbit`)."""
    magnitude, x = common(b, magnitude, x)
    size = b.abs(inexact(b, real(b, magnitude)))
    return b.where(signbit(b, x), -size, size)


@helper
def nextafter(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `nextafter`: the next float after the first operand in the direction of the second.

    It is the second operand if both are equal, and NaN if either is NaN. Its derivative is 0.
    """
    x, y = (b.stop_gradient(inexact(b, real(b, v))) for v in common(b, lhs, rhs))
    if x.dtype.storage:
        return _next_code(b, x, y)
    words = x.dtype.signed_word
    bits, least = b.bitcast(x, words), constant_scalar(b, 1, words)
    sign = constant_scalar(b, int(words.min), words)
    # Numbers of the same sign are ordered like their bits.
    grows = b.eq(y > x, bits >= 0)
    stepped = b.where(grows, bits + 1, bits - 1)
    from_zero = b.where(y > 0.0, least, b.bitwise_or(sign, least))
    found = b.bitcast(b.where(x == 0.0, from_zero, stepped), x.dtype)
    found = b.where(x == y, y, found)
    return b.where(b.isnan(x) | b.isnan(y), math.nan, found)


def _next_code(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Return the number of a storage float next to x in the direction of y, by its index among the numbers of the format."""
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
def square(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `square`: `x * x`."""
    x = tensor_like(b, x, f32)
    return x * x


@helper
def reciprocal(b: Builder, x: TensorLike) -> Tensor:
    """`1 / x` for floats and complex numbers; for integers a float, like `1.0 / x`."""
    return 1.0 / tensor_like(b, x, f32)


@helper
def clip(b: Builder, x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """NumPy's `clip`: `minimum(maximum(x, min), max)`. A bound of None is ignored; bounds broadcast and promote."""
    x = real(b, x)
    x = x if min is None else b.maximum(x, min)
    return x if max is None else b.minimum(x, max)


# --- quotients and remainders -----------------------------------------------------------------------


@helper
def fmod(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `fmod`, JAX's `lax.rem`: the remainder of a truncated division, with the sign of `lhs`; exact.

    It is NaN for an infinite `lhs` or for `rhs = 0`; for integers and `rhs = 0` it is `lhs`. The derivatives are 1 and
    `-trunc(lhs / rhs)`.
    """
    return b.binary("rem", lhs, rhs)


@helper
@in_compute
def remainder(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `remainder`, `lhs % rhs`: the remainder of `floor_divide`, with the sign of `rhs`.

    It is NaN for an infinite `lhs` or for `rhs = 0`; for integers and `rhs = 0` it is `lhs`.
    """
    lhs, rhs = common(b, lhs, rhs)
    return _with_sign_of(b, b.binary("rem", lhs, rhs), rhs)[0]


@helper
@in_compute
def mod(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `mod`, the same as `remainder`."""
    return remainder(b, lhs, rhs)


def _with_sign_of(b: Builder, rest: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Convert the remainder of a truncated division to that of a floored division. Also return where the two differ."""
    if not rest.dtype.is_signed:
        return rest, None
    differs = b.bitwise_and(rest != 0, b.bitwise_xor(rest < 0, rhs < 0))
    if rest.dtype.is_integer:  # division by 0 leaves the remainder unchanged
        differs = b.bitwise_and(differs, rhs != 0)
        return b.where(differs, rest + rhs, rest), differs
    # A zero gets the sign of rhs and the derivative of the remainder.
    zero = b.where(rhs < 0.0, constant_scalar(b, -0.0, rest.dtype), 0.0) - (b.stop_gradient(rest) - rest)
    return b.where(rest == 0.0, zero, b.where(differs, rest + rhs, rest)), differs


@helper
@in_compute
def floor_divide(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `floor_divide`, `lhs // rhs`: the quotient, rounded down, in the dtype of the operands.

    For floats it is `(lhs - remainder) / rhs` rounded to an integer, and `lhs / rhs` for `rhs = 0`. For integers and
    `rhs = 0` it is -1, which is the largest number of an unsigned dtype. The smallest signed integer divided by -1 is
    itself.
    """
    lhs, rhs = common(b, lhs, rhs)
    return _divided(b, lhs, rhs)[0]


@helper
@in_compute
def divmod(b: Builder, lhs: TensorLike, rhs: TensorLike) -> tuple[Tensor, Tensor]:
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
    # The quotient is an integer up to rounding errors: rounding to nearest is correct, rounding down could be off by
    # one.
    whole = b.stop_gradient(b.round((lhs - truncated) / rhs))
    whole = whole if differs is None else b.where(differs, whole - 1.0, whole)
    whole = b.where(whole == 0.0, b.where(signbit(b, plain), constant_scalar(b, -0.0, whole.dtype), 0.0), whole)
    return b.where(rhs == 0.0, plain, whole), rest


# --- classification ---------------------------------------------------------------------------------


@helper
def isnan(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `isnan`: whether elements are NaN."""
    x = tensor_like(b, x, f32)
    return b.compare("ne", x, x)


@helper
def isinf(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `isinf`: whether elements are infinite; for complex numbers, whether either part is."""
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        return b.bitwise_or(isinf(b, b.real(x)), isinf(b, b.imag(x)))
    return b.abs(x) == math.inf if x.dtype.is_float else b.compare("ne", x, x)


@helper
def isfinite(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `isfinite`: whether elements are neither infinite nor NaN; for complex numbers, both parts."""
    x = tensor_like(b, x, f32)
    if x.dtype.is_complex:
        return b.bitwise_and(isfinite(b, b.real(x)), isfinite(b, b.imag(x)))
    return b.abs(x) < math.inf if x.dtype.is_float else b.compare("eq", x, x)


@helper
def nan_to_num(
    b: Builder, x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NumPy's `nan_to_num`: replaces NaN and infinities; by default, infinities become the extreme finite numbers."""
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
