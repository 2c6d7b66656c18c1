"""Ops that move, repeat, cut and join tensors. All sizes from PyTorch are in `results`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.torch.rules import (
    Operand,
    Results,
    as_tensor,
    aten,
    axes_of,
    axis_of,
    dtype_of,
    known_size,
    static_size,
)
from rlx.ir.dims import dim as dims_
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_LAST = 2**63 - 1  # PyTorch's value for the end of an axis


@aten(
    *(
        "view",
        "view_as",
        "reshape",
        "_unsafe_view",
        "view_copy",
        "_reshape_alias",
        "_reshape_copy",
        "flatten",
        "unflatten",
    ),
    *("squeeze", "squeeze_copy", "unsqueeze", "unsqueeze_copy"),
)
def reshape(g: Graph, x: Tensor, *rest: Any, results: Results) -> Tensor:
    """Reshape. This rule imports all ops that keep the order of elements."""
    return x if x.shape.dims == results[0].dims else g.reshape(x, results[0].dims)


@aten("view.dtype")
def view_dtype(g: Graph, x: Tensor, dtype: object) -> Tensor:
    return g.bitcast(x, dtype_of(dtype))


@aten("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(g: Graph, x: Tensor, *rest: Any, implicit: bool = False, results: Results) -> Tensor:
    return g.expand(x, results[0].dims)


@aten("permute", "permute_copy")
def permute(g: Graph, x: Tensor, dims: Sequence[int]) -> Tensor:
    return g.transpose(x, axes_of(dims, x.rank)) if x.rank else x


@aten("transpose", "transpose_copy", "swapaxes", "swapdims")
def transpose(g: Graph, x: Tensor, dim0: int, dim1: int) -> Tensor:
    return g.swapaxes(x, dim0, dim1) if x.rank else x


@aten("t", "t_copy", "mT")
def t(g: Graph, x: Tensor) -> Tensor:
    return g.swapaxes(x, -1, -2) if x.rank > 1 else x


@aten("mH", "adjoint", "matrix_H")
def adjoint(g: Graph, x: Tensor) -> Tensor:
    return t(g, g.conjugate(x) if x.dtype.is_complex else x)


@aten("numpy_T")
def numpy_t(g: Graph, x: Tensor) -> Tensor:
    return g.transpose(x, tuple(reversed(range(x.rank)))) if x.rank > 1 else x


@aten("movedim", "moveaxis")
def movedim(g: Graph, x: Tensor, source: Any, destination: Any) -> Tensor:
    return g.moveaxis(x, source, destination) if x.rank else x


@aten("cat", "concat", "concatenate")
def cat(g: Graph, xs: Sequence[Tensor], dim: int = 0, *, results: Results) -> Tensor:
    """Concatenate. Empty tensors of rank 1 are ignored, as in PyTorch."""
    rank = results[0].rank
    parts = [as_tensor(g, x, results[0].dtype) for x in xs if x.rank == rank]
    return g.concat(parts, axis=dim) if len(parts) > 1 else parts[0]


@aten("stack")
def stack(g: Graph, xs: Sequence[Tensor], dim: int = 0, *, results: Results) -> Tensor:
    return g.stack([as_tensor(g, x, results[0].dtype) for x in xs], axis=dim)


@aten(
    *("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "chunk", "unsafe_split", "unsafe_chunk"),
    *("tensor_split", "unsafe_split_with_sizes"),
)
def split(g: Graph, x: Tensor, pieces: Any, dim: int = 0, *, results: Results) -> list[Tensor]:
    """Split into consecutive parts, with sizes from PyTorch."""
    axis, start, parts = axis_of(dim, x.rank), 0, []
    for part in results:
        parts.append(g.narrow(x, axis, start, part.dims[axis]))
        start = start + part.dims[axis]
    return parts


@aten("unbind", "unbind_copy")
def unbind(g: Graph, x: Tensor, dim: int = 0) -> list[Tensor]:
    return g.unstack(x, axis=dim)


@aten("narrow", "narrow_copy")
def narrow(g: Graph, x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    if isinstance(start, Tensor):
        return g.dynamic_slice_in_dim(x, start, length, axis=dim)
    return g.narrow(x, dim, _from_start(start, x.shape.dims[dim]), length)


def _from_start(position: Any, size: Dim) -> Any:
    return size + position if isinstance(position, int) and position < 0 else position


def _start(start: Any, size: Dim) -> Any:
    """Return the start of a slice, within the axis."""
    if start is None or start == 0:
        return 0
    start = _from_start(start, size)
    if isinstance(start, int) and isinstance(size, int):
        return min(max(start, 0), size)
    return start


@dataclass(frozen=True)
class AxisRange(ArgumentGroup):
    """A part of an axis, in the order of PyTorch's arguments."""

    dim: int = 0
    start: Dim | None = None
    end: Dim | None = None
    step: int = 1


@aten("slice", "slice_copy")
def slice_(g: Graph, x: Tensor, part: AxisRange, *, results: Results) -> Tensor:
    axis, step = axis_of(part.dim, x.rank), part.step
    length = results[0].dims[axis]
    if dims_.same(length, x.shape.dims[axis]) and step == 1:
        return x
    first = _start(part.start, x.shape.dims[axis])
    if step == 1:
        return g.narrow(x, axis, first, length)
    starts: list[Any] = [0] * x.rank
    limits, strides = list(x.shape.dims), [1] * x.rank
    starts[axis], strides[axis] = first, step
    if isinstance(length, int):  # one past the last element, which may be before the end
        limits[axis] = first + (length - 1) * step + 1 if length else first
    elif part.end not in (None, _LAST):
        limits[axis] = dims_.minimum(first + length * step, limits[axis])
    return g.slice(x, starts, limits, strides)


@aten("select", "select_copy")
def select(g: Graph, x: Tensor, dim: int, index: Any) -> Tensor:
    axis = axis_of(dim, x.rank)
    row = g.narrow(x, axis, _from_start(index, x.shape.dims[axis]), 1)
    return g.squeeze(row, axis)


@aten("slice_scatter")
def slice_scatter(g: Graph, x: Tensor, source: Tensor, part: AxisRange) -> Tensor:
    axis, step = axis_of(part.dim, x.rank), part.step
    size, inside = x.shape.dims[axis], source.shape.dims[axis]
    source = as_tensor(g, source, x.dtype)
    if dims_.same(size, inside):
        return source
    first = _start(part.start, size)
    if step == 1:
        last = first + inside
        parts = [g.narrow(x, axis, 0, first), source, g.narrow(x, axis, last, size - last)]
        parts = [p for p in parts if p.shape.dims[axis] != 0]
        return g.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
    rows = np.arange(known_size(first, "start"), known_size(first + inside * step, "end"), step, dtype=np.int32)
    return g.index_copy(x, g.constant(rows), source, axis=axis) if len(rows) else x


@aten("select_scatter")
def select_scatter(g: Graph, x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    axis = axis_of(dim, x.rank)
    return slice_scatter(g, x, g.expand_dims(source, axis), AxisRange(axis, _from_start(index, x.shape.dims[axis])))


@aten("diagonal_scatter")
def diagonal_scatter(g: Graph, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    axis1, axis2 = axes_of((dim1, dim2), x.rank)
    wide = diag_embed(g, source, offset, axis1, axis2)
    rows, columns = static_size(x, axis1), static_size(x, axis2)
    for axis, size in ((axis1, rows), (axis2, columns)):
        here = static_size(wide, axis)
        edges = [(0, size - here if a == axis else 0) for a in range(x.rank)]
        wide = g.pad(wide, edges) if size > here else g.narrow(wide, axis, 0, size)
    on = g.constant(np.eye(rows, columns, offset, dtype=bool))
    on = on if axis1 < axis2 else g.transpose(on)
    shape = [size if a in (axis1, axis2) else 1 for a, size in enumerate(x.shape.dims)]
    return g.where(g.reshape(on, shape), wide, x)


@aten("repeat", "tile")
def repeat(g: Graph, x: Tensor, repeats: Sequence[Any], *, results: Results) -> Tensor:
    """Repeat a tensor. A new axis is inserted before each axis, expanded, and merged with it."""
    target = results[0].dims
    dims = (1,) * (len(target) - x.rank) + x.shape.dims
    repeats = (1,) * (len(target) - len(repeats)) + tuple(repeats)
    pairs = g.reshape(x, [size for d in dims for size in (1, d)])
    return g.reshape(g.expand(pairs, [s for r, d in zip(repeats, dims, strict=True) for s in (r, d)]), target)


@aten("repeat_interleave")
def repeat_interleave(
    g: Graph, x: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: Any = None, results: Results
) -> Tensor:
    if not isinstance(repeats, int):
        raise UnsupportedError("by a tensor cannot be imported: the size of the result depends on values")
    axis = 0 if dim is None else axis_of(dim, x.rank)
    x = g.ravel(x) if dim is None else x
    wide = g.expand_dims(x, axis + 1)
    dims = list(wide.shape.dims)
    dims[axis + 1] = repeats
    return g.reshape(g.expand(wide, dims), results[0].dims)


@aten("flip")
def flip(g: Graph, x: Tensor, dims: Sequence[int]) -> Tensor:
    return g.reverse(x, axes_of(dims, x.rank)) if dims and x.rank else x


@aten("roll")
def roll(g: Graph, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    if not dims:
        return g.roll(x, shifts[0]) if x.rank else x
    return g.roll(x, tuple(shifts), axes_of(dims, x.rank)) if x.rank else x


@aten("rot90")
def rot90(g: Graph, x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    return g.rot90(x, k, tuple(dims))


@aten("tril")
def tril(g: Graph, x: Tensor, diagonal: int = 0) -> Tensor:
    return g.tril(x, diagonal)


@aten("triu")
def triu(g: Graph, x: Tensor, diagonal: int = 0) -> Tensor:
    return g.triu(x, diagonal)


@aten("diagonal", "diagonal_copy")
def diagonal(g: Graph, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return g.diagonal(x, offset, dim1, dim2)


@aten("linalg_diagonal")
def matrix_diagonal(g: Graph, x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return g.diagonal(x, offset, dim1, dim2)


@aten("diag")
def diag(g: Graph, x: Tensor, diagonal: int = 0) -> Tensor:
    return g.diag(x, diagonal)


@aten("diag_embed")
def diag_embed(g: Graph, x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    rank = x.rank + 1
    axis1, axis2 = axes_of((dim1, dim2), rank)
    size = static_size(x, -1)
    low, high = max(offset, 0), max(-offset, 0)  # the elements in their column
    wide = g.pad(x, [(0, 0)] * (x.rank - 1) + [(low, high)])
    place = g.constant(np.eye(size + abs(offset), k=offset, dtype=bool))
    square = g.where(place, g.expand_dims(wide, -2), as_tensor(g, 0, x.dtype))
    return g.moveaxis(square, (-2, -1), (axis1, axis2))


@aten("unfold", "unfold_copy")
def unfold(g: Graph, x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return windows along an axis. The elements of a window are the last axis."""
    if x.rank == 0:
        return g.reshape(x, (1,)) if size else g.reshape(x, (1,))[:0]
    axis = axis_of(dimension, x.rank)
    count = (static_size(x, axis) - size) // step + 1
    rows = np.arange(count, dtype=np.int32)[:, None] * step + np.arange(size, dtype=np.int32)
    return g.moveaxis(g.gather(x, g.constant(rows), axis=axis), axis + 1, -1)


@aten("constant_pad_nd")
def constant_pad_nd(g: Graph, x: Tensor, pad: Sequence[Any], value: Operand = 0) -> Tensor:
    """Pad with a constant. Pairs start at the last axis, and a negative number cuts."""
    return _padded(g, x, pad, "constant", value)


for _kind, _mode in (("reflection", "reflect"), ("replication", "replicate")):
    aten(*(f"{_kind}_pad{_rank}d" for _rank in (1, 2, 3)))(lambda g, x, pad, mode=_mode: _padded(g, x, pad, mode))


@aten("pad")
def pad(g: Graph, x: Tensor, pad: Sequence[Any], mode: str = "constant", value: Operand | None = None) -> Tensor:
    return _padded(g, x, pad, mode, 0 if value is None else value)


def _padded(g: Graph, x: Tensor, pad: Sequence[Any], mode: str, value: Any = 0) -> Tensor:
    edges: list[tuple[Any, Any]] = [(0, 0)] * x.rank
    for i in range(len(pad) // 2):
        edges[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    cut = [tuple(-d if isinstance(d, int) and d < 0 else 0 for d in edge) for edge in edges]
    edges = [tuple(0 if isinstance(d, int) and d < 0 else d for d in edge) for edge in edges]  # pyright: ignore
    if mode != "constant":
        x = g.pad(x, edges, mode)
        edges = [(0, 0)] * x.rank
    for axis, (low, high) in enumerate(cut):
        if low or high:
            x = g.narrow(x, axis, low, x.shape.dims[axis] - low - high)
    if all(edge == (0, 0) for edge in edges):
        return x
    value = value.item() if hasattr(value, "item") else value
    if (
        isinstance(value, float) and not x.dtype.is_inexact
    ):  # PyTorch truncates it; of a bool, it is whether it is not 0
        value = bool(value) if x.dtype.is_bool else int(value)
    return g.pad(x, edges, value=value)


@aten("pixel_shuffle")
def pixel_shuffle(g: Graph, x: Tensor, upscale_factor: int) -> Tensor:
    return g.pixel_shuffle(x, upscale_factor)


@aten("pixel_unshuffle")
def pixel_unshuffle(g: Graph, x: Tensor, downscale_factor: int) -> Tensor:
    return g.pixel_unshuffle(x, downscale_factor)


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(g: Graph, x: Tensor, groups: int) -> Tensor:
    return g.channel_shuffle(x, groups)
