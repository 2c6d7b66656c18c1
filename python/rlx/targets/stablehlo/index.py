"""Lowering rules for gathers, with clamped indices."""

from __future__ import annotations

from rlx.ir.dtype import i64
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


def clamp_indices(emit: HloEmitter, indices: Lowered, size: int) -> Lowered:
    """Convert integers of any dtype to i64, clamped to [0, size)."""
    return emit.clamp(emit.convert(indices, i64), 0, max(size - 1, 0))


@lowers("gather")
def gather(emit: HloEmitter, results: list[Shape], table: Lowered, indices: Lowered, *, axis: int) -> Lowered:
    return _gather(emit, results[0], table, indices, axis, batch=0)


@lowers("gather_batched")
def gather_batched(emit: HloEmitter, results: list[Shape], table: Lowered, indices: Lowered, *, axis: int) -> Lowered:
    return _gather(emit, results[0], table, indices, axis, batch=axis)


def _gather(emit: HloEmitter, result: Shape, table: Lowered, indices: Lowered, axis: int, batch: int) -> Lowered:
    """Gather with `batch` leading axes shared by table and indices. The axes of the indices replace `axis`."""
    if result.num_elements == 0:
        return emit.full(result.static, result.dtype, 0)
    positions = clamp_indices(emit, indices, table.dims[axis])
    positions = emit.reshape(positions, (*indices.dims, 1))
    before = range(axis - batch)  # table axes that come before the axes of the indices
    after = range(axis - batch + indices.rank, len(result.dims))
    return emit.gather(table, positions, result.static, axis=axis, offset_dims=[*before, *after], batch=batch)
