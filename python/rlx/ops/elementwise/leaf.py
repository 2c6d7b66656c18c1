"""Leaf ops: constants and positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array, as_numbers, is_written
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import EVERY, REAL, DType, bool_, c64, dtype, f32, i32
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, ShapeLike, TensorLike
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, sample
from rlx.ir.shape import Shape, as_dtype
from rlx.ops.lift import axis_of, check_axis
from rlx.support.errors import ShapeError


class Constant(Card, op="constant"):
    def infer(self, *, value: np.ndarray) -> Shape:
        return Shape(value.shape, dtype(value.dtype))

    def evaluate(self, *, value: np.ndarray) -> np.ndarray:
        return value

    def build(self, b: Builder, value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
        if dtype is not None:
            array = as_array_of(value, as_dtype(dtype))
        elif is_written(value):
            array = as_array_of(value, _default_dtype(value))
        else:
            array = as_array(value, "the value")
        return b.emit("constant", (), value=array)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        every = EVERY
        for name in every:
            kind = dtype(name).numpy
            yield sample(value=np.array([[0, 1, 2], [3, 100, 5]]).astype(kind), dtypes=("f32",))
            yield sample(value=np.ones((), kind), dtypes=("f32",))
            yield sample(value=np.zeros((2, 0), kind), dtypes=("f32",))
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
        yield sample(value=special, dtypes=("f32",))


def _default_dtype(value: object) -> DType:
    """Return the default dtype of Python numbers: f32, bool, c64 or i32. It depends on their type, not on their values."""
    return {"f": f32, "b": bool_, "c": c64}.get(as_numbers(value, "the value").dtype.kind, i32)


class Iota(Card, op="iota"):
    def infer(self, *, shape: tuple[Dim, ...], axis: int, dtype: DType) -> Shape:
        check_axis(axis, len(shape))
        return Shape(shape, dtype)

    def evaluate(self, *, shape: tuple[int, ...], axis: int, dtype: DType) -> np.ndarray:
        positions = np.arange(shape[axis]).astype(dtype.numpy)
        return np.broadcast_to(positions.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)

    def build(self, b: Builder, shape: ShapeLike, axis: int = 0, dtype: DTypeLike = "i32") -> Tensor:
        kind = shape.dtype if isinstance(shape, Shape) else as_dtype(dtype)
        sizes: Any = shape
        dims = Shape(sizes).dims
        return b.emit("iota", (), shape=dims, axis=axis_of(axis, len(dims)), dtype=kind)

    def samples(self) -> Iterable[OpSample]:
        for kind in REAL:
            yield sample(shape=(3, 4), axis=1, dtype=kind, dtypes=("f32",))
        yield sample(shape=(3, 4, 2), axis=0, dtype="i32", dtypes=("f32",))
        yield sample(shape=(0,), axis=0, dtype="i32", dtypes=("f32",))
        yield sample(shape=("n", "2*n+1"), axis=1, dtype="i32", dtypes=("f32",))


class DimSize(Card, op="dim_size"):
    signed_sizes = True  # for example the difference of two sizes

    def infer(self, *, size: tuple[Dim, ...]) -> Shape:
        if len(size) != 1:
            raise ShapeError(f"size is a list of one dimension, got {len(size)}")
        if type(size[0]) is int and not i32.min <= size[0] <= i32.max:
            raise ShapeError(f"the size {size[0]} does not fit i32")
        return Shape((), "i32")

    def requires(self, *, size: tuple[Dim, ...]) -> list[tuple[Dim, str]]:
        limits = int(i32.min), int(i32.max)
        return [(gap, f"the size {size[0]} does not fit i32") for gap in (size[0] - limits[0], limits[1] - size[0])]

    def evaluate(self, *, size: tuple[int, ...]) -> np.ndarray:
        return np.asarray(size[0], np.int32)

    def build(self, b: Builder, size: ShapeLike) -> Tensor:
        return b.emit("dim_size", (), size=(size,))

    def samples(self) -> Iterable[OpSample]:
        yield sample(size=(7,), dtypes=("f32",))
        yield sample(size=("(3*n+m)//2",), dtypes=("f32",))
