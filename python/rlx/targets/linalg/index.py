"""Lowering rules for gathers. All indices are clamped, because compiled code would read out of bounds."""

from __future__ import annotations

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter
from rlx.targets.linalg.rules import Lowered, lowers


def clamped(low: LoopEmitter, index: mlir.Value, dtype: DType, size: Dim) -> mlir.Value:
    """Clamp a stored integer scalar to an index in [0, size)."""
    arith, i64 = low.arith, low.ir.IntegerType.get_signless(64)
    if dtype.bits <= 32 and dtype.is_signed:  # in the index type, which has 32 bits on some GPUs
        position, zero = arith.index_cast(low.index_type, index), low.size(0)
        return arith.maxsi(arith.minsi(position, arith.subi(low.size(size), low.size(1))), zero)
    zero = low.constant(0, i64)
    last = arith.subi(arith.index_cast(i64, low.size(size)), low.constant(1, i64))
    if dtype.bits < 64:
        index = (arith.extsi if dtype.is_signed else arith.extui)(i64, index)
    elif not dtype.is_signed:
        index = arith.select(arith.cmpi(arith.CmpIPredicate.slt, index, zero), last, index)
    return arith.index_cast(low.index_type, arith.maxsi(arith.minsi(index, last), zero))


@lowers("gather")
def gather(low: LoopEmitter, results: list[Shape], table: Lowered, indices: Lowered, *, axis: int) -> mlir.Value:
    return _gather(low, results[0], table, indices, axis, batch=0)


@lowers("gather_batched")
def gather_batched(
    low: LoopEmitter, results: list[Shape], table: Lowered, indices: Lowered, *, axis: int
) -> mlir.Value:
    return _gather(low, results[0], table, indices, axis, batch=axis)


def _gather(low: LoopEmitter, result: Shape, table: Lowered, indices: Lowered, axis: int, batch: int) -> mlir.Value:
    """Gather with the axes of the indices at `axis - batch …` of the result, after the leading axes of the table."""
    rank = result.rank
    element = storage_type(result.dtype)
    if result.num_elements == 0:
        return low.empty(result.dims, element)
    first = axis - batch
    index_axes = tuple(range(first, first + indices.shape.rank))
    after = tuple(range(first + indices.shape.rank, rank))

    def body(index: mlir.Value, _: mlir.Value) -> mlir.Value:
        chosen = clamped(low, index, indices.shape.dtype, table.shape.dims[axis])
        leading = [low.scalar_index(i) for i in range(axis)]
        return low.tensor.extract(table.value, [*leading, chosen, *(low.scalar_index(i) for i in after)])

    out = (low.empty(result.dims, element), tuple(range(rank)))
    return low.generic([(indices.value, index_axes)], [out], [PARALLEL] * rank, body)


@lowers("gather_nd")
def gather_nd(low: LoopEmitter, results: list[Shape], x: Lowered, indices: Lowered, *, batch_dims: int) -> mlir.Value:
    """Gather directly. The decomposition computes positions on one flattened axis, which some devices cannot store."""
    result, places, count = results[0], indices.shape.rank - 1, indices.shape.dims[-1]
    assert type(count) is int
    if result.num_elements == 0:
        return low.empty(result.dims, storage_type(result.dtype))

    def body(_: mlir.Value) -> mlir.Value:
        loops = [low.scalar_index(i) for i in range(result.rank)]
        chosen: list[mlir.Value] = []
        for k in range(count):
            index = low.tensor.extract(indices.value, [*loops[:places], low.size(k)])
            chosen.append(clamped(low, index, indices.shape.dtype, x.shape.dims[batch_dims + k]))
        return low.tensor.extract(x.value, [*loops[:batch_dims], *chosen, *loops[places:]])

    out = (low.empty(result.dims, storage_type(result.dtype)), tuple(range(result.rank)))
    return low.generic([], [out], [PARALLEL] * result.rank, body)
