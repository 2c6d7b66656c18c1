"""Functions of the array API that rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.array_api.arrays import as_tensor, builder
from rlx.ir.graph.eager import EagerTensor
from rlx.ops.lift import broadcast
from rlx.support.errors import ShapeError

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "tile",
    "unstack",
]


def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """The broadcast shape of several shapes; raises `ValueError` if there is none."""
    try:
        return broadcast(*shapes) if shapes else ()
    except ShapeError as problem:
        raise ValueError(str(problem)) from None


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Tensors broadcast to their common shape."""
    shape = broadcast(*(x.shape.dims for x in arrays))
    return tuple(x.builder.expand(x, shape) for x in arrays)


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """A tensor broadcast to a shape."""
    return builder(x).broadcast_to(x, shape)


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Tensors joined along an axis; for None, their flattened elements."""
    return builder(arrays).concatenate(list(arrays), axis=axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Tensors joined along a new axis."""
    return builder(arrays).stack(list(arrays), axis=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis."""
    return tuple(builder(x).unstack(x, axis))


def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """A tensor with additional axes of size 1; raises `IndexError` for a position out of range."""
    try:
        return builder(x).expand_dims(x, axis)
    except ShapeError as problem:
        raise IndexError(str(problem)) from None


def squeeze(x: Any, /, axis: Any) -> Any:
    """A tensor without axes of size 1; raises `ValueError` for an axis of another size."""
    try:
        return builder(x).squeeze(x, axis)
    except ShapeError as problem:
        raise ValueError(str(problem)) from None


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """A tensor in reverse order along axes."""
    return builder(x).flip(x, axis)


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """A tensor with axes moved to other positions."""
    return builder(x).moveaxis(x, source, destination)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """A tensor with its axes in another order."""
    return builder(x).transpose(x, tuple(axes))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element repeated several times."""
    if isinstance(repeats, EagerTensor):
        repeats = repeats.numpy()
    return builder(x).repeat(x, repeats, axis)


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The elements in another shape."""
    return builder(x).reshape(x, tuple(shape))


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements shifted along axes; those shifted beyond the end reappear at the start."""
    return builder(x).roll(x, shift, axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """Repeated copies of a tensor."""
    return builder(x).tile(x, tuple(repetitions))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The slices at positions of an axis."""
    if axis is None and as_tensor(x).rank != 1:
        raise ValueError("take needs an axis, unless the tensor has one only")
    return builder(x).take(x, indices, axis=axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements at positions that are given for each row."""
    return builder(x).take_along_axis(x, indices, axis=axis)
