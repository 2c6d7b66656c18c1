"""Bits of integers, and logic of truth values."""

from __future__ import annotations

from typing import Any

from rlx.ir.builder import Builder, Tensor
from rlx.ir.dtype import i8, i32, u8, u32
from rlx.ir.errors import ShapeError
from rlx.ops.lift import cast, common, constant_scalar, tensor_like
from rlx.ops.surface import helper

# Signed dtypes with an unsigned dtype of the same size.
_UNSIGNED = {i8: u8, i32: u32}
# What `and`, `or` and `xor` are on truth values, as kinds of other ops.
_LOGIC = {"and": ("binary", "min"), "or": ("binary", "max"), "xor": ("compare", "ne")}


def _combined(b: Builder, kind: str, lhs: Any, rhs: Any) -> Tensor:
    lhs, rhs = common(b, lhs, rhs)
    if lhs.dtype.is_bool:
        op, name = _LOGIC[kind]
        return b.emit(op, (lhs, rhs), kind=name)
    if not lhs.dtype.is_integer:
        raise ShapeError(f"takes integers or bools, not {lhs.dtype.name}")
    return b.emit("binary", (lhs, rhs), kind=kind)


@helper
def bitwise_and(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `bitwise_and`, `lhs & rhs`: of the bits of integers, or of bools."""
    return _combined(b, "and", lhs, rhs)


@helper
def bitwise_or(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `bitwise_or`, `lhs | rhs`: of the bits of integers, or of bools."""
    return _combined(b, "or", lhs, rhs)


@helper
def bitwise_xor(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `bitwise_xor`, `lhs ^ rhs`: of the bits of integers, or of bools."""
    return _combined(b, "xor", lhs, rhs)


@helper
def bitwise_not(b: Builder, x: Any) -> Tensor:
    """NumPy's `bitwise_not`, `~x`: all bits of integers, or the logical not of bools."""
    x = tensor_like(b, x, i32)
    if x.dtype.is_bool:
        return b.compare("eq", x, False)
    if not x.dtype.is_integer:
        raise ShapeError(f"takes integers or bools, not {x.dtype.name}")
    ones = constant_scalar(b, -1 if x.dtype.is_signed else int(x.dtype.max), x.dtype)
    return b.emit("binary", (x, ones), kind="xor")


@helper
def left_shift(b: Builder, x: Any, count: Any) -> Tensor:
    """NumPy's `left_shift`, `x << count`, of integers: 0 where `count` is negative, or not less than there are bits."""
    return b.binary("shift_left", x, count)


@helper
def right_shift(b: Builder, x: Any, count: Any) -> Tensor:
    """NumPy's `right_shift`, `x >> count`: of signed integers with their sign. A `count` that is negative, or not less than
    there are bits, leaves 0, or -1 of negative numbers.
    """
    return b.binary("shift_right", x, count)


@helper
def shift_right_logical(b: Builder, x: Any, count: Any) -> Tensor:
    """JAX's `lax.shift_right_logical`: bits to the right, with zeros from the left whatever the sign; 0 for a `count` that
    is negative, or not less than there are bits.
    """
    x, count = common(b, x, count)
    if not x.dtype.is_signed or not x.dtype.is_integer:
        return b.binary("shift_right", x, count)
    unsigned = _UNSIGNED.get(x.dtype)
    if unsigned is not None:
        return cast(b, b.binary("shift_right", cast(b, x, unsigned), cast(b, count, unsigned)), x.dtype)
    bits = 8 * x.dtype.itemsize
    filled = b.binary("shift_left", -1, bits - count)
    inside = bitwise_and(b, count >= 0, count < bits)
    return b.where(inside, bitwise_and(b, b.binary("shift_right", x, count), bitwise_not(b, filled)), 0)


# --- truth values -----------------------------------------------------------------------------------


def truth(b: Builder, x: Any) -> Tensor:
    """Bools as they are, and of numbers whether they are other than 0; NaN is."""
    x = tensor_like(b, x, i32)
    return x if x.dtype.is_bool else b.compare("ne", x, 0)


@helper
def logical_and(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_and`: whether both are other than 0."""
    return bitwise_and(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_or(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_or`: whether one is other than 0."""
    return bitwise_or(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_xor(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_xor`: whether just one is other than 0."""
    return bitwise_xor(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_not(b: Builder, x: Any) -> Tensor:
    """NumPy's `logical_not`: whether it is 0."""
    return bitwise_not(b, truth(b, x))
