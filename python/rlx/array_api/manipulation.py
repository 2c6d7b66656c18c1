"""Functions of the array API that rearrange elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx.array_api.arrays import as_tensor, builder
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.eager import EagerTensor
from rlx.ir.graph.typing import Axes, ShapeLike, Size, TensorLike
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


def broadcast_shapes(*shapes: Iterable[Dim]) -> tuple[Dim, ...]:
    """The broadcast shape of several shapes; raises `ValueError` if there is none."""
    try:
        return broadcast(*shapes) if shapes else ()
    except ShapeError as problem:
        raise ValueError(str(problem)) from None


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Tensors broadcast to their common shape."""
    shape = broadcast(*(x.shape.dims for x in arrays))
    return tuple(x.builder.expand(x, shape) for x in arrays)


def broadcast_to(x: Tensor, /, shape: ShapeLike) -> Tensor:
    """A tensor broadcast to a shape."""
    return builder(x).broadcast_to(x, shape)


def concat(arrays: Sequence[TensorLike], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; for None, their flattened elements."""
    return builder(arrays).concatenate(list(arrays), axis=axis)


def stack(arrays: Sequence[TensorLike], /, *, axis: int = 0) -> Tensor:
    """Tensors joined along a new axis."""
    return builder(arrays).stack(list(arrays), axis=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return tuple(builder(x).unstack(x, axis))


def expand_dims(x: Tensor, /, axis: Axes = 0) -> Tensor:
    """A tensor with additional axes of size 1; raises `IndexError` for a position out of range."""
    try:
        return builder(x).expand_dims(x, axis)
    except ShapeError as problem:
        raise IndexError(str(problem)) from None


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """A tensor without axes of size 1; raises `ValueError` for an axis of another size."""
    try:
        return builder(x).squeeze(x, axis)
    except ShapeError as problem:
        raise ValueError(str(problem)) from None


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """A tensor in reverse order along axes."""
    return builder(x).flip(x, axis)


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """A tensor with axes moved to other positions."""
    return builder(x).moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """A tensor with its axes in another order."""
    return builder(x).transpose(x, tuple(axes))


def repeat(x: Tensor, repeats: EagerTensor | int | Sequence[int], /, *, axis: int | None = None) -> Tensor:
    """Each element repeated several times."""
    counts: int | Sequence[int] = repeats.tolist() if isinstance(repeats, EagerTensor) else repeats
    return builder(x).repeat(x, counts, axis)


def reshape(x: Tensor, /, shape: Sequence[Size], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape."""
    return builder(x).reshape(x, tuple(shape))


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: Axes | None = None) -> Tensor:
    """Elements shifted along axes; those shifted beyond the end reappear at the start."""
    return builder(x).roll(x, shift, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Repeated copies of a tensor."""
    return builder(x).tile(x, tuple(repetitions))


def take(x: Tensor, indices: TensorLike, /, *, axis: int | None = None) -> Tensor:
    """The slices at positions of an axis."""
    if axis is None and as_tensor(x).rank != 1:
        raise ValueError("take needs an axis, unless the tensor has one only")
    return builder(x).take(x, indices, axis=axis)


def take_along_axis(x: Tensor, indices: TensorLike, /, *, axis: int = -1) -> Tensor:
    """Elements at positions that are given for each row."""
    return builder(x).take_along_axis(x, indices, axis=axis)
