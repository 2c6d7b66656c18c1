"""Reductions that ignore NaN: NumPy's `nansum`, `nanmean` and others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import cast, inexact, tensor_like
from rlx.ops.surface import helper


def _without(b: Builder, x: TensorLike, value: float) -> Tensor:
    x = tensor_like(b, x, f32)
    return b.where(b.isnan(x), value, x) if x.dtype.is_inexact else x  # integers stay unchanged and exact


@helper
def nansum(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `nansum`: the sum of the elements that are not NaN."""
    return b.sum(_without(b, x, 0.0), axis, keepdims)


@helper
def nanprod(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `nanprod`: the product of the elements that are not NaN."""
    return b.prod(_without(b, x, 1.0), axis, keepdims)


@helper
def nanmean(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `nanmean`: the mean of the elements that are not NaN; NaN if there are none."""
    x = inexact(b, tensor_like(b, x, f32))
    wide = cast(b, x, x.dtype.compute)  # f16 cannot represent sums and counts above 65504
    count = b.sum(cast(b, b.bitwise_not(b.isnan(x)), wide.dtype), axis, keepdims)
    return cast(b, nansum(b, wide, axis, keepdims) / count, x.dtype)


def _extreme(
    b: Builder, kind: str, x: TensorLike, axis: int | Sequence[int] | None, keepdims: bool, least: float
) -> Tensor:
    x = tensor_like(b, x, f32)
    found = b.reduce(kind, _without(b, x, least), axis, keepdims)
    if not x.dtype.is_inexact:
        return found
    return b.where(b.all(b.isnan(x), axis=axis, keepdims=keepdims), np.nan, found)


@helper
def nanmax(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `nanmax`: the largest element that is not NaN; NaN where all are."""
    return _extreme(b, "max", x, axis, keepdims, -np.inf)


@helper
def nanmin(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `nanmin`: the smallest element that is not NaN; NaN where all are."""
    return _extreme(b, "min", x, axis, keepdims, np.inf)
