"""Reductions and running reductions of the array API, and sorting."""

from __future__ import annotations

from rlx.array_api.arrays import as_tensor, builder
from rlx.ir.dtype import DType, bool_, i32, u32
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import Axes, DTypeLike, TensorLike

__all__ = [
    "all",
    "any",
    "argsort",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "sort",
    "std",
    "sum",
    "var",
]


def _summed(x: Tensor, dtype: DTypeLike | None) -> Tensor:
    """Return a tensor in the dtype of sums and products in the standard: integers become at least the default integer dtype."""
    kind: DType = as_tensor(x).dtype
    if dtype is not None:
        kind = dtype_named(dtype)
    elif kind is bool_ or (kind.is_integer and kind.bits < i32.bits):
        kind = i32 if kind.is_bool or kind.is_signed else u32
    return builder(x).cast(x, kind)


def sum(x: Tensor, /, *, axis: Axes | None = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Sum over axes; integers are added in i32 or wider."""
    return builder(x).sum(_summed(x, dtype), axis, keepdims)


def prod(x: Tensor, /, *, axis: Axes | None = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Product over axes; integers are multiplied in i32 or wider."""
    return builder(x).prod(_summed(x, dtype), axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """Mean over axes."""
    return builder(x).mean(x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes."""
    return builder(x).max(x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes."""
    return builder(x).min(x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes | None = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The mean squared deviation from the mean."""
    return builder(x).var(x, axis, ddof=correction, keepdims=keepdims)


def std(x: Tensor, /, *, axis: Axes | None = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return builder(x).std(x, axis, ddof=correction, keepdims=keepdims)


def all(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true."""
    return builder(x).all(x, axis=axis, keepdims=keepdims)


def any(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true."""
    return builder(x).any(x, axis=axis, keepdims=keepdims)


def _running(name: str, x: Tensor, axis: int | None, dtype: DTypeLike | None, include_initial: bool) -> Tensor:
    b = builder(x)
    if axis is None:
        if x.rank != 1:
            raise ValueError(f"cumulative_{name} needs an axis, unless the tensor has one only")
        axis = 0
    x = _summed(x, dtype)
    result = getattr(b, f"cum{name}")(x, axis)
    if not include_initial:
        return result
    dims = [1 if i == axis % x.rank else d for i, d in enumerate(x.shape.dims)]
    return b.concat([b.full(dims, 0 if name == "sum" else 1, dtype=x.dtype), result], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The running sums along an axis."""
    return _running("sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The running products along an axis."""
    return _running("prod", x, axis, dtype, include_initial)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: TensorLike | None = None, append: TensorLike | None = None
) -> Tensor:
    """The differences of adjacent elements along an axis."""
    b = builder(x)
    parts = [v for v in (prepend, x, append) if v is not None]
    return b.diff(b.concat(parts, axis) if len(parts) > 1 else x, n, axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in order along an axis."""
    return builder(x).sort(x, axis, descending)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort an axis."""
    return builder(x).argsort(x, axis, descending)
