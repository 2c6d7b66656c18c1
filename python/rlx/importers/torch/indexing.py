"""Gathers, scatters and other indexing. Indices that PyTorch counts from the end are wrapped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.functions.reduction.statistics import elements_norm
from rlx.importers.torch.rules import Operand, Results, as_tensor, aten, axis_of, known_size, static_size
from rlx.ir.dims.dim import Dim, DimExpr, product
from rlx.ir.dtype import DType, bool_, i64, u8
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ops.norm import statistics_input
from rlx.support.errors import UnsupportedError

# PyTorch's names of reductions, and RLX's.
_KINDS = {None: "set", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _wrapped(g: Graph, index: Tensor, size: Dim) -> Tensor:
    index = as_tensor(g, index, i64)
    return g.where(g.lt(index, 0), g.add(index, as_tensor(g, size, i64)), index)


def _ranked(g: Graph, *tensors: Tensor) -> list[Tensor]:
    """Return tensors, with an axis of size 1 added to those of rank 0."""
    return [g.reshape(t, (1,)) if t.rank == 0 else t for t in tensors]


@aten("embedding")
def embedding(
    g: Graph,
    table: Tensor,
    index: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return the embedding. The row `padding_idx` is treated as a constant, so that it is not trained."""
    if scale_grad_by_freq:
        raise UnsupportedError("with scale_grad_by_freq cannot be imported: gradients do not count their rows")
    rows = g.embedding(table, index)
    if isinstance(padding_idx, int) and padding_idx < 0:
        return rows
    return g.where(g.expand_dims(g.eq(index, padding_idx), -1), g.stop_gradient(rows), rows)


_SUM, _MEAN, _MAX = range(3)


@dataclass(frozen=True)
class BagArguments(ArgumentGroup):
    """The arguments of `embedding_bag` after the tensors, in PyTorch's order."""

    scale_grad_by_freq: bool = False
    mode: int = _SUM
    sparse: bool = False
    weights: Tensor | None = None
    include_last_offset: bool = False
    padding_idx: int | None = -1


@aten("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag")
def embedding_bag(
    g: Graph, table: Tensor, index: Tensor, offsets: Tensor, by: BagArguments, *, results: Results
) -> list[Tensor]:
    """Return sums, means or maxima of the rows of each bag. The other results, which only derivatives read, are zeros."""
    if by.scale_grad_by_freq:
        raise UnsupportedError("with scale_grad_by_freq cannot be imported: gradients do not count their rows")
    mode, weights, padding_idx = by.mode, by.weights, by.padding_idx
    bags, dims = results[0].dims[0], (*index.shape.dims, 1)
    # Rows that are ignored are assigned to an additional last bag.
    bag = g.sub(g.searchsorted(offsets, g.iota(index.shape.dims, 0, offsets.dtype), side="right"), 1)
    if padding_idx is not None and padding_idx >= 0:
        bag = g.where(g.eq(index, padding_idx), g.cast(g.dim_size(bags), bag.dtype), bag)
    rows = g.embedding(table, index)
    rows = rows if weights is None else g.mul(rows, g.reshape(weights, dims))
    start = _neutral(table.dtype, "max") if mode == _MAX else 0
    base = g.full((bags + 1, table.shape.dims[1]), start, table.dtype)
    made = g.narrow(_rows(g, base, 0, bag, rows, "max" if mode == _MAX else "add"), 0, 0, bags)
    ones, none = g.full(dims, 1, table.dtype), g.full((bags + 1, 1), 0, table.dtype)
    count = g.narrow(_rows(g, none, 0, bag, ones, "add"), 0, 0, bags)
    if mode == _MEAN:
        made = g.div(made, g.maximum(count, as_tensor(g, 1, table.dtype)))
    made = g.where(g.eq(count, as_tensor(g, 0, table.dtype)), as_tensor(g, 0, table.dtype), made)
    return [made, *(g.zeros(r.dims, dtype=r.dtype) for r in results[1:])]


@aten("index_select", "index_select_copy")
def index_select(g: Graph, x: Tensor, dim: int, index: Tensor) -> Tensor:
    return g.gather(x, *_ranked(g, index), axis=axis_of(dim, x.rank)) if x.rank else x


@aten("gather")
def gather(g: Graph, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, results: Results) -> Tensor:
    x, index = _ranked(g, x, index)
    return g.reshape(g.gather_nd(x, _positions(g, x, axis_of(dim, x.rank), index)), results[0].dims)


@aten("take")
def take(g: Graph, x: Tensor, index: Tensor) -> Tensor:
    count = product(x.shape.dims)
    return g.gather(g.reshape(x, (count,)), _wrapped(g, index, count))


def _positions(g: Graph, x: Tensor, axis: int, index: Tensor) -> Tensor:
    """Return the position in `x`, along a new last axis, for each element of `index`."""
    dims = index.shape.dims
    columns = [as_tensor(g, index, i64) if a == axis else g.iota(dims, a, "i64") for a in range(x.rank)]
    return g.concat([g.expand_dims(c, -1) for c in columns], axis=-1) if x.rank > 1 else g.expand_dims(columns[0], -1)


def _scattered(g: Graph, x: Tensor, dim: int, index: Tensor, source: Operand, kind: str) -> Tensor:
    rows, places = _ranked(g, x, index)
    if isinstance(source, Tensor) and source.rank:
        source = g.slice(source, [0] * source.rank, places.shape.dims)  # the remaining elements are not read
    updates = g.expand(as_tensor(g, source, x.dtype), places.shape.dims)
    positions = _positions(g, rows, axis_of(dim, rows.rank), places)
    return g.reshape(g.scatter_nd(rows, positions, updates, reduction=kind), x.shape.dims)


@aten("scatter")
def scatter(g: Graph, x: Tensor, dim: int, index: Tensor, source: Operand, *, reduce: str | None = None) -> Tensor:
    return _scattered(g, x, dim, index, source, _KINDS[reduce])


@aten("scatter_add")
def scatter_add(g: Graph, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scattered(g, x, dim, index, source, "add")


def _neutral(kind: DType, reduction: str) -> Any:
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if kind.is_bool:
        return reduction == "min"
    return (
        (-math.inf if reduction == "max" else math.inf)
        if kind.is_float
        else kind.min
        if reduction == "max"
        else kind.max
    )


@dataclass(frozen=True)
class ScatterArguments(ArgumentGroup):
    """An axis, indices along it, the values at them and the reduction, in PyTorch's order."""

    dim: int
    index: Tensor
    source: Tensor
    reduce: str


@aten("scatter_reduce")
def scatter_reduce(g: Graph, x: Tensor, by: ScatterArguments, *, include_self: bool = True) -> Tensor:
    dim, index, source = by.dim, by.index, by.source
    if by.reduce == "mean":
        return _scatter_mean(g, x, dim, index, source, include_self)
    kind = _KINDS[by.reduce]
    if not include_self:
        touched = _scattered(g, g.full_like(x, False, dtype=bool_), dim, index, True, "set")
        x = g.where(touched, as_tensor(g, _neutral(x.dtype, kind), x.dtype), x)
    return _scattered(g, x, dim, index, source, kind)


def _scatter_mean(g: Graph, x: Tensor, dim: int, index: Tensor, source: Tensor, include_self: bool) -> Tensor:
    ones = g.ones_like(x) if include_self else g.zeros_like(x)
    count = _scattered(g, ones, dim, index, 1, "add")
    untouched = g.eq(count, as_tensor(g, 0, x.dtype))
    total = _scattered(g, x if include_self else g.zeros_like(x), dim, index, source, "add")
    divisor = g.where(untouched, as_tensor(g, 1, x.dtype), count)
    made = g.div(total, divisor) if x.dtype.is_float else g.floor_divide(total, divisor)
    return g.where(untouched, x, made)


def _rows(g: Graph, x: Tensor, dim: int, index: Tensor, source: Tensor, kind: str) -> Tensor:
    """Combine slices of an axis with other slices at index positions."""
    whole = x.shape.dims
    x, source, index = _ranked(g, x, source, index)
    axis = axis_of(dim, x.rank)
    places = g.expand_dims(_wrapped(g, index, x.shape.dims[axis]), -1)
    made = g.scatter_nd(g.moveaxis(x, axis, 0), places, g.moveaxis(source, axis, 0), reduction=kind)
    return g.reshape(g.moveaxis(made, 0, axis), whole)


@aten("index_add")
def index_add(g: Graph, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    source = as_tensor(g, source, x.dtype)
    return _rows(g, x, dim, index, source if alpha == 1 else g.mul(source, as_tensor(g, alpha, x.dtype)), "add")


@aten("index_copy")
def index_copy(g: Graph, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _rows(g, x, dim, index, source, "set")


@aten("index_fill")
def index_fill(g: Graph, x: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    rows, places = _ranked(g, x, index)
    axis = axis_of(dim, rows.rank)
    dims = [places.shape.dims[0] if a == axis else d for a, d in enumerate(rows.shape.dims)]
    filled = _rows(g, rows, dim, places, g.expand(as_tensor(g, value, x.dtype), dims), "set")
    return g.reshape(filled, x.shape.dims)


def _as_masks(g: Graph, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return indices with u8 tensors converted to masks, as in PyTorch."""
    return [t if t is None or t.dtype != u8 else as_tensor(g, t, bool_) for t in indices]


def _without_masks(indices: Sequence[Tensor | None]) -> None:
    if any(t is not None and t.dtype.is_bool for t in indices):
        raise UnsupportedError(
            "by a mask cannot be imported: the size of the result depends on values", hint="torch.where keeps all sizes"
        )


def _indexed(g: Graph, x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], list[Tensor], tuple[Dim, ...]]:
    """Return the indexed axes, their indices broadcast to one shape, and that shape."""
    axes = [a for a, t in enumerate(indices) if t is not None]
    wrapped = [_wrapped(g, indices[a], x.shape.dims[a]) for a in axes]  # pyright: ignore[reportArgumentType]
    whole = wrapped[0]
    for t in wrapped[1:]:
        whole = g.add(whole, t)  # the sum has the common broadcast shape
    return axes, [g.expand(t, whole.shape.dims) for t in wrapped], whole.shape.dims


@aten("index", "_unsafe_index")
def index(g: Graph, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Index some axes with tensors that broadcast to one shape.

    If the indexed axes are adjacent, the axes of the indices replace them. Otherwise they come first.
    """
    indices = _as_masks(g, indices)
    _without_masks(indices)
    if sum(t is not None for t in indices) == 1:
        axis = next(a for a, t in enumerate(indices) if t is not None)
        return g.gather(x, _wrapped(g, indices[axis], x.shape.dims[axis]), axis=axis)  # pyright: ignore
    axes, places, dims = _indexed(g, x, indices)
    others = [a for a in range(x.rank) if a not in axes]
    rows = g.transpose(x, (*axes, *others))
    made = g.gather_nd(rows, g.stack(places, axis=-1))
    neighbours = axes == list(range(axes[0], axes[-1] + 1))
    if not neighbours or axes[0] == 0:
        return made
    rank, before = len(dims), axes[0]
    return g.transpose(made, (*range(rank, rank + before), *range(rank), *range(rank + before, made.rank)))


@aten("index_put", "_unsafe_index_put")
def index_put(
    g: Graph,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    values, indices = as_tensor(g, values, x.dtype), _as_masks(g, indices)
    masks = [t for t in indices if t is not None and t.dtype.is_bool]
    if len(masks) == 1 and indices[0] is masks[0] and all(t is None for t in indices[1:]) and values.rank == 0:
        mask = g.reshape(masks[0], (*masks[0].shape.dims, *(1 for _ in range(x.rank - masks[0].rank))))
        return g.where(mask, g.add(x, values) if accumulate else values, x)
    _without_masks(indices)
    axes, places, dims = _indexed(g, x, indices)
    others = [a for a in range(x.rank) if a not in axes]
    order = (*axes, *others)
    rows = g.transpose(x, order)
    rest = tuple(x.shape.dims[a] for a in others)
    before, rank = axes[0], len(dims)
    if axes == list(range(before, axes[-1] + 1)) and before:  # the axes of the indices replace these
        wide = g.expand(values, (*rest[:before], *dims, *rest[before:]))
        wide = g.transpose(wide, (*range(before, before + rank), *range(before), *range(before + rank, wide.rank)))
    else:
        wide = g.expand(values, (*dims, *rest))
    made = g.scatter_nd(rows, g.stack(places, axis=-1), wide, reduction="add" if accumulate else "set")
    return g.transpose(made, tuple(int(a) for a in np.argsort(order)))


@aten("masked_scatter")
def masked_scatter(g: Graph, x: Tensor, mask: Tensor, source: Tensor, *, results: Results) -> Tensor:
    dims = results[0].dims
    mask, x = g.expand(mask, dims), g.expand(x, dims)
    flat = g.reshape(mask, (product(dims),))
    order = g.sub(g.cumsum(g.cast(flat, "i32"), axis=0), 1)
    values = g.gather(g.reshape(source, (product(source.shape.dims),)), g.maximum(order, 0))
    return g.where(mask, g.reshape(values, dims), x)


@aten("one_hot")
def one_hot(g: Graph, x: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        raise UnsupportedError("without num_classes cannot be imported: the size of the result depends on values")
    return g.one_hot(x, num_classes, dtype="i64")


def _found(g: Graph, rows: Tensor, values: Operand, right: bool, results: Results) -> Tensor:
    values = values if isinstance(values, Tensor) else as_tensor(g, values, rows.dtype)
    wide = g.expand_dims(rows, -2) if rows.rank > 1 else rows
    each = g.expand_dims(values, -1)
    before = g.logical_not(g.gt(wide, each) if right else g.ge(wide, each))  # NaN is ordered after all numbers
    return g.sum(g.cast(before, results[0].dtype), [before.rank - 1])


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ArgumentGroup):
    """The options of `searchsorted`, with PyTorch's names."""

    out_int32: bool = False
    right: bool = False
    side: str | None = None
    sorter: Tensor | None = None


@aten("searchsorted")
def searchsorted(g: Graph, rows: Tensor, values: Operand, *, options: SearchOptions, results: Results) -> Tensor:
    rows = rows if options.sorter is None else g.take_along_axis(rows, options.sorter, axis=-1)
    is_right = options.right if options.side is None else options.side == "right"
    return _found(g, rows, values, is_right, results)


@aten("bucketize")
def bucketize(
    g: Graph, values: Operand, rows: Tensor, *, out_int32: bool = False, right: bool = False, results: Results
) -> Tensor:
    return _found(g, rows, values, right, results)


@aten("isin")
def isin(g: Graph, x: Operand, y: Operand, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    x, y = (t if isinstance(t, Tensor) else g.dim_size(t) if isinstance(t, DimExpr) else g.constant(t) for t in (x, y))
    return g.isin(x, y, invert=invert)


@aten("renorm")
def renorm(g: Graph, x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    axes = [a for a in range(x.rank) if a != axis_of(dim, x.rank)]
    norm = elements_norm(g, x, float(p), axes, True)
    return g.where(g.gt(norm, maxnorm), g.mul(x, g.div(maxnorm, g.add(norm, 1e-7))), x)


@aten("bincount")
def bincount(g: Graph, x: Tensor, weights: Tensor | None = None, minlength: int = 0, *, results: Results) -> Tensor:
    return g.bincount(x, weights, minlength, length=known_size(results[0].dims[0], "length"))


@aten("histc")
def histc(g: Graph, x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count the elements in each bin of an interval. The last bin is closed. Elements outside, and NaN, are not counted."""
    if min >= max:
        raise UnsupportedError("of an interval that is taken from the values cannot be imported", hint="give min < max")
    flat = g.reshape(statistics_input(g, x), (product(x.shape.dims),))
    inside = g.logical_and(g.ge(flat, float(min)), g.le(flat, float(max)))
    part = g.mul(g.sub(flat, float(min)), bins / (float(max) - float(min)))
    place = g.minimum(g.floor(part), float(bins - 1))
    return as_tensor(g, g.bincount(g.cast(g.where(inside, place, -1.0), i64), length=bins), x.dtype)


@aten("index_reduce")
def index_reduce(g: Graph, x: Tensor, by: ScatterArguments, *, include_self: bool = True) -> Tensor:
    rows = _ranked(g, x, by.source)
    shape = [static_size(by.index, 0) if a == axis_of(by.dim, x.rank) else 1 for a in range(rows[0].rank)]
    places = g.expand(g.reshape(by.index, shape), rows[1].shape.dims)
    return scatter_reduce(g, x, replace(by, index=places), include_self=include_self)
