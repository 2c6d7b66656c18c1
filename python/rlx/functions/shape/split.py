"""Joining tensors along a new axis and splitting them: NumPy's `stack`, `split` and others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rlx.functions.shape.arrange import expand_dims, ravel, squeeze
from rlx.ir.dims.dim import Dim, exact_divide
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import as_tensors, axis_of, common, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer


@helper
def stack(b: Builder, xs: Sequence[Any], axis: int = 0) -> Tensor:
    """NumPy's `stack`: tensors of one shape joined along a new axis, which is axis `axis` of the result.

    Raises:
        ShapeError: There are none, or their shapes differ.
    """
    tensors = common(b, *as_tensors(xs))
    if any(t.shape.dims != tensors[0].shape.dims for t in tensors):
        raise ShapeError(f"tensors must have one shape, got {', '.join(str(t.shape) for t in tensors)}")
    place = axis_of(axis, tensors[0].rank + 1)
    return b.concat([expand_dims(b, t, place) for t in tensors], place)


def _cut(b: Builder, x: Tensor, axis: int, borders: Sequence[Dim]) -> list[Tensor]:
    """Return the parts between borders. The first border is 0, the last is the size of the axis."""
    return [b.narrow(x, axis, low, high - low) for low, high in pairwise(borders)]


_MOST_PARTS = 1_000_000


def _sections(value: object, name: str) -> int:
    if not is_integer(value) or not 1 <= value <= _MOST_PARTS:
        raise ShapeError(f"{name} must be an integer from 1 to {_MOST_PARTS}, got {value!r:.60}")
    return int(value)


def _at_indices(b: Builder, x: Tensor, indices: Sequence[Dim], axis: int) -> list[Tensor]:
    """Return NumPy's parts between indices, which may be negative or beyond the axis."""
    size = x.shape.dims[axis]
    borders: list[Any] = []
    low: Any
    high: Any
    for low, high in zip([0, *indices], [*indices, size], strict=True):
        if type(size) is int:
            start, stop, _ = slice(int(low), int(high)).indices(size)
            borders += [start, max(start, stop)]
        else:
            borders += [low, high]
    return [b.narrow(x, axis, low, high - low) for low, high in zip(borders[::2], borders[1::2], strict=True)]


@helper
def split(b: Builder, x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """NumPy's `split`: a list of parts along an axis.

    Args:
        b: The builder.
        x: Any tensor.
        indices_or_sections: A number of equal parts, or the positions at which to cut. (PyTorch's `split` takes the
            size of a part.)
        axis: The axis to cut.

    Raises:
        ShapeError: The axis cannot be cut into that many equal parts; `array_split` cuts it into parts that differ by
            1.
    """
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        return _at_indices(b, x, indices_or_sections, axis)
    count, size = _sections(indices_or_sections, "indices_or_sections"), x.shape.dims[axis]
    part = exact_divide(size, count)
    if part is None:
        raise ShapeError(
            f"axis {axis} of size {size} has no {count} equal parts", hint="array_split allows sizes that differ by 1"
        )
    return _cut(b, x, axis, [part * i for i in range(count + 1)])


@helper
def array_split(b: Builder, x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """NumPy's `array_split`: `split` into parts whose sizes may differ by 1, the larger ones first."""
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        return _at_indices(b, x, indices_or_sections, axis)
    count, size = _sections(indices_or_sections, "indices_or_sections"), x.shape.dims[axis]
    if type(size) is not int:
        return split(b, x, count, axis)
    return _cut(b, x, axis, [size // count * i + min(i, size % count) for i in range(count + 1)])


@helper
def chunk(b: Builder, x: TensorLike, chunks: int, axis: int = 0) -> list[Tensor]:
    """PyTorch's `chunk`: at most `chunks` parts along an axis, all of equal size except the last, which may be smaller."""
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    count, size = _sections(chunks, "chunks"), x.shape.dims[axis]
    if type(size) is not int:
        return split(b, x, count, axis)
    part = -(-size // count)
    if not part:
        return [x] * count
    return _cut(b, x, axis, [*range(0, size, part), size])


@helper
def unstack(b: Builder, x: TensorLike, axis: int = 0) -> list[Tensor]:
    """The array API's `unstack`, PyTorch's `unbind`: all slices along an axis of known size."""
    x = tensor_like(b, x, f32)
    axis = axis_of(axis, x.rank)
    size = x.shape.dims[axis]
    if not isinstance(size, int):
        raise ShapeError(f"needs an axis of known size, not {size}")
    return [squeeze(b, b.narrow(x, axis, i, 1), axis) for i in range(size)]


@helper
def concatenate(b: Builder, xs: Sequence[Any], axis: int | None = 0) -> Tensor:
    """NumPy's `concatenate`, the same as `concat`: tensors joined along an axis; for None, their flattened elements."""
    tensors = common(b, *as_tensors(xs))
    if axis is None:
        tensors, axis = [ravel(b, x) for x in tensors], 0
    return b.concat(tensors, axis)
