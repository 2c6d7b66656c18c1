"""Rearrangement of elements: NumPy's `squeeze`, `moveaxis`, `roll`, `tile` and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, dim, product
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import ShapeLike, TensorLike
from rlx.ops.lift import axes_of, axis_of, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_array, is_integer, is_sequence


def _listed(value: object) -> list[Any]:
    return list(value) if is_sequence(value) or is_array(value) or isinstance(value, range) else [value]


@helper
def squeeze(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """NumPy's `squeeze`: `x` without axes of size 1; by default all of them are removed.

    Raises:
        ShapeError: A given axis does not have size 1.
    """
    x = tensor_like(b, x, f32)
    dims = x.shape.dims
    dropped = [i for i, d in enumerate(dims) if d == 1] if axis is None else axes_of(axis, x.rank, "axis")
    for i in dropped:
        if dims[i] != 1:
            raise ShapeError(f"axis {i} of {x.shape} has size {dims[i]}, and only axes of size 1 can be dropped")
    return b.reshape(x, [d for i, d in enumerate(dims) if i not in dropped])


@helper
def expand_dims(b: Builder, x: TensorLike, axis: int | Sequence[int]) -> Tensor:
    """NumPy's `expand_dims`: `x` with axes of size 1 at the positions `axis` of the result.

    Raises:
        ShapeError: A position is out of range or occurs twice.
    """
    x = tensor_like(b, x, f32)
    places = axes_of(axis, x.rank + len(_listed(axis)), "axis")
    dims = list(x.shape.dims)
    for place in places:
        dims.insert(place, 1)
    return b.reshape(x, dims)


@helper
def unsqueeze(b: Builder, x: TensorLike, axis: int) -> Tensor:
    """PyTorch's name for `expand_dims`."""
    return expand_dims(b, x, axis)


@helper
def ravel(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `ravel`: all elements in row-major order, of rank 1."""
    x = tensor_like(b, x, f32)
    return b.reshape(x, (x.shape.num_elements,))


@helper
def flatten(b: Builder, x: TensorLike, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """PyTorch's `flatten`: `x` with the axes from `start_axis` to `end_axis` joined to one; by default all axes.

    Raises:
        ShapeError: An axis is out of range, or the first one is after the last one.
    """
    x = tensor_like(b, x, f32)
    if not x.rank:
        return b.reshape(x, (1,))
    first, last = axis_of(start_axis, x.rank, "start_axis"), axis_of(end_axis, x.rank, "end_axis")
    if first > last:
        raise ShapeError(f"start_axis {start_axis} is after end_axis {end_axis}")
    dims = x.shape.dims
    return b.reshape(x, (*dims[:first], product(dims[first : last + 1]), *dims[last + 1 :]))


@helper
def moveaxis(b: Builder, x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """NumPy's `moveaxis`: the axes `source` move to the positions `destination`; the others keep their order.

    Raises:
        ShapeError: The two differ in length, or contain an axis twice.
    """
    x = tensor_like(b, x, f32)
    given = [
        [axis_of(a, x.rank, name) for a in _listed(axes)]
        for name, axes in (("source", source), ("destination", destination))
    ]
    if len(given[0]) != len(given[1]) or any(len(set(axes)) != len(axes) for axes in given):
        raise ShapeError(f"source {source} and destination {destination} must name as many axes, each once")
    order = [i for i in range(x.rank) if i not in given[0]]
    for place, axis in sorted(zip(given[1], given[0], strict=True)):
        order.insert(place, axis)
    return b.transpose(x, order)


@helper
def swapaxes(b: Builder, x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """NumPy's `swapaxes`: two axes swapped."""
    x = tensor_like(b, x, f32)
    first, second = axis_of(axis1, x.rank, "axis1"), axis_of(axis2, x.rank, "axis2")
    order = list(range(x.rank))
    order[first], order[second] = second, first
    return b.transpose(x, order)


@helper
def flip(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """NumPy's `flip`: the elements in reverse order along some axes, by default along all axes."""
    x = tensor_like(b, x, f32)
    return b.reverse(x, axes_of(axis, x.rank, "axis"))


@helper
def broadcast_to(b: Builder, x: TensorLike, shape: ShapeLike) -> Tensor:
    """NumPy's `broadcast_to`: `x` repeated along leading axes and axes of size 1."""
    return b.expand(tensor_like(b, x, f32), shape)


@helper
def roll(b: Builder, x: TensorLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """NumPy's `roll`: elements shifted beyond the end of an axis reappear at its start.

    Without an axis, the flattened elements are shifted.

    Raises:
        ShapeError: There are several shifts and a different number of axes. A shift is not an integer, or is longer
            than an axis of symbolic size.
    """
    x = tensor_like(b, x, f32)
    if axis is None:
        flat = ravel(b, x)
        return b.reshape(roll(b, flat, sum(_listed(shift)), 0), x.shape.dims)
    shifts, axes = _listed(shift), [axis_of(a, x.rank) for a in _listed(axis)]
    size = max(len(shifts), len(axes))
    if {len(shifts), len(axes)} - {1, size}:
        raise ShapeError(f"shift {shift} and axis {axis} differ in number")
    for amount, place in zip(shifts * (size // len(shifts)), axes * (size // len(axes)), strict=True):
        if not is_integer(amount):
            raise ShapeError(
                f"shift must be an integer, got {amount!r}",
                hint="g.take(x, (g.arange(n) - shift) % n, axis) by a tensor",
            )
        x = _rolled(b, x, int(amount), place)
    return x


def _rolled(b: Builder, x: Tensor, shift: int, axis: int) -> Tensor:
    size = x.shape.dims[axis]
    if type(size) is int:
        shift = shift % size if size else 0
    if not shift:
        return x
    border = size - shift if shift > 0 else -shift
    return b.concat([b.narrow(x, axis, border, size - border), b.narrow(x, axis, 0, border)], axis)


@helper
def tile(b: Builder, x: TensorLike, reps: int | Sequence[int]) -> Tensor:
    """NumPy's `tile`: `x` repeated `reps` times along each axis; if `reps` is shorter, along the last axes."""
    x = tensor_like(b, x, f32)
    counts: list[Dim] = [dim(r) for r in _listed(reps)]
    rank = max(x.rank, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    dims = (*[1] * (rank - x.rank), *x.shape.dims)
    parted = b.reshape(x, [part for d in dims for part in (1, d)])
    spread = b.expand(parted, [part for r, d in zip(counts, dims, strict=True) for part in (r, d)])
    return b.reshape(spread, [r * d for r, d in zip(counts, dims, strict=True)])


@helper
def repeat(b: Builder, x: TensorLike, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """NumPy's `repeat`: each element is repeated `repeats` times along an axis. Without an axis, `x` is flattened first.

    Args:
        b: The builder.
        x: Any tensor.
        repeats: One number for all elements (also as a list with one entry), or a list with a number for each element.
        axis: The axis. None takes the elements in row-major order; the result has rank 1.

    Raises:
        ShapeError: `repeats` is a tensor, is negative, or is a list whose length differs from the size of the axis.
    """
    x = tensor_like(b, x, f32)
    if axis is None:
        x, axis = ravel(b, x), 0
    axis = axis_of(axis, x.rank)
    dims = x.shape.dims
    if isinstance(repeats, Tensor):
        raise ShapeError("repeats is a tensor, and sizes may not depend on values", hint="give a number or a list")
    is_list = isinstance(repeats, (list, tuple, np.ndarray))
    if not is_list or len(repeats) == 1 != dims[axis]:
        count = dim(repeats[0] if is_list else repeats)
        parted = b.reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        spread = b.expand(parted, (*dims[: axis + 1], count, *dims[axis + 1 :]))
        return b.reshape(spread, (*dims[:axis], dims[axis] * count, *dims[axis + 1 :]))
    counts = np.asarray(repeats) if len(repeats) else np.zeros(0, np.int32)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any() or len(counts) != dims[axis]:
        raise ShapeError(f"repeats must be {dims[axis]} numbers from 0 on, for axis {axis}, got {repeats!r:.60}")
    return b.gather(x, b.constant(np.repeat(np.arange(len(counts), dtype=np.int32), counts)), axis)


@helper
def permute(b: Builder, x: TensorLike, perm: Sequence[int]) -> Tensor:
    """PyTorch's `permute`, the same as `transpose`."""
    return b.transpose(x, perm)


@helper
def rot90(b: Builder, x: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """NumPy's `rot90`: a tensor rotated by `k` right angles in the plane of two axes, from the first towards the second.

    Args:
        b: The graph.
        x: A tensor of rank 2 or more.
        k: The number of right angles; a negative number rotates in the other direction.
        axes: The two axes.

    Raises:
        ShapeError: There are not two axes, one is out of range, or `k` is not an integer.
    """
    x = tensor_like(b, x, f32)
    if not is_integer(k):
        raise ShapeError(f"k is a number of right angles, an integer, got {k!r:.60}")
    plane = axes_of(axes, x.rank)
    if len(plane) != 2:
        raise ShapeError(f"axes are two axes of the tensor, got {axes!r:.60} for {x.shape}")
    first, second = (axis_of(a, x.rank, "axes") for a in axes)
    for _ in range(k % 4):
        x = swapaxes(b, flip(b, x, second), first, second)
    return x
