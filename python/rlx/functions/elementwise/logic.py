"""Bitwise functions of integers, and logic on booleans."""

from __future__ import annotations

from rlx.ir.dtype import i8, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import cast, common, constant_scalar, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# `and`, `or` and `xor` on bools, as kinds of other ops.
_LOGIC = {"and": ("binary", "min"), "or": ("binary", "max"), "xor": ("compare", "ne")}


def _combined(b: Builder, kind: str, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    lhs, rhs = common(b, lhs, rhs)
    if lhs.dtype.is_bool:
        op, name = _LOGIC[kind]
        return getattr(b, op)(name, lhs, rhs)
    if not lhs.dtype.is_integer:
        raise ShapeError(f"takes integers or bools, not {lhs.dtype.name}")
    return b.binary(kind, lhs, rhs)


@helper
def bitwise_and(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `bitwise_and`, `lhs & rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "and", lhs, rhs)


@helper
def bitwise_or(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `bitwise_or`, `lhs | rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "or", lhs, rhs)


@helper
def bitwise_xor(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `bitwise_xor`, `lhs ^ rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "xor", lhs, rhs)


@helper
def bitwise_not(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `bitwise_not`, `~x`: all bits of integers flipped, or the logical not of bools."""
    x = tensor_like(b, x, i32)
    if x.dtype.is_bool:
        return b.compare("eq", x, False)
    if not x.dtype.is_integer:
        raise ShapeError(f"takes integers or bools, not {x.dtype.name}")
    ones = constant_scalar(b, -1 if x.dtype.is_signed else int(x.dtype.max), x.dtype)
    return b.binary("xor", x, ones)


@helper
def left_shift(b: Builder, x: TensorLike, count: TensorLike) -> Tensor:
    """NumPy's `left_shift`, `x << count`, for integers: 0 where `count` is negative or at least the number of bits."""
    return b.binary("shift_left", x, count)


@helper
def right_shift(b: Builder, x: TensorLike, count: TensorLike) -> Tensor:
    """NumPy's `right_shift`, `x >> count`, for integers; signed integers keep their sign.

    A `count` that is negative or at least the number of bits gives 0, or -1 for negative numbers.
    """
    return b.binary("shift_right", x, count)


@helper
def shift_right_logical(b: Builder, x: TensorLike, count: TensorLike) -> Tensor:
    """JAX's `lax.shift_right_logical`: shifts right and fills with zeros for both signs.

    A `count` that is negative or at least the number of bits gives 0.
    """
    x, count = common(b, x, count)
    if not x.dtype.is_signed or not x.dtype.is_integer:
        return b.binary("shift_right", x, count)
    if x.dtype in (i8, i32) or x.dtype.packed:
        unsigned = x.dtype.unsigned_word
        return cast(b, b.binary("shift_right", cast(b, x, unsigned), cast(b, count, unsigned)), x.dtype)
    bits = x.dtype.bits  # some targets do not support u16 and u64
    filled = b.binary("shift_left", -1, bits - count)
    inside = bitwise_and(b, count >= 0, count < bits)
    return b.where(inside, bitwise_and(b, b.binary("shift_right", x, count), bitwise_not(b, filled)), 0)


# --- booleans ---------------------------------------------------------------------------------------


def truth(b: Builder, x: TensorLike) -> Tensor:
    """Return bools as they are, and for numbers whether they are nonzero; NaN counts as nonzero."""
    x = tensor_like(b, x, i32)
    return x if x.dtype.is_bool else b.compare("ne", x, 0)


@helper
def logical_and(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `logical_and`: whether both elements are nonzero."""
    return bitwise_and(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_or(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `logical_or`: whether at least one element is nonzero."""
    return bitwise_or(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_xor(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `logical_xor`: whether exactly one element is nonzero."""
    return bitwise_xor(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_not(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `logical_not`: whether the element is 0."""
    return bitwise_not(b, truth(b, x))
