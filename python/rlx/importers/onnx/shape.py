"""Sizes, constants, and ops that move data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.rules import (
    Static,
    Unknown,
    dims,
    element_count,
    elements,
    extent,
    imports,
    integers,
    needed_dims,
    once,
    static_dims,
)
from rlx.importers.onnx.sizes import SymbolicArray, is_negative, sign
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_LONGEST_RANGE = 1 << 20
# Exporters write values of at least this size for a slice up to the end.
_BEYOND = 10**9


@imports("Constant")
def constant(
    g: Graph,
    *,
    value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
) -> Tensor:
    for given, dtype in (
        (value_float, "float32"),
        (value_floats, "float32"),
        (value_int, "int64"),
        (value_ints, "int64"),
    ):
        if given is not None:
            return g.constant(np.array(given, dtype))
    if value is None:
        raise UnsupportedError("without a tensor of numbers cannot be imported")
    return literal_or_weight(g, value)


@imports("ConstantOfShape")
def constant_of_shape(g: Graph, shape: Tensor, *, static: Static, value: np.ndarray | None = None) -> Tensor:
    filled = np.zeros(1, np.float32) if value is None else value
    return g.broadcast_to(g.constant(filled.reshape(())), needed_dims(static, 0, "shape"))


@imports("Shape")
def shape_of(g: Graph, x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """Return the shape of a known tensor. The scope handles all other tensors."""
    return g.constant(np.array(x.shape.static[start:end], np.int64))


@imports("Size")
def size_of(g: Graph, x: Tensor) -> Tensor:
    return g.constant(np.array(math.prod(x.shape.static), np.int64))


@imports("Reshape")
def reshape(
    g: Graph,
    x: Tensor,
    to: Tensor | None = None,
    *,
    static: Static,
    shape: Sequence[int] | None = None,
    allowzero: int = 0,
) -> Tensor:
    sizes = list(shape if shape is not None else dims(static, 1, "shape") or ())
    if not allowzero:
        sizes = [x.shape.dims[i] if n == 0 and i < x.shape.rank else n for i, n in enumerate(sizes)]
    elif -1 in sizes and 0 in sizes:
        raise UnsupportedError("with both 0 and -1 in its shape, and allowzero, has no meaning")
    if -1 in sizes and 0 in x.shape.dims:
        sizes[sizes.index(-1)] = 0
    return g.reshape(x, sizes)


@imports("Flatten")
def flatten(g: Graph, x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.shape.rank if axis < 0 else axis
    return g.reshape(x, (dim.product(x.shape.dims[:axis]), dim.product(x.shape.dims[axis:])))


def _axes(axes: Sequence[int] | None, static: Static, position: int = 1) -> tuple[int, ...] | None:
    return tuple(axes) if axes is not None else integers(static, position, "axes")


@imports("Squeeze")
def squeeze(
    g: Graph, x: Tensor, where: Tensor | None = None, *, static: Static, axes: Sequence[int] | None = None
) -> Tensor:
    given = _axes(axes, static)
    return g.squeeze(x, once(x, given) if given else None)  # without axes, all axes of size 1 are removed


@imports("Unsqueeze")
def unsqueeze(
    g: Graph, x: Tensor, where: Tensor | None = None, *, static: Static, axes: Sequence[int] | None = None
) -> Tensor:
    given = _axes(axes, static)
    if given is None:
        raise UnsupportedError("without axes cannot be imported")
    return g.expand_dims(x, given)


@imports("Transpose")
def transpose(g: Graph, x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return g.transpose(x, tuple(perm) if perm is not None else tuple(range(x.shape.rank))[::-1])


@imports("Concat")
def concat(g: Graph, *xs: Tensor, axis: int = 1) -> Tensor:
    return g.concat(list(xs), axis)


@imports("Expand")
def expand(g: Graph, x: Tensor, to: Tensor, *, static: Static) -> Tensor:
    wanted, own = dims(static, 1, "shape") or (), x.shape.dims
    rank = max(len(wanted), len(own))
    pairs = zip((1,) * (rank - len(own)) + own, (1,) * (rank - len(wanted)) + wanted, strict=True)
    return g.broadcast_to(x, tuple(mine if to == 1 else to for mine, to in pairs))


@imports("Tile")
def tile(g: Graph, x: Tensor, repeats: Tensor, *, static: Static) -> Tensor:
    times: Any = needed_dims(static, 1, "repeats")
    return g.tile(x, times)


@dataclass(frozen=True, kw_only=True)
class SplitAttributes(ArgumentGroup):
    """The attributes of `Split`, with ONNX's names."""

    axis: int = 0
    split: Sequence[int] | None = None
    num_outputs: int | None = None


@imports("Split")
def split(
    g: Graph, x: Tensor, sizes: Tensor | None = None, *, static: Static, outputs: int, into: SplitAttributes
) -> list[Tensor]:
    axis = into.axis
    parts = tuple(into.split) if into.split is not None else dims(static, 1, "split")
    if parts is None:
        count, whole = into.num_outputs or outputs, x.shape.dims[axis]
        if count != outputs:
            raise UnsupportedError(f"into {count} parts, with {outputs} results, has no meaning")
        chunk = dim.exact_divide(whole, count) or -(-whole // count)
        parts = tuple(dim.maximum(0, dim.minimum(chunk, whole - i * chunk)) for i in range(count))
    ends = itertools.accumulate(parts)
    return [g.narrow(x, axis, end - size, size) for end, size in zip(ends, parts, strict=True)]


def _open_range(size: Dim, start: Dim, end: Dim, stride: int) -> slice:
    """Return a slice of an axis with an open size or open bounds. A start that may be in range is assumed to be."""

    def place(bound: Dim) -> Dim:
        return (
            size + bound if is_negative(bound) else bound
        )  # an open bound is assumed to count from the start; a negative one fails at run time

    if stride == -1 and (start == -1 or (isinstance(start, int) and start >= _BEYOND)) and sign(end + _BEYOND) == -1:
        return slice(None, None, -1)
    if stride < 0:
        raise UnsupportedError("backwards, along an axis of open size, cannot be imported unless it is the whole axis")
    if isinstance(end, int) and end >= _BEYOND:
        end = size
    begin, stop = place(start), place(end)
    if isinstance(start, int) and start < 0:  # all elements of a shorter axis are taken
        begin = begin if sign(begin) is not None else dim.maximum(begin, 0)
    # An end beyond the axis is clamped to it. A symbolic end is assumed to be within a known size.
    is_within = isinstance(size, int) or is_negative(size - stop) is False
    return slice(begin, stop if is_within else dim.minimum(stop, size), stride)


@dataclass(frozen=True)
class SliceOperands(ArgumentGroup):
    """The bounds of a slice, as newer versions give them."""

    starts: Tensor | None = None
    ends: Tensor | None = None
    axes: Tensor | None = None
    steps: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class SliceAttributes(ArgumentGroup):
    """The bounds of a slice, as versions before 10 give them."""

    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None
    axes: Sequence[int] | None = None


@imports("Slice")
def slice_(g: Graph, x: Tensor, operands: SliceOperands, *, static: Static, bounds: SliceAttributes) -> Tensor:
    starts = bounds.starts if bounds.starts is not None else needed_dims(static, 1, "starts")
    ends = bounds.ends if bounds.ends is not None else needed_dims(static, 2, "ends")
    axes = _axes(bounds.axes, static, 3) or tuple(range(len(starts)))
    steps = integers(static, 4, "steps") or (1,) * len(starts)
    index: list[Any] = [slice(None)] * x.shape.rank
    for axis, start, end, stride in zip(axes, starts, ends, steps, strict=True):
        size = x.shape.dims[axis]
        if not (isinstance(size, int) and isinstance(start, int) and isinstance(end, int)):
            index[axis] = _open_range(size, start, end, stride)
            continue
        begin, stop, by = slice(start, end, stride).indices(size)
        if end < -size and stride < 0:
            stop = -1
        index[axis] = slice(begin, None if stop < 0 else stop, by)
    return x[tuple(index)]


@dataclass(frozen=True)
class PadOperands(ArgumentGroup):
    """The operands of `Pad` in newer versions: amounts, fill value and axes."""

    pads: Tensor | None = None
    constant_value: Tensor | None = None
    axes: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class PadAttributes(ArgumentGroup):
    """The attributes of `Pad`, with ONNX's names."""

    mode: str = "constant"
    pads: Sequence[int] | None = None
    value: float = 0.0


@imports("Pad")
def pad(g: Graph, x: Tensor, operands: PadOperands, *, static: Static, attributes: PadAttributes) -> Tensor:
    mode, fill = attributes.mode, operands.constant_value
    given = tuple(attributes.pads) if attributes.pads is not None else dims(static, 1, "pads") or ()
    axes = integers(static, 3, "axes") or tuple(range(x.shape.rank))
    is_computed = len(static) > 2 and isinstance(static[2], Unknown) and mode == "constant"
    constant_value = None if is_computed else elements(static, 2, "constant_value")
    filling = attributes.value if constant_value is None else constant_value.reshape(()).item()
    if not filling and not x.dtype.has_zero:
        filling = np.nan  # a cast of 0 has this value
    padding: list[Any] = [(0, 0)] * x.shape.rank
    for i, axis in enumerate(axes):
        padding[axis] = (given[i], given[i + len(axes)])
    if any(isinstance(n, int) and n < 0 for pair in padding for n in pair):
        cut = [tuple(-min(0, n) if isinstance(n, int) else 0 for n in pair) for pair in padding]
        x = x[tuple(slice(low, n - high) for (low, high), n in zip(cut, x.shape.dims, strict=True))]
    padding = [tuple(max(0, n) if isinstance(n, int) else n for n in pair) for pair in padding]
    if is_computed and fill is not None:
        inside = g.pad(g.ones(x.shape, dtype="bool"), padding, value=False)
        return g.where(inside, g.pad(x, padding, value=filling), g.reshape(fill, ()))
    if mode == "constant":
        return g.pad(x, padding, value=filling)
    for axis, (low, high) in enumerate(padding):  # by positions, since a pad may be wider than the data that it repeats
        if low or high:
            way: Any = mode
            size = x.shape.dims[axis]
            if not isinstance(size, int):
                x = g.pad(x, [(low, high) if a == axis else (0, 0) for a in range(x.shape.rank)], mode)
                continue
            element_count(size + low + high, "elements along an axis")
            source = np.pad(np.arange(size), (low, high), mode=way)
            x = g.gather(x, g.constant(source.astype(np.int32)), axis=axis)
    return x


@imports("Range")
def arange(g: Graph, start: Tensor, limit: Tensor, delta: Tensor, *, static: Static) -> Tensor:
    if any(isinstance(s, SymbolicArray) for s in static):
        low, high, by = (dims(static, i, n) for i, n in enumerate(("start", "limit", "delta")))
        assert low is not None and high is not None and by is not None
        if by[0] == 1:
            return g.arange(low[0], high[0], dtype=start.dtype)
        if isinstance(by[0], DimExpr):
            raise UnsupportedError(f"with a step of {by[0]} cannot be imported")
        steps = -((low[0] - high[0]) // by[0])
        return g.add(g.mul(g.iota((steps,), 0, start.dtype), by[0]), extent(g, low[0], start.dtype))
    first, last, step = (elements(static, i, n) for i, n in enumerate(("start", "limit", "delta")))
    assert first is not None and last is not None and step is not None
    count = max(0, math.ceil((last.item() - first.item()) / step.item()))
    if count > _LONGEST_RANGE:
        raise UnsupportedError(f"of {count} elements cannot be imported; {_LONGEST_RANGE} is the most")
    return literal_or_weight(g, first + np.arange(count, dtype=first.dtype) * step)


@imports("EyeLike")
def eye_like(g: Graph, x: Tensor, *, dtype: Any = None, k: int = 0) -> Tensor:
    rows, columns = static_dims(x, 0, 1)
    return g.eye(rows, columns, k=k, dtype=dtype if dtype is not None else x.dtype)


@imports("Trilu")
def trilu(g: Graph, x: Tensor, k: Tensor | None = None, *, static: Static, upper: int = 1) -> Tensor:
    diagonal = elements(static, 1, "k")
    offset = 0 if diagonal is None else int(diagonal.item())
    return g.triu(x, k=offset) if upper else g.tril(x, k=offset)


@imports("DepthToSpace")
def depth_to_space(g: Graph, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, _, h, w = x.shape.dims
    (c,) = static_dims(x, 1)
    b, rest = blocksize, c // (blocksize * blocksize)
    sizes, perm = (
        ((n, b, b, rest, h, w), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((n, rest, b, b, h, w), (0, 1, 4, 2, 5, 3))
    )
    return g.reshape(g.transpose(g.reshape(x, sizes), perm), (n, rest, h * b, w * b))


@imports("SpaceToDepth")
def space_to_depth(g: Graph, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape.dims
    b = blocksize
    parts = g.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return g.reshape(g.transpose(parts, order), (n, c * b * b, h // b, w // b))


@imports("ReverseSequence")
def reverse_sequence(g: Graph, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    steps = extent(g, x.shape.dims[time_axis] - 1, "i32")
    shape = [1] * x.shape.rank
    shape[batch_axis] = -1
    ends = g.reshape(g.cast(lengths, "i32"), shape)
    places = g.cast(g.iota(x.shape, time_axis), "i32")
    turned = g.where(g.lt(places, ends), g.sub(g.sub(ends, 1), places), places)
    return g.take_along_axis(x, g.minimum(g.maximum(turned, 0), steps), axis=time_axis)


@imports("TensorScatter")
def tensor_scatter(
    g: Graph, past: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write new rows to a cache at each sequence's position. A circular cache wraps around at the end."""
    axis = axis % past.shape.rank
    size = extent(g, past.shape.dims[axis], "i32")
    sizes = update.shape.dims
    places = [g.cast(g.iota(sizes, a), "i32") for a in range(len(sizes))]
    if starts is not None:
        first = g.reshape(g.cast(starts, "i32"), (-1, *(1,) * (len(sizes) - 1)))
        places[axis] = g.add(places[axis], first)
    if mode == "circular":
        places[axis] = g.mod(places[axis], size)
    return g.scatter_nd(past, g.stack([g.broadcast_to(p, sizes) for p in places], -1), update, reduction="set")


@imports("BitCast")
def bit_cast(g: Graph, x: Tensor, *, to: Any) -> Tensor:
    return g.bitcast(g.cast(x, "u8") if x.dtype.is_bool else x, to)


@imports("Det")
def det(g: Graph, x: Tensor) -> Tensor:
    return g.det(x)
