"""Indexing: slices of tables at integer positions, clamped into range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx.ir.dims.dim import Dim, maximum, minimum, product
from rlx.ir.dtype import EVERY, INTEGERS, DType, i32, i64, u64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import axis_of, cast, check_axis, constant_scalar, tensor_like
from rlx.support.errors import ShapeError

INDICES = INTEGERS


def clamp(indices: np.ndarray, size: int) -> np.ndarray:
    """Return indices of any integer dtype, clamped to [0, size)."""
    return np.clip(in_i64(indices), 0, max(size - 1, 0))


def in_i64(indices: np.ndarray) -> np.ndarray:
    """Return indices of any integer dtype as i64. u64 values that do not fit become the largest i64, which is out of range."""
    return (
        np.minimum(indices, np.uint64(i64.max)).astype(np.int64)
        if indices.dtype == np.uint64
        else indices.astype(np.int64)
    )


def extent(b: Builder, size: Dim, kind: DType = i64) -> Tensor:
    """Return a size as a scalar of an integer dtype."""
    return constant_scalar(b, size, kind) if type(size) is int else cast(b, b.dim_size(size), kind)


def index_dtype(indices: DType, *sizes: Dim) -> DType:
    """Return the dtype for arithmetic on indices and sizes: i32 if it represents all of them, else i64.

    All devices have i32, and some lack i64. A symbolic size is a size of an axis, and has 32 bits (`dim_size`).
    """
    narrow = indices.bits < 32 or indices is i32
    return i32 if narrow and all(type(size) is not int or size <= i32.max for size in sizes) else i64


def place_dtype(indices: DType, sizes: Sequence[Dim]) -> DType:
    """Return the dtype for positions in joined axes; i64 if one of several sizes is symbolic."""
    joined = product(sizes)
    return i64 if len(sizes) > 1 and type(joined) is not int else index_dtype(indices, joined)


def widened_index(b: Builder, indices: Tensor) -> Tensor:
    """Return indices of any integer dtype as i64; u64 as in `in_i64`."""
    if indices.dtype is u64:
        indices = b.emit("binary", (indices, constant_scalar(b, i64.max, u64)), kind="min")
    return cast(b, indices, i64)


def clamp_indices(b: Builder, indices: Tensor, size: Dim) -> Tensor:
    """Return indices clamped to [0, size), in the dtype `index_dtype`."""
    kind = index_dtype(indices.dtype, size)
    index = widened_index(b, indices) if kind is i64 else cast(b, indices, i32)
    return b.maximum(b.minimum(index, extent(b, maximum(size - 1, 0), kind)), 0)


def put_back(b: Builder, dy: Tensor, indices: Tensor, table: Shape, axis: int) -> Tensor:
    """Return the adjoint of `gather_batched`: each slice is added at the table position that it was gathered from.

    Args:
        b: The builder that emits the ops.
        dy: The cotangent of the result.
        indices: The indices, as in `gather_batched`.
        table: The shape of the table.
        axis: The indexed axis of the table.
    """
    before, size = table.dims[:axis], table.dims[axis]
    rows = clamp_indices(b, indices, size)
    if axis:  # all tables, one after the other
        kind = place_dtype(indices.dtype, (*before, size))
        table_number = b.reshape(b.iota((product(before),), dtype=kind), (*before, *(1,) * (indices.rank - axis)))
        rows = cast(b, rows, kind) + table_number * extent(b, size, kind)
    return b.reshape(b.scatter_add(dy, rows, product((*before, size))), table.dims)


class _Lookup(Card):
    """Ops that read the same number of table elements as they return."""

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 2 * results[0].size_bytes + operands[1].size_bytes)


class Gather(_Lookup, op="gather"):
    def infer(self, table: Shape, indices: Shape, *, axis: int) -> Shape:
        check_axis(axis, table.rank)
        if table.dims[axis] == 0 and indices.num_elements != 0:
            raise ShapeError(f"axis {axis} of {table} is empty: there is nothing to gather")
        return table.with_dims((*table.dims[:axis], *indices.dims, *table.dims[axis + 1 :]))

    def requires(self, table: Shape, indices: Shape, *, axis: int) -> list[tuple[Dim, str]]:
        # An empty table is allowed if nothing is read from it: there are no indices, or slices have no elements.
        num_read = product((*indices.dims, *(d for i, d in enumerate(table.dims) if i != axis)))
        return [(table.dims[axis] - minimum(1, num_read), f"axis {axis} of the table is empty")]

    def evaluate(self, table: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
        if indices.size == 0:
            return np.zeros((*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]), table.dtype)
        return np.take(table, clamp(indices, table.shape[axis]), axis)

    def build(self, b: Builder, table: Tensor, indices: TensorLike, axis: int = 0) -> Tensor:
        if isinstance(axis, Tensor):
            raise ShapeError(
                "axis comes after the indices, by name", hint="PyTorch's gather is take_along_axis(x, indices, axis=…)"
            )
        return b.emit("gather", (table, tensor_like(b, indices, i32)), axis=axis_of(axis, table.rank))

    linear = ("table",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int
    ) -> rules.Cotangents:
        # The index axes come first, as in `scatter_add`, and the gathered axis moves to its original position.
        (table, indices), (dy,) = operands, cotangents
        size, last = table.shape.dims[axis], axis + indices.rank
        updates = b.transpose(dy, (*range(axis, last), *range(axis), *range(last, dy.rank)))
        rows = b.scatter_add(updates, clamp_indices(b, indices, size), size=size)
        return b.transpose(rows, (*range(1, axis + 1), 0, *range(axis + 1, table.rank))), None

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int) -> Tensor:
        table, indices = operands
        if not batched[1]:
            return b.emit("gather", operands, axis=axis + 1)
        if not batched[0]:
            return rules.move_axis(b, b.emit("gather", operands, axis=axis), axis, 0)
        # The table is [batch, gathered, others…]. With the axis directly after the batch, each row of indices has its
        # own table.
        table = b.transpose(table, (0, axis + 1, *(i for i in range(1, table.rank) if i != axis + 1)))
        gathered = b.emit("gather_batched", (table, indices), axis=1)
        last = indices.rank + axis
        return b.transpose(
            gathered, (0, *range(indices.rank, last), *range(1, indices.rank), *range(last, gathered.rank))
        )

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -3, "high": 9}  # out of range in both directions: clamped
        yield sample((5, 3), SampleOperand((4,), "i32", **wide), axis=0, dtypes=EVERY)
        for index in INDICES:
            yield sample((2, 5, 3), SampleOperand((4, 2), index, **wide), axis=1, dtypes=("f32",))
        yield sample((2, 5), SampleOperand((), "i64", **wide), axis=1, dtypes=("f32",))
        yield sample((2, 5), SampleOperand((0,), "i32"), axis=0, dtypes=("f32",))
        yield sample(("n", 3), SampleOperand(("m",), "i32", **wide), axis=0, dtypes=("f32",))


class GatherBatched(_Lookup, op="gather_batched"):
    def infer(self, table: Shape, indices: Shape, *, axis: int) -> Shape:
        check_axis(axis, table.rank)
        if indices.rank < axis or indices.dims[:axis] != table.dims[:axis]:
            raise ShapeError(f"the first {axis} axes of {table} and of the indices {indices} must agree")
        if table.dims[axis] == 0 and indices.num_elements != 0:
            raise ShapeError(f"axis {axis} of {table} is empty: there is nothing to gather")
        return table.with_dims((*indices.dims, *table.dims[axis + 1 :]))

    def requires(self, table: Shape, indices: Shape, *, axis: int) -> list[tuple[Dim, str]]:
        # An empty table is allowed if nothing is read from it: there are no indices, or slices have no elements.
        num_read = product((*indices.dims, *(d for i, d in enumerate(table.dims) if i != axis)))
        return [(table.dims[axis] - minimum(1, num_read), f"axis {axis} of the table is empty")]

    def evaluate(self, table: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
        result = np.zeros((*indices.shape, *table.shape[axis + 1 :]), table.dtype)
        for position in np.ndindex(*indices.shape):
            chosen = clamp(indices[position], table.shape[axis])
            result[position] = table[(*position[:axis], chosen)]
        return result

    def build(self, b: Builder, table: Tensor, indices: TensorLike, axis: int = 0) -> Tensor:
        return b.emit("gather_batched", (table, tensor_like(b, indices, i32)), axis=axis_of(axis, table.rank))

    linear = ("table",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int
    ) -> rules.Cotangents:
        (table, indices), (dy,) = operands, cotangents
        return put_back(b, dy, indices, table.shape, axis), None

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int) -> Tensor:
        table, indices = operands
        if not batched[0]:  # the table is not batched: the batch is one more axis of the indices
            gathered = b.emit("gather_batched", (table, rules.move_axis(b, indices, 0, axis)), axis=axis)
            return rules.move_axis(b, gathered, axis, 0)
        return b.emit("gather_batched", (table, rules.batch(b, indices, batched[1], size)), axis=axis + 1)

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -3, "high": 9}
        yield sample((2, 5, 3), SampleOperand((2, 4), "i32", **wide), axis=1, dtypes=EVERY)
        yield sample((2, 5), SampleOperand((2,), "i32", **wide), axis=1, dtypes=("f32",))
        yield sample((5, 3), SampleOperand((2, 2), "u8", **wide), axis=0, dtypes=("f32",))
        yield sample(("n", 5, 3), SampleOperand(("n", 1), "i64", **wide), axis=1, dtypes=("f32",))


class Embedding(_Lookup, op="embedding"):
    def infer(self, table: Shape, indices: Shape) -> Shape:
        if table.rank != 2:
            raise ShapeError(f"the table must be [V, E], got {table}")
        return Gather().infer(table, indices, axis=0)

    def decompose(self, b: Builder, table: Tensor, indices: Tensor) -> Tensor:
        return b.gather(table, indices, axis=0)

    linear = ("table",)

    def build(self, b: Builder, table: Tensor, indices: TensorLike) -> Tensor:
        indices = tensor_like(b, indices, i32)
        if table.dtype.is_integer and indices.dtype.is_inexact:
            raise ShapeError("the table comes first, then the indices", hint="embedding(table, indices)")
        return b.emit("embedding", (table, indices))

    def samples(self) -> Iterable[OpSample]:
        yield sample((7, 3), SampleOperand((2, 4), "i32", low=-2, high=9), dtypes=EVERY)
        yield sample((7, 3), SampleOperand(("batch", "seq"), "i64", low=0, high=7), dtypes=("f32",))
