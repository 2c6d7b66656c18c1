"""Reductions and running reductions of the array API, and sorting."""

from __future__ import annotations

from typing import Any

from rlx.array_api.arrays import as_tensor, builder
from rlx.ir.dtype import DType, bool_, i32, u32
from rlx.ir.dtype import dtype as dtype_named

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


def _summed(x: Any, dtype: Any) -> Any:
    """Return a tensor in the dtype of sums and products in the standard: integers become at least the default integer dtype."""
    kind: DType = as_tensor(x).dtype
    if dtype is not None:
        kind = dtype_named(dtype)
    elif kind is bool_ or (kind.is_integer and kind.bits < i32.bits):
        kind = i32 if kind.is_bool or kind.is_signed else u32
    return builder(x).cast(x, kind)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Sum over axes; integers are added in i32 or wider."""
    return builder(x).sum(_summed(x, dtype), axis, keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Product over axes; integers are multiplied in i32 or wider."""
    return builder(x).prod(_summed(x, dtype), axis, keepdims)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Mean over axes."""
    return builder(x).mean(x, axis, keepdims)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element over axes."""
    return builder(x).max(x, axis, keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element over axes."""
    return builder(x).min(x, axis, keepdims)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The mean squared deviation from the mean."""
    return builder(x).var(x, axis, ddof=correction, keepdims=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The square root of `var`."""
    return builder(x).std(x, axis, ddof=correction, keepdims=keepdims)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements are true."""
    return builder(x).all(x, axis=axis, keepdims=keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether an element is true."""
    return builder(x).any(x, axis=axis, keepdims=keepdims)


def _running(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
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


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running sums along an axis."""
    return _running("sum", x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running products along an axis."""
    return _running("prod", x, axis, dtype, include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of adjacent elements along an axis."""
    b = builder(x)
    parts = [v for v in (prepend, x, append) if v is not None]
    return b.diff(b.concat(parts, axis) if len(parts) > 1 else x, n, axis)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Elements in order along an axis."""
    return builder(x).sort(x, axis, descending)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The positions that sort an axis."""
    return builder(x).argsort(x, axis, descending)
