"""Bitwise ops on integers, and logic on booleans."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

from rlx.ir.dtype import INTEGERS, STORAGE, DType, dtype, f32, i8, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape, as_dtype
from rlx.ops.lift import cast, common, constant_scalar, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# `and`, `or` and `xor` on bools, as kinds of other ops.
_LOGIC = {"and": ("binary", "min"), "or": ("binary", "max"), "xor": ("compare", "ne")}

# Dtype pairs that can share a buffer: a bool is a byte of 0 or 1.
SAME_BITS = frozenset({("bool", "i8"), ("bool", "u8")}) | {
    names for name in INTEGERS for names in permutations((dtype(name).signed_word.name, dtype(name).unsigned_word.name))
}


class Popcount(Card, op="popcount"):
    def infer(self, x: Shape) -> Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)

    def build(self, b: Builder, x: Any) -> Tensor:
        x = tensor_like(b, x, i32)
        if x.dtype.packed and x.dtype.is_signed and x.dtype.is_integer:  # i8 repeats the sign bit
            return cast(b, b.emit("popcount", (cast(b, x, x.dtype.unsigned_word),)), x.dtype)
        return b.emit("popcount", (x,))

    def samples(self) -> Any:
        yield sample(SampleOperand((3, 5), low=-100, high=100), dtypes=INTEGERS)
        yield sample(("n",), dtypes=("i32",))


class Bitcast(Card, op="bitcast"):
    def infer(self, x: Shape, *, dtype: DType) -> Shape:
        for kind in (x.dtype, dtype):
            if kind.is_bool or kind.is_complex:
                raise ShapeError(f"{kind.name} has no bits to read as another dtype")
        if dtype.bits != x.dtype.bits:
            raise ShapeError(f"{x.dtype.name} has {x.dtype.bits} bits, {dtype.name} {dtype.bits}")
        return x.with_dtype(dtype)

    def evaluate(self, x: np.ndarray, *, dtype: DType) -> np.ndarray:
        if dtype.packed:  # one byte each in NumPy; ml_dtypes extends the sign of signed integers to the upper bits
            codes = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) & ((1 << dtype.bits) - 1)
            return codes.view(dtype.numpy)
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)

    def aliases(self, operands: Any, results: Any, attributes: Any) -> list[tuple[int, int] | None]:
        names = (operands[0].dtype.name, results[0].dtype.name)
        return [(0, 0) if names[0] == names[1] or names in SAME_BITS else None]

    def build(self, b: Builder, x: Any, dtype: Any) -> Tensor:
        x, kind = tensor_like(b, x, f32), as_dtype(dtype)
        return x if x.dtype is kind else b.emit("bitcast", (x,), dtype=kind)

    # A bitcast to the same dtype is the identity. A bitcast to a different dtype has no derivative.

    def jvp(self, b: Builder, operands: Any, tangents: Any, results: Any, *, dtype: DType) -> Tensor | None:
        return tangents[0] if operands[0].dtype is dtype else None

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, dtype: DType) -> Any:
        return (cotangents[0] if operands[0].dtype is dtype else None,)

    def samples(self) -> Any:
        for source, target in (("f32", "i32"), ("f32", "u32"), ("f64", "i64"), ("f16", "i16"), ("bf16", "i16")):
            yield sample((3, 5), dtype=as_dtype(target), dtypes=(source,))
        for source, target in (
            ("i32", "f32"),
            ("u32", "f32"),
            ("i64", "f64"),
            ("i8", "u8"),
            ("u8", "i8"),
            ("u32", "i32"),
            ("i16", "bf16"),
            ("u64", "f64"),
            ("u16", "f16"),
        ):
            yield sample(SampleOperand(("n", 3), low=1, high=100), dtype=as_dtype(target), dtypes=(source,))
        for name in STORAGE:
            word = "u8" if as_dtype(name).bits == 8 else "u4" if as_dtype(name).bits == 4 else "u2"
            yield sample((3, 5), dtype=as_dtype(word), dtypes=(name,))
            yield sample((3, 5), dtype=as_dtype(name), dtypes=(word,))


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
    """NumPy's `bitwise_and`, `lhs & rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "and", lhs, rhs)


@helper
def bitwise_or(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `bitwise_or`, `lhs | rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "or", lhs, rhs)


@helper
def bitwise_xor(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `bitwise_xor`, `lhs ^ rhs`: for integers bit by bit, or for bools."""
    return _combined(b, "xor", lhs, rhs)


@helper
def bitwise_not(b: Builder, x: Any) -> Tensor:
    """NumPy's `bitwise_not`, `~x`: all bits of integers flipped, or the logical not of bools."""
    x = tensor_like(b, x, i32)
    if x.dtype.is_bool:
        return b.compare("eq", x, False)
    if not x.dtype.is_integer:
        raise ShapeError(f"takes integers or bools, not {x.dtype.name}")
    ones = constant_scalar(b, -1 if x.dtype.is_signed else int(x.dtype.max), x.dtype)
    return b.emit("binary", (x, ones), kind="xor")


@helper
def left_shift(b: Builder, x: Any, count: Any) -> Tensor:
    """NumPy's `left_shift`, `x << count`, for integers: 0 where `count` is negative or at least the number of bits."""
    return b.binary("shift_left", x, count)


@helper
def right_shift(b: Builder, x: Any, count: Any) -> Tensor:
    """NumPy's `right_shift`, `x >> count`, for integers; signed integers keep their sign.

    A `count` that is negative or at least the number of bits gives 0, or -1 for negative numbers.
    """
    return b.binary("shift_right", x, count)


@helper
def shift_right_logical(b: Builder, x: Any, count: Any) -> Tensor:
    """JAX's `lax.shift_right_logical`: shifts right and fills with zeros, also for negative numbers.

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


def truth(b: Builder, x: Any) -> Tensor:
    """Return bools as they are, and for numbers whether they are nonzero; NaN counts as nonzero."""
    x = tensor_like(b, x, i32)
    return x if x.dtype.is_bool else b.compare("ne", x, 0)


@helper
def logical_and(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_and`: whether both elements are nonzero."""
    return bitwise_and(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_or(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_or`: whether at least one element is nonzero."""
    return bitwise_or(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_xor(b: Builder, lhs: Any, rhs: Any) -> Tensor:
    """NumPy's `logical_xor`: whether exactly one element is nonzero."""
    return bitwise_xor(b, truth(b, lhs), truth(b, rhs))


@helper
def logical_not(b: Builder, x: Any) -> Tensor:
    """NumPy's `logical_not`: whether the element is 0."""
    return bitwise_not(b, truth(b, x))
