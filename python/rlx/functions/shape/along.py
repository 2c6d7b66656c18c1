"""Reads and writes at positions: NumPy's `take_along_axis`, JAX's `dynamic_slice` and others.

Positions may be tensors. Negative positions count from the end where the other library does so. A position out of range
is clamped when reading, and dropped when writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.functions.shape.arrange import moveaxis, ravel
from rlx.ir.dims.dim import Dim, dim, product
from rlx.ir.dtype import DType, f32, i32, i64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Size, TensorLike
from rlx.ops.indexing import from_the_end
from rlx.ops.lift import axis_of, broadcast, cast, tensor_like
from rlx.ops.shape.index import clamp_indices, extent, index_dtype
from rlx.ops.shape.shape import check_range
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_array, is_sequence


def _indices(b: Builder, value: object) -> Tensor:
    """Return integers as a tensor; Python integers become i32."""
    indices = tensor_like(b, np.asarray(value) if is_sequence(value) else value, i32)
    if not indices.dtype.is_integer:
        raise ShapeError(f"indices are integers, not {indices.dtype}")
    return indices


@helper
def take(b: Builder, x: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """NumPy's `take`: the slices of an axis at given positions. Without an axis, `x` is flattened first.

    Args:
        b: The builder.
        x: Any tensor.
        indices: Integers of any shape, which replaces the axis. Negative ones count from the end; positions out of
            range are clamped.
        axis: The indexed axis.
    """
    x, indices = tensor_like(b, x, f32), _indices(b, indices)
    x, axis = (ravel(b, x), 0) if axis is None else (x, axis_of(axis, x.rank))
    return b.gather(x, from_the_end(b, indices, x.shape.dims[axis]), axis=axis)


def _aligned(b: Builder, x: Tensor, indices: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return table and positions with broadcast axes, except for `axis`, which comes last in both."""
    if x.rank != indices.rank:
        raise ShapeError(f"indices {indices.shape} and {x.shape} must have one rank")
    x, indices = moveaxis(b, x, axis, -1), moveaxis(b, indices, axis, -1)
    outer = broadcast(x.shape.dims[:-1], indices.shape.dims[:-1])
    return b.expand(x, (*outer, x.shape.dims[-1])), b.expand(indices, (*outer, indices.shape.dims[-1]))


@helper
def take_along_axis(b: Builder, x: TensorLike, indices: TensorLike, axis: int | None = -1) -> Tensor:
    """NumPy's `take_along_axis`, PyTorch's `gather`: `result[i, j] = x[i, indices[i, j]]` for the last axis of a matrix.

    Args:
        b: The builder.
        x: Any tensor.
        indices: Integers of the rank of `x`; all axes except `axis` broadcast. Negative ones count from the end;
            positions out of range are clamped.
        axis: The indexed axis, or None for the flattened `x`.
    """
    x, indices = tensor_like(b, x, f32), _indices(b, indices)
    x, axis = (ravel(b, x), 0) if axis is None else (x, axis_of(axis, x.rank))
    table, places = _aligned(b, x, from_the_end(b, indices, x.shape.dims[axis]), axis)
    return moveaxis(b, b.gather_batched(table, places, axis=table.rank - 1), -1, axis)


@helper
def put_along_axis(
    b: Builder, x: TensorLike, indices: TensorLike, values: TensorLike, axis: int | None = -1, reduction: str = "set"
) -> Tensor:
    """NumPy's `put_along_axis`, PyTorch's `scatter`, as a new tensor: `x` with `result[i, indices[i, j]] = values[i, j]`.

    Args:
        b: The builder.
        x: Any tensor.
        indices: As in `take_along_axis`, but positions out of range write nothing.
        values: The values to write, in the dtype of `x`; they broadcast to the shape of the indices.
        axis: The indexed axis, or None for the flattened `x`.
        reduction: `"set"`, `"add"`, `"mul"`, `"max"` or `"min"`: how a value is combined with the element at its
            position.
    """
    x, indices = tensor_like(b, x, f32), _indices(b, indices)
    if axis is None:
        flat = put_along_axis(b, ravel(b, x), ravel(b, indices), values, 0, reduction)
        return b.reshape(flat, x.shape.dims)
    axis = axis_of(axis, x.rank)
    values = cast(b, tensor_like(b, values, x.dtype), x.dtype)
    places = from_the_end(b, indices, x.shape.dims[axis])
    if x.rank != indices.rank:
        raise ShapeError(f"indices {indices.shape} and {x.shape} must have one rank")
    dims = [places.shape.dims[i] if i == axis else d for i, d in enumerate(x.shape.dims)]
    places, values = b.expand(places, dims), b.expand(values, dims)
    kind = index_dtype(places.dtype, *dims)
    parts = [cast(b, places, kind) if i == axis else b.iota(dims, axis=i, dtype=kind) for i in range(x.rank)]
    return b.scatter_nd(x, b.stack(parts, axis=-1), values, reduction=reduction)


@helper
def index_add(b: Builder, x: TensorLike, indices: TensorLike, updates: TensorLike, axis: int = 0) -> Tensor:
    """PyTorch's `index_add`: `x` with slices added at positions of an axis; repeated positions accumulate.

    Args:
        b: The builder.
        x: Any tensor.
        indices: Integers `[N]`; negative ones count from the end, positions out of range are dropped.
        updates: In the shape of `x`, but with size N along the axis.
        axis: The axis.
    """
    return _written(b, x, indices, updates, axis, "add")


@helper
def index_copy(b: Builder, x: TensorLike, indices: TensorLike, updates: TensorLike, axis: int = 0) -> Tensor:
    """PyTorch's `index_copy`: `x` with slices replaced at positions of an axis; see `index_add`."""
    return _written(b, x, indices, updates, axis, "set")


def _written(b: Builder, x: TensorLike, indices: TensorLike, updates: TensorLike, axis: int, reduction: str) -> Tensor:
    x, indices = tensor_like(b, x, f32), _indices(b, indices)
    axis = axis_of(axis, x.rank)
    updates = cast(b, tensor_like(b, updates, x.dtype), x.dtype)
    rows = moveaxis(b, updates, axis, 0) if updates.rank else updates
    table = moveaxis(b, x, axis, 0)
    rows = b.expand(rows, (*indices.shape.dims, *table.shape.dims[1:]))
    places = b.expand_dims(from_the_end(b, indices, x.shape.dims[axis]), -1)
    return moveaxis(b, b.scatter_nd(table, places, rows, reduction=reduction), 0, axis)


# --- slices with dynamic starts ----------------------------------------------------------------------


def _starts(b: Builder, starts: object, x: Tensor, sizes: Sequence[Dim]) -> list[Tensor | None]:
    """Return the start of each axis, moved so that the slice is in range; None for a whole axis."""
    if isinstance(starts, Tensor) and starts.rank == 1:
        given: list[Any] = b.unstack(starts)
    else:
        given = list(starts) if is_sequence(starts) or is_array(starts) else [starts]
    if len(given) != x.rank or len(sizes) != x.rank:
        raise ShapeError(f"expected a start and a size for each axis of {x.shape}, got {len(given)} and {len(sizes)}")
    result: list[Tensor | None] = []
    for axis, (start, size, whole) in enumerate(zip(given, sizes, x.shape.dims, strict=True)):
        try:
            check_range(0, size, whole, f"axis {axis}")
        except ShapeError:
            raise ShapeError(f"a slice of {size} does not fit an axis of size {whole}") from None
        if size == whole:
            result.append(None)
            continue
        index = from_the_end(b, _indices(b, start), whole)
        if index.rank:
            raise ShapeError(f"a start is a scalar, not {index.shape}")
        result.append(clamp_indices(b, index, whole - size + 1))
    return result


def _positions(b: Builder, dims: Sequence[Dim], axis: int, whole: Dim, kind: DType) -> Tensor:
    """Return the position along an axis for each element of a slice, in an integer dtype.

    They are the first positions of the whole axis, so that a symbolic size that exceeds the axis is an error when sizes
    are known.
    """
    size = dims[axis]
    if type(size) is int and type(whole) is int:
        return b.iota(dims, axis=axis, dtype=kind)
    all_positions = b.iota([whole if i == axis else d for i, d in enumerate(dims)], axis=axis, dtype=kind)
    return b.narrow(all_positions, axis, 0, size)


@helper
def dynamic_slice(b: Builder, x: TensorLike, starts: TensorLike | Sequence[TensorLike], sizes: Sequence[Any]) -> Tensor:
    """JAX's `dynamic_slice`: a slice whose starts may be tensors.

    Args:
        b: The builder.
        x: Any tensor.
        starts: For each axis an integer or a scalar tensor, or one tensor with all starts. Negative ones count from the
            end. The slice is then moved so that it is in range.
        sizes: The sizes of the result, one per axis; they may be symbolic.

    Raises:
        ShapeError: A size exceeds that of its axis.
    """
    x, sizes = tensor_like(b, x, f32), [dim(size) for size in sizes]
    for axis, (start, size) in enumerate(zip(_starts(b, starts, x, sizes), sizes, strict=True)):
        if start is not None:
            x = b.gather(x, start + _positions(b, (size,), 0, x.shape.dims[axis], start.dtype), axis=axis)
    return x


@helper
def dynamic_slice_in_dim(b: Builder, x: TensorLike, start: TensorLike, size: Size, axis: int = 0) -> Tensor:
    """JAX's `dynamic_slice_in_dim`: `dynamic_slice` of one axis."""
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    starts = [start if i == axis else 0 for i in range(x.rank)]
    return dynamic_slice(b, x, starts, [size if i == axis else d for i, d in enumerate(x.shape.dims)])


@helper
def dynamic_update_slice(
    b: Builder, x: TensorLike, update: TensorLike, starts: TensorLike | Sequence[TensorLike]
) -> Tensor:
    """JAX's `dynamic_update_slice`: `x` with a slice replaced; its starts may be tensors.

    Args:
        b: The builder.
        x: Any tensor.
        update: The new values of the slice, in the rank and dtype of `x`, and not larger than `x`.
        starts: As in `dynamic_slice`.

    Raises:
        ShapeError: A size of the update exceeds that of its axis.
    """
    x = tensor_like(b, x, f32)
    update = cast(b, tensor_like(b, update, x.dtype), x.dtype)
    if update.rank != x.rank:
        raise ShapeError(f"the update {update.shape} must have the rank of {x.shape}")
    starts_of_axes = _starts(b, starts, x, update.shape.dims)
    sliced = [axis for axis, start in enumerate(starts_of_axes) if start is not None]
    if not sliced:
        return update
    # Positions for the axes up to the last sliced axis. The axes after it are written in whole slices.
    places = update.shape.dims[: sliced[-1] + 1]
    parts: list[Tensor] = []
    kind = i64 if any(start is not None and start.dtype is i64 for start in starts_of_axes) else i32
    for axis, start in enumerate(starts_of_axes[: sliced[-1] + 1]):
        number = _positions(b, places, axis, x.shape.dims[axis], kind)
        parts.append(number if start is None else number + cast(b, start, kind))
    return b.scatter_nd(x, b.stack(parts, axis=-1), update, reduction="set")


@helper
def dynamic_update_slice_in_dim(
    b: Builder, x: TensorLike, update: TensorLike, start: TensorLike, axis: int = 0
) -> Tensor:
    """JAX's `dynamic_update_slice_in_dim`: `dynamic_update_slice` of one axis."""
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    return dynamic_update_slice(b, x, update, [start if i == axis else 0 for i in range(x.rank)])


@helper
def unravel_index(b: Builder, indices: TensorLike, shape: Sequence[Any]) -> tuple[Tensor, ...]:
    """NumPy's `unravel_index`: the position along each axis, for row-major positions."""
    rest, result = _indices(b, indices), list[Tensor]()
    for size in reversed([shape] if isinstance(shape, int) else list(shape)):
        result.insert(0, cast(b, rest % extent(b, size, rest.dtype), rest.dtype))
        rest = rest // extent(b, size, rest.dtype)
    return tuple(result)


@helper
def ravel_multi_index(b: Builder, multi_index: Sequence[Any], dims: Sequence[Any]) -> Tensor:
    """NumPy's `ravel_multi_index`: the row-major position, for positions along each axis; clamped."""
    parts = [_indices(b, index) for index in multi_index]
    if not parts or len(parts) != len(dims):
        raise ShapeError(f"expected {len(dims)} tensors of positions, got {len(parts)}")
    count = product(dims)
    kind = i32 if type(count) is int and count <= i32.max else i64
    linear = None
    for index, size in zip(parts, dims, strict=True):
        place = cast(b, clamp_indices(b, index, size), kind)
        linear = place if linear is None else linear * extent(b, size, kind) + place
    assert linear is not None
    return linear
