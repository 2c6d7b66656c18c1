"""Indexing at computed positions: gather, scatter, dynamic slices and updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.reduce import joining_kind
from rlx.importers.stablehlo.rules import imports
from rlx.ir.dims.expr import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError

# By the op that combines an update with the old element. "second" replaces the old element.
_REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "second": "set"}


@imports("dynamic_slice")
def dynamic_slice(g: Graph, x: Tensor, *starts: Tensor, slice_sizes: tuple[int, ...]) -> Tensor:
    return g.dynamic_slice(x, [_natural(g, s) for s in starts], slice_sizes)


@imports("dynamic_update_slice")
def dynamic_update_slice(g: Graph, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    return g.dynamic_update_slice(x, update, [_natural(g, s) for s in starts])


def _natural(g: Graph, start: Tensor) -> Tensor:
    """Return a start as an i64 index. It is at least 0, so that it does not count from the end."""
    start = g.cast(start, "i64")
    return g.maximum(start, 0)


@imports("torch_index_select")
def torch_index_select(g: Graph, x: Tensor, index: Tensor, *, dim: int, batch_dims: int) -> Tensor:
    if batch_dims:
        raise UnsupportedError("with batch_dims cannot be imported")
    return g.gather(x, index, axis=dim)


@dataclass(frozen=True, kw_only=True)
class GatherAttributes(ArgumentGroup):
    """The attributes of a gather, with StableHLO's names."""

    dimension_numbers: Any
    slice_sizes: tuple[int, ...] | None = None


@imports("gather", "dynamic_gather")
def gather(
    g: Graph,
    x: Tensor,
    starts: Tensor,
    sizes: Tensor | None = None,
    *,
    slices: GatherAttributes,
    results: Sequence[Any],
) -> Tensor:
    numbers, slice_sizes = mlir.stablehlo().GatherDimensionNumbers(slices.dimension_numbers), slices.slice_sizes
    removed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = [axis for axis in range(x.rank) if axis not in removed]
    if slice_sizes is None:  # in this op, the slice sizes follow from the result
        kept = dict(zip(windows, (results[0].dims[axis] for axis in numbers.offset_dims), strict=True))
        slice_sizes = tuple(kept.get(axis, 1) for axis in range(x.rank))
    axes = _StartAxes(
        numbers.start_index_map,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
        numbers.index_vector_dim,
    )
    taken = dict.fromkeys(removed, 1) | {axis: slice_sizes[axis] for axis in windows}
    places = _Places(g, x, starts, axes, taken, clamped=True)
    found = g.gather_nd(g.transpose(x, places.order), places.indices)
    # The axes are now those of the batch, then the window axes with positions, then the whole axes.
    found = g.reshape(found, (*places.batch, *(slice_sizes[axis] for axis in places.order if axis in windows)))
    batch = [axis for axis in range(found.rank) if axis not in numbers.offset_dims]
    source = dict(zip(batch, range(len(batch)), strict=True))
    in_order = [axis for axis in places.order if axis in windows]
    for place, axis in zip(numbers.offset_dims, windows, strict=True):
        source[place] = len(batch) + in_order.index(axis)
    return g.transpose(found, [source[axis] for axis in range(found.rank)])


@imports("scatter")
def scatter(
    g: Graph,
    *operands: Tensor,
    scatter_dimension_numbers: Any,
    regions: Sequence[Any],
    results: list[Shape],
    unique_indices: bool = False,
) -> list[Tensor]:
    """Scatter in the dtypes of the results, which may be wider than those of the operands.

    A window that is partly out of bounds is dropped as a whole, as in XLA. The StableHLO specification drops only its
    out-of-bounds elements.
    """
    count = len(operands) // 2
    starts = operands[count]
    xs, updates = (
        [g.cast(t, shape.dtype) for t, shape in zip(tensors, results, strict=True)]
        for tensors in (operands[:count], operands[count + 1 :])
    )
    numbers = mlir.stablehlo().ScatterDimensionNumbers(scatter_dimension_numbers)
    removed = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    windows = [axis for axis in range(xs[0].rank) if axis not in removed]
    sizes = dict(zip(windows, (updates[0].shape.dims[axis] for axis in numbers.update_window_dims), strict=True))
    axes = _StartAxes(
        numbers.scattered_dims_to_operand_dims,
        numbers.input_batching_dims,
        numbers.scatter_indices_batching_dims,
        numbers.index_vector_dim,
    )
    places = _Places(g, xs[0], starts, axes, dict.fromkeys(removed, 1) | sizes, clamped=False)
    in_order = [axis for axis in places.order if axis in windows]
    batch = [axis for axis in range(updates[0].rank) if axis not in numbers.update_window_dims]
    order = batch + [numbers.update_window_dims[windows.index(axis)] for axis in in_order]
    back = [places.order.index(axis) for axis in range(xs[0].rank)]
    *kept, count = places.indices.shape.dims
    assert isinstance(count, int)
    shape = (*kept, *(xs[0].shape.dims[a] for a in places.order[count:]))
    turned = [g.transpose(x, places.order) for x in xs]
    rows = [g.reshape(g.transpose(update, order), shape) for update in updates]
    joined = joined_at(g, turned, places.indices, rows, regions[0], unique=unique_indices)
    return [g.transpose(x, back) for x in joined]


def joined_at(
    g: Graph, xs: list[Tensor], indices: Tensor, updates: list[Tensor], region: Any, *, unique: bool
) -> list[Tensor]:
    """Combine the updates of the first axes with tensors by a region, and return the tensors."""
    kinds = [joining_kind(region, number, x) for number, x in enumerate(xs)]
    if all(kinds):
        return [
            _of_kind(g, x, indices, rows, _REDUCTIONS[str(k)]) for x, rows, k in zip(xs, updates, kinds, strict=True)
        ]

    def step(kept: Sequence[Tensor], place: Tensor, rows: Sequence[Tensor]) -> list[Tensor]:
        now = [g.gather_nd(x, place) for x in kept]
        following = region.lifted(*now, *rows)
        return [
            _of_kind(g, x, place, g.expand(f, r.shape.dims), "set")
            for x, f, r in zip(kept, following, rows, strict=True)
        ]

    if unique:
        return step(xs, indices, updates)
    # Apply one update after the other: several may go to the same element.
    count, k = math.prod(indices.shape.static[:-1]), indices.shape.dims[-1]
    flat = [g.reshape(u, (count, 1, *u.shape.dims[indices.rank - 1 :])) for u in updates]
    last, _ = g.scan(
        lambda kept, rows: (tuple(step(kept, rows[0], rows[1:])), ()),
        tuple(xs),
        (g.reshape(indices, (count, 1, k)), *flat),
    )
    return list(last)


def _of_kind(g: Graph, x: Tensor, indices: Tensor, rows: Tensor, reduction: str) -> Tensor:
    if not x.dtype.is_bool:
        return g.scatter_nd(x, indices, g.cast(rows, x.dtype), reduction=reduction)
    return g.cast(g.scatter_nd(g.cast(x, "u8"), indices, g.cast(rows, "u8"), reduction=reduction), "bool")


@dataclass(frozen=True)
class _StartAxes:
    """The correspondence between axes of the operand and of the start indices.

    Attributes:
        index_map: The axis of the operand for each number of a start.
        batching: The axes of the operand that are batches.
        starts_batching: The same of the starts.
        vector: The axis of the starts whose numbers are one start.
    """

    index_map: Sequence[int]
    batching: Sequence[int]
    starts_batching: Sequence[int]
    vector: int


class _Places:
    """The positions of all window elements, on the axes that a window does not cover completely.

    Attributes:
        order: The axes of the operand, those with positions first.
        batch: The sizes of the batch.
        indices: i64 `[batch…, window…, K]` for K axes with positions, and the window axes of those.
    """

    def __init__(
        self,
        g: Graph,
        x: Tensor,
        starts: Tensor,
        axes: _StartAxes,
        sizes: Mapping[int, Dim],
        *,
        clamped: bool,
    ):
        start_index_map, batching, vector_axis = axes.index_map, axes.batching, axes.vector
        if vector_axis == starts.rank:
            starts = g.expand_dims(starts, -1)
        starts = g.cast(g.moveaxis(starts, vector_axis, -1), "i64")
        self.batch = starts.shape.dims[:-1]
        whole = [
            axis
            for axis in range(x.rank)
            if axis not in start_index_map and axis not in batching and sizes[axis] == x.shape.dims[axis]
        ]
        placed = [axis for axis in range(x.rank) if axis not in whole] or [0] * bool(x.rank)
        whole = [axis for axis in whole if axis not in placed]
        self.order = [*placed, *whole]
        removed = {axis for axis in range(x.rank) if sizes[axis] == 1}
        windows = [axis for axis in placed if axis not in removed]
        dims = (*self.batch, *(sizes[axis] for axis in windows))
        rank = len(dims)
        parts = []
        for axis in placed:
            part: Any = g.zeros((1,) * rank, "i64")
            if axis in start_index_map:
                number = start_index_map.index(axis)
                start = g.reshape(starts[..., number], (*self.batch, *(1 for _ in windows)))
                size: Any = x.shape.dims[axis]
                if clamped:
                    start = g.minimum(g.maximum(start, 0), size - sizes[axis])
                elif sizes[axis] != 1:  # windows that are partly outside are ignored
                    is_inside = (start >= 0) & (start <= size - sizes[axis])
                    start = g.where(is_inside, start, size)
                part = part + start
            if axis in batching:
                # The axis of the starts. Their vector axis has been moved to the end.
                place = axes.starts_batching[list(batching).index(axis)]
                place -= vector_axis < place
                part = part + _along(g, rank, place, self.batch[place])
            if axis in windows:
                part = part + _along(g, rank, len(self.batch) + windows.index(axis), sizes[axis])
            parts.append(g.expand(part, dims))
        self.indices = g.stack(parts, axis=-1) if parts else g.zeros((*dims, 0), "i64")


def _along(g: Graph, rank: int, axis: int, size: Dim) -> Tensor:
    """Return 0, 1, … along one of the axes."""
    return g.reshape(g.iota((size,), 0, "i64"), [size if i == axis else 1 for i in range(rank)])
