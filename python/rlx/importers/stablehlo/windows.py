"""Window ops: windowed reductions, padding, and the gradient of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.stablehlo.indexing import joined_at
from rlx.importers.stablehlo.reduce import METHODS, Join, Tensors, is_neutral, joining, joining_kind
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import scalar_of
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape


@dataclass(frozen=True, kw_only=True)
class ReduceWindowAttributes(ArgumentGroup):
    """The attributes of windows that are reduced, with StableHLO's names."""

    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...] | None = None
    base_dilations: tuple[int, ...] | None = None
    window_dilations: tuple[int, ...] | None = None
    padding: np.ndarray | None = None

    def along(self, axis: int) -> AxisWindow:
        """The windows along an axis."""
        ones = (1,) * len(self.window_dimensions)
        dilation, stride = (self.window_dilations or ones)[axis], (self.window_strides or ones)[axis]
        return AxisWindow(axis, self.window_dimensions[axis], dilation, stride)


@imports("reduce_window")
def reduce_window(
    g: Graph, *operands: Tensor, regions: Sequence[Any], results: list[Shape], window: ReduceWindowAttributes
) -> list[Tensor]:
    """Reduce windows, last axis first. The region may be applied in any grouping that keeps the order of elements."""
    count = len(operands) // 2
    wide = [g.cast(t, shape.dtype) for t, shape in zip(operands, (*results, *results), strict=True)]
    xs, starts = wide[:count], wide[count:]
    rank = len(window.window_dimensions)
    low, high = edges(window.padding, rank)
    holes = tuple(d - 1 for d in window.base_dilations or (1,) * rank)
    join = joining(g, regions[0])
    kind = joining_kind(regions[0], 0, xs[0]) if count == 1 else None
    added: list[Tensor] = []
    if kind is None and any(x.dtype.is_complex for x in xs) and any((*low, *high, *holes)):
        # JAX's logaddexp of complex numbers is NaN for two padding elements of minus infinity. Do not combine those.
        join = _without_paddings(g, join)
        added = [pad_with_interior(g, g.full(xs[0].shape.dims, True, "bool"), g.constant(np.False_), low, high, holes)]
    xs = [pad_with_interior(g, x, start, low, high, holes) for x, start in zip(xs, starts, strict=True)] + added
    for axis in reversed(range(rank)):
        xs = windows_joined(g, xs, join, window.along(axis))
    if kind in METHODS and is_neutral(starts[0], str(kind), xs[0].dtype):
        return xs
    starts = [*starts, *(g.constant(np.True_) for _ in added)]
    return [g.expand(t, shape.dims) for t, shape in zip(join(starts, xs)[:count], results, strict=True)]


def _without_paddings(g: Graph, join: Join) -> Join:
    """Return a join that skips padding. The last tensor marks elements. Other tensors are read only where it is true."""

    def joined(first: Tensors, second: Tensors) -> list[Tensor]:
        (*left, has_left), (*right, has_right) = first, second
        both = zip(join(left, right), left, right, strict=True)
        found = [g.where(has_left, g.where(has_right, found, a), b) for found, a, b in both]
        return [*found, has_left | has_right]

    return joined


@dataclass(frozen=True)
class AxisWindow:
    """Windows along an axis: their size, dilation and stride."""

    axis: int
    size: int
    dilation: int
    stride: int


def windows_joined(g: Graph, xs: Tensors, join: Join, window: AxisWindow) -> list[Tensor]:
    """Combine all windows along one axis. The number of steps is at most twice the number of binary digits of the size."""
    axis, size, dilation, stride = window.axis, window.size, window.dilation, window.stride
    length = xs[0].shape.static[axis]
    count = (length - (size - 1) * dilation - 1) // stride + 1 if size and length > (size - 1) * dilation else 0

    def part(tensors: Tensors, first: int, number: int) -> list[Tensor]:
        index = tuple(slice(first, first + number) if i == axis else slice(None) for i in range(tensors[0].rank))
        return [t[index] for t in tensors]

    reach = (count - 1) * stride + 1 if count else 0
    if count == 0:
        return part(xs, 0, 0)
    # Compute windows of a power of two of elements at every position, and build windows of any size from them.
    powers, covered, taken, result = list(xs), 1, 0, None
    rest = size
    while rest:
        if rest & 1:
            piece = part(powers, taken * dilation, reach)
            result = piece if result is None else join(result, piece)
            taken += covered
        rest >>= 1
        if rest:
            number = powers[0].shape.static[axis] - covered * dilation
            powers = join(part(powers, 0, number), part(powers, covered * dilation, number))
            covered *= 2
    assert result is not None
    index = tuple(slice(None, None, stride) if i == axis else slice(None) for i in range(xs[0].rank))
    return [t[index] for t in result] if stride > 1 else result


def edges(padding: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis, from the attribute `[rank, 2]` or None."""
    if padding is None:
        return (0,) * rank, (0,) * rank
    pairs = np.broadcast_to(padding, (rank, 2))
    return tuple(int(v) for v in pairs[:, 0]), tuple(int(v) for v in pairs[:, 1])


def pad_with_interior(
    g: Graph, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], holes: Sequence[int]
) -> Tensor:
    """Pad as in StableHLO: insert elements between those of each axis, then before and after; negative numbers remove."""
    fill = scalar_of(value)

    def put(t: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
        if not any(map(any, pairs)):
            return t
        if fill is not None and not x.dtype.is_complex:
            return (
                g.pad(g.cast(t, "u8"), pairs, value=int(fill)).astype("bool")
                if x.dtype.is_bool
                else g.pad(t, pairs, value=fill)
            )
        # A computed padding value: select it where there are no elements.
        there = g.pad(g.cast(g.full(t.shape.dims, 1, "i8"), "i8"), pairs) == 1
        filled = g.pad(g.cast(t, "u8"), pairs).astype("bool") if x.dtype.is_bool else _padded_by_any(g, t, pairs)
        return g.where(there, filled, value)

    for axis, hole in enumerate(holes):
        size = x.shape.static[axis]
        if hole and size > 1:
            split = g.expand_dims(x, axis + 1)
            wide = put(split, [(0, hole) if i == axis + 1 else (0, 0) for i in range(split.rank)])
            joined = g.reshape(wide, (*x.shape.dims[:axis], size * (hole + 1), *x.shape.dims[axis + 1 :]))
            x = joined[tuple(slice(0, size * (hole + 1) - hole) if i == axis else slice(None) for i in range(x.rank))]
    if any(v < 0 for v in (*low, *high)):
        # Negative padding may remove padding elements of the other side.
        x = put(x, [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)])
        sizes = x.shape.static
        cut = tuple(slice(max(0, -a), n - max(0, -b)) for a, b, n in zip(low, high, sizes, strict=True))
        return x[cut]
    return put(x, list(zip(low, high, strict=True)))


def _padded_by_any(g: Graph, x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return a tensor padded with arbitrary values."""
    if not x.dtype.is_complex:
        return g.pad(x, pairs, value=0 if x.dtype.has_zero else 1)
    return g.complex(g.pad(g.real(x), pairs), g.pad(g.imag(x), pairs))


@imports("pad")
def pad(
    g: Graph,
    x: Tensor,
    value: Tensor,
    *,
    edge_padding_low: tuple[int, ...],
    edge_padding_high: tuple[int, ...],
    interior_padding: tuple[int, ...],
) -> Tensor:
    return pad_with_interior(g, x, value, edge_padding_low, edge_padding_high, interior_padding)


@dataclass(frozen=True)
class SelectOperands(ArgumentGroup):
    """The operands of `select_and_scatter`, in StableHLO's order."""

    x: Tensor
    source: Tensor
    start: Tensor


@dataclass(frozen=True, kw_only=True)
class SelectAttributes(ArgumentGroup):
    """The attributes of windows that each select an element, with StableHLO's names."""

    window_dimensions: tuple[int, ...] | None = None
    window_strides: tuple[int, ...] | None = None
    padding: np.ndarray | None = None

    def along(self, axis: int, rank: int) -> AxisWindow:
        """The windows along an axis of a tensor of this rank."""
        ones = (1,) * rank
        return AxisWindow(axis, (self.window_dimensions or ones)[axis], 1, (self.window_strides or ones)[axis])


@imports("select_and_scatter")
def select_and_scatter(
    g: Graph, operands: SelectOperands, *, regions: Sequence[Any], results: list[Shape], window: SelectAttributes
) -> Tensor:
    """Place each value of `source` at the element that its window selects, joined by the second region."""
    select, scatter = regions
    x, source, start = operands.x, operands.source, operands.start
    rank, size = x.rank, math.prod(x.shape.static)
    low, high = edges(window.padding, rank)
    none = (0,) * rank
    number = g.reshape(g.iota((size,), 0, "i64"), x.shape.dims)
    # Padding elements are never selected: if their index is `size`, the other element is selected.
    values = pad_with_interior(g, x, g.constant(np.zeros((), x.dtype.numpy)), low, high, none)
    numbers = pad_with_interior(g, number, g.constant(np.int64(size)), low, high, none)

    def join(first: Tensors, second: Tensors) -> list[Tensor]:
        kept = (select.lifted(first[0], second[0])[0] & (first[1] != size)) | (second[1] == size)
        return [g.where(kept, a, b) for a, b in zip(first, second, strict=True)]

    found: list[Tensor] = [values, numbers]
    for axis in reversed(range(rank)):  # of equal elements the first one in the window's order is found
        found = windows_joined(g, found, join, window.along(axis, rank))
    wide = results[0].dtype  # the second region computes in it
    first, rows = g.expand(g.cast(start, wide), (size,)), g.reshape(g.cast(source, wide), (-1,))
    (joined,) = joined_at(g, [first], g.reshape(found[1], (-1, 1)), [rows], scatter, unique=False)
    return g.reshape(joined, x.shape.dims)
