"""Search and set functions of the array API."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.array_api.arrays import builder
from rlx.array_api.creation import asarray
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.eager import EagerTensor
from rlx.ir.graph.typing import Axes, TensorLike
from rlx.support.caller import caller_place
from rlx.support.errors import Error

__all__ = [
    "argmax",
    "argmin",
    "count_nonzero",
    "isin",
    "nonzero",
    "searchsorted",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]


def _flat(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    b = builder(x)
    if axis is not None:
        return getattr(b, name)(x, axis, keep_dims=keepdims)
    result = getattr(b, name)(b.ravel(x), 0)
    return b.reshape(result, (1,) * x.rank) if keepdims else result


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the largest element, i32."""
    return _flat("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the smallest element, i32."""
    return _flat("argmin", x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements, i32."""
    return builder(x).count_nonzero(x, axis=axis, keepdims=keepdims)


def searchsorted(x1: TensorLike, x2: TensorLike, /, *, side: str = "left", sorter: TensorLike | None = None) -> Tensor:
    """The positions at which elements of `x2` belong in the sorted row `x1`, i32."""
    b = builder(x1, x2)
    return b.searchsorted(x1 if sorter is None else b.gather(x1, sorter), x2, side=side)


def where(condition: TensorLike, x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Elements of `x1` where a condition is true, else those of `x2`."""
    b = builder(condition, x1, x2)
    return b.where(condition, x1, x2)


def isin(x1: TensorLike, x2: TensorLike, /, *, invert: bool = False) -> Tensor:
    """Whether elements of `x1` are among those of `x2`."""
    b = builder(x1, x2)
    if not isinstance(x1, Tensor):
        x1 = b.cast(asarray(x1), asarray(x2).dtype)
    return b.isin(x1, x2 if isinstance(x2, Tensor) else b.cast(asarray(x2), x1.dtype), invert=invert)


def _value(x: Tensor, name: str) -> np.ndarray:
    """Return the value of a tensor that determines the size of a result."""
    if isinstance(x, EagerTensor):
        return x.numpy()
    own = "nonzero" if name == "nonzero" else "unique"
    raise Error(
        f"{name}: how many there are depends on values, which a tensor has not while it is traced",
        location=caller_place(),
        hint=f"give the size of the result: rlx.ops.{own}(x, size=…)",
    )


def _of(x: Tensor, array: np.ndarray) -> Tensor:
    return x.builder.constant(np.array(array))


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of the nonzero elements, for tensors with values only."""
    if not x.rank:
        raise ValueError("nonzero needs a tensor of rank 1 or more")
    return tuple(_of(x, part.astype(np.int32)) for part in np.nonzero(_value(x, "nonzero")))


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: TensorLike
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements, their first positions, the index of each element among them, and their counts."""
    array = _value(x, "unique_all")
    values, first, inverse, counts = np.unique(array, True, True, True, equal_nan=False)
    parts = (first, inverse.reshape(array.shape), counts)
    return UniqueAll(_of(x, values), *(_of(x, p.astype(np.int32)) for p in parts))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements and their counts."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, and the index of each element among them."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements."""
    return unique_all(x).values
