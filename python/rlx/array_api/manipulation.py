"""Functions of the array API that arrange elements."""

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
    """The common shape of shapes; raises `ValueError` if there is none."""
    try:
        return broadcast(*shapes) if shapes else ()
    except ShapeError as problem:
        raise ValueError(str(problem)) from None


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Tensors repeated to their common shape."""
    shape = broadcast(*(x.shape.dims for x in arrays))
    return tuple(x.builder.expand(x, shape) for x in arrays)


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """A tensor repeated to a shape."""
    return builder(x).broadcast_to(x, shape)


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Tensors one after the other along an axis; with None, their elements."""
    return builder(arrays).concatenate(list(arrays), axis=axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Tensors side by side along a new axis."""
    return builder(arrays).stack(list(arrays), axis=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis."""
    return tuple(builder(x).unstack(x, axis))


def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """A tensor with axes of size 1 more; raises `IndexError` for a place that is out of range."""
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
    """A tensor with axes at other places."""
    return builder(x).moveaxis(x, source, destination)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """A tensor with its axes in another order."""
    return builder(x).transpose(x, tuple(axes))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element several times in a row."""
    if isinstance(repeats, EagerTensor):
        repeats = repeats.numpy()
    return builder(x).repeat(x, repeats, axis)


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The elements under another shape."""
    return builder(x).reshape(x, tuple(shape))


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements moved along axes; what leaves at the end comes back at the start."""
    return builder(x).roll(x, shift, axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """Copies of a tensor side by side."""
    return builder(x).tile(x, tuple(repetitions))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The slices of an axis at positions."""
    if axis is None and as_tensor(x).rank != 1:
        raise ValueError("take needs an axis, unless the tensor has one only")
    return builder(x).take(x, indices, axis=axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements of rows at positions of their own."""
    return builder(x).take_along_axis(x, indices, axis=axis)
