"""Ops on the bits of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from rlx.ir.dtype import INTEGERS, STORAGE, DType, dtype, f32, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, OpSample, SampleOperand, Shapes, sample
from rlx.ir.shape import Shape, as_dtype
from rlx.ops import rules
from rlx.ops.lift import cast, tensor_like
from rlx.support.errors import ShapeError

# Dtype pairs that can share a buffer: a bool is a byte of 0 or 1.
SAME_BITS = frozenset({("bool", "i8"), ("bool", "u8")}) | {
    names for name in INTEGERS for names in permutations((dtype(name).signed_word.name, dtype(name).unsigned_word.name))
}


class Popcount(Card, op="popcount"):
    def infer(self, x: Shape) -> Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        x = tensor_like(b, x, i32)
        if x.dtype.packed and x.dtype.is_signed and x.dtype.is_integer:  # i8 repeats the sign bit
            return cast(b, b.emit("popcount", (cast(b, x, x.dtype.unsigned_word),)), x.dtype)
        return b.emit("popcount", (x,))

    def samples(self) -> Iterable[OpSample]:
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

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        names = (operands[0].dtype.name, results[0].dtype.name)
        return [(0, 0) if names[0] == names[1] or names in SAME_BITS else None]

    def build(self, b: Builder, x: TensorLike, dtype: DTypeLike) -> Tensor:
        x, kind = tensor_like(b, x, f32), as_dtype(dtype)
        return x if x.dtype is kind else b.emit("bitcast", (x,), dtype=kind)

    # A bitcast to the same dtype is the identity. A bitcast to a different dtype has no derivative.

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, dtype: DType) -> Tensor | None:
        return tangents[0] if operands[0].dtype is dtype else None

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, dtype: DType
    ) -> rules.Cotangents:
        return (cotangents[0] if operands[0].dtype is dtype else None,)

    def samples(self) -> Iterable[OpSample]:
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
