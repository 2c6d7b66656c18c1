"""Reductions composed of sums and maxima: NumPy's `var`, `any`, `ptp` and others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.functions.elementwise.logic import truth
from rlx.ir.dims.dim import product
from rlx.ir.dtype import bool_, f32, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import axes_of, axis_of, cast, inexact, size_of, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_sequence


def _real(b: Builder, value: object) -> Tensor:
    x = inexact(b, tensor_like(b, value, f32))
    if x.dtype.is_complex:
        raise ShapeError(f"it takes real numbers, not {x.dtype.name}")
    return x


def root(b: Builder, total: Tensor, order: float = 2) -> Tensor:
    """Return the `order`-th root of a sum of powers.

    Where the sum is 0 its derivatives are 0, as in PyTorch. They would be infinite, and NaN after multiplication with
    the derivatives of the powers, which are 0.
    """
    zero = total == 0.0
    beside = b.where(zero, 1.0, total)
    return b.where(zero, 0.0, b.sqrt(beside) if order == 2 else b.pow(beside, 1 / order))


@helper
def var(
    b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """NumPy's `var`: the mean squared deviation from the mean, computed in two passes so that no digits cancel.

    Args:
        b: The builder.
        x: Real numbers; integers are converted to f32 and i64 to f64, as in `mean`.
        axis: One axis, several, or None for all.
        ddof: Subtracted from the number of elements in the divisor. 1 gives the unbiased estimate, the default of
            PyTorch's `var`.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        A float tensor. As in NumPy, it is NaN where the divisor is 0 and inf where the divisor is negative.
    """
    x = _real(b, x)
    axes = axes_of(axis, x.rank, "axis")
    wide = statistics_input(b, x)
    centred = wide - b.mean(wide, axes, keep_dims=True)
    total = b.sum(centred * centred, axes, keep_dims=keepdims)
    count = product(x.shape.dims[a] for a in axes)
    if type(count) is int:
        return cast(b, total / float(max(count - ddof, 0)), x.dtype)
    left = b.maximum(cast(b, size_of(b, count), wide.dtype) - float(ddof), 0.0)
    return cast(b, total / left, x.dtype)


@helper
def std(
    b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """NumPy's `std`: the square root of `var`. Where it is 0 its derivative is 0, as in PyTorch."""
    x = _real(b, x)
    return cast(b, root(b, var(b, statistics_input(b, x), axis, ddof, keepdims)), x.dtype)


@helper
def any(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `any`: whether an element is nonzero; NaN counts as nonzero. The result is bool, and False without elements."""
    x = truth(b, x)
    return b.max(x, axes_of(axis, x.rank, "axis"), keep_dims=keepdims)


@helper
def all(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `all`: whether all elements are nonzero; NaN counts as nonzero. The result is bool, and True without elements."""
    x = truth(b, x)
    return b.min(x, axes_of(axis, x.rank, "axis"), keep_dims=keepdims)


@helper
def count_nonzero(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `count_nonzero`: the number of nonzero elements, in i32."""
    x = truth(b, x)
    return b.sum(cast(b, x, i32), axes_of(axis, x.rank, "axis"), keep_dims=keepdims)


@helper
def ptp(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `ptp`: the maximum minus the minimum."""
    x = tensor_like(b, x, f32)
    axes = axes_of(axis, x.rank, "axis")
    return b.max(x, axes, keep_dims=keepdims) - b.min(x, axes, keep_dims=keepdims)


@helper
def logsumexp(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """SciPy's `logsumexp`: `log(sum(exp(x)))` without overflow; -inf where all elements are -inf, or without elements.

    Its gradient is the softmax along the axes.
    """
    x = _real(b, x)
    axes = axes_of(axis, x.rank, "axis")
    wide = statistics_input(b, x)
    largest = b.stop_gradient(b.max(wide, axes, keep_dims=True))
    # NaN and infinities propagate through exp; subtracting them would give inf - inf.
    shift = b.where(b.isfinite(largest), largest, 0.0)
    total = b.log(b.sum(b.exp(wide - shift), axes, keep_dims=True)) + shift
    kept = total if keepdims else b.reshape(total, [d for i, d in enumerate(x.shape.dims) if i not in axes])
    return cast(b, kept, x.dtype)


@helper
def average(
    b: Builder,
    x: TensorLike,
    axis: int | Sequence[int] | None = None,
    weights: TensorLike | None = None,
    *,
    keepdims: bool = False,
) -> Tensor:
    """NumPy's `average`: the mean, or the sum of `weights·x` over the sum of the weights.

    Raises:
        ShapeError: The weights have neither the shape of `x` nor rank 1 and the size of the one axis.
    """
    x = inexact(b, tensor_like(b, x, f32))
    axes = axes_of(axis, x.rank, "axis")
    if weights is None:
        return b.mean(x, axes, keep_dims=keepdims)
    weights = tensor_like(b, np.asarray(weights) if is_sequence(weights) else weights, x.dtype)
    if weights.shape.dims != x.shape.dims:
        if weights.rank != 1 or len(axes) != 1 or weights.shape.dims[0] != x.shape.dims[axes[0]]:
            raise ShapeError(
                f"weights {weights.shape} have neither the shape of {x.shape} nor the size of its one axis"
            )
        weights = b.reshape(weights, [d if i == axes[0] else 1 for i, d in enumerate(x.shape.dims)])
    weights = b.expand(cast(b, weights, x.dtype), x.shape.dims)
    return b.sum(x * weights, axes, keep_dims=keepdims) / b.sum(weights, axes, keep_dims=keepdims)


@helper
def diff(b: Builder, x: TensorLike, n: int = 1, axis: int = -1) -> Tensor:
    """NumPy's `diff`: each element minus its predecessor along an axis, applied `n` times; for bools, whether they differ."""
    x = tensor_like(b, x, f32)
    place = axis_of(axis, x.rank)
    if not is_integer(n) or n < 0:
        raise ShapeError(f"n must be an integer from 0 on, got {n!r}")
    for _ in range(n):
        size = x.shape.dims[place]
        if size == 0:
            return x
        later, earlier = b.narrow(x, place, 1, size - 1), b.narrow(x, place, 0, size - 1)
        x = b.compare("ne", later, earlier) if x.dtype is bool_ else later - earlier
    return x


@helper
def cummin(b: Builder, x: TensorLike, axis: int) -> Tensor:
    """JAX's `cummin`: the running minimum along an axis, NaN from the first NaN on; floats and signed integers."""
    x = tensor_like(b, x, f32)
    if not (x.dtype.is_integer or x.dtype.is_inexact) or x.dtype.is_complex:
        raise ShapeError(f"cummin takes real numbers, not {x.dtype.name}")
    if x.dtype.is_integer:  # ~x reverses the order without overflow of -x at the lowest number
        return b.bitwise_not(b.cummax(b.bitwise_not(x), axis))
    return -b.cummax(-x, axis)


def _quantile_rows(b: Builder, x: Tensor, axis: int | Sequence[int] | None) -> tuple[Tensor, tuple[int, ...]]:
    """Return `x` with the reduced axes joined to a last axis."""
    axes = axes_of(axis, x.rank, "axis")
    others = [i for i in range(x.rank) if i not in axes]
    rows = b.transpose(x, (*others, *axes))
    return b.reshape(rows, (*(x.shape.dims[i] for i in others), product(x.shape.dims[a] for a in axes))), axes


@helper
def quantile(
    b: Builder,
    x: TensorLike,
    q: float | Sequence[float],
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """NumPy's `quantile` for a fraction `q` from 0 to 1, by linear interpolation; NaN where an element is NaN.

    The results for several fractions are along a new first axis.

    Raises:
        ShapeError: `q` is not a number from 0 to 1, or the axes are empty or of symbolic size.
    """
    x = _real(b, x)
    if is_sequence(q) or (isinstance(q, np.ndarray) and q.ndim == 1):
        return b.stack([quantile(b, x, one, axis, keepdims) for one in q], axis=0)
    if isinstance(q, bool) or not isinstance(q, (int, float, np.integer, np.floating)) or not 0 <= q <= 1:
        raise ShapeError(f"q must be a number from 0 to 1, got {q!r:.60}", hint="g.quantile(x, [0.1, 0.9])")
    rows, axes = _quantile_rows(b, statistics_input(b, x), axis)
    last, size = rows.rank - 1, rows.shape.dims[-1]
    if type(size) is not int or not size:
        raise ShapeError(f"quantile takes axes of known size that are not empty; they have {size} elements")
    place = float(q) * (size - 1)
    low = min(int(place), size - 1)
    ordered = b.sort(rows, axis=last)
    below, above = (b.narrow(ordered, last, i, 1) for i in (low, min(low + 1, size - 1)))
    share = place - low
    result = below if share == 0 else below + (above - below) * share
    result = b.where(below == above, below, result)  # the difference of equal infinities is NaN
    highest = b.narrow(ordered, last, size - 1, 1)  # NaN sorts last
    result = b.where(highest == highest, result, highest)
    dims = [1 if i in axes else d for i, d in enumerate(x.shape.dims) if keepdims or i not in axes]
    return cast(b, b.reshape(result, dims), x.dtype)


@helper
def median(b: Builder, x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's `median`: the middle element, or the mean of the two middle elements; NaN where an element is NaN."""
    return quantile(b, x, 0.5, axis, keepdims)


@helper
def norm(
    b: Builder,
    x: TensorLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The norm of the elements along axes, `(sum |x|^ord)^(1/ord)`; `ord` is a number, `inf`, `-inf` or 0.

    `inf` is the largest magnitude, `-inf` the smallest, and 0 the number of nonzero elements. The default is the
    Euclidean norm of all elements, as NumPy's `norm` of a vector and PyTorch's of any tensor. f16 and bf16 are computed
    in f32. Where the norm is 0 its derivative is 0, as in PyTorch.

    Args:
        b: The builder.
        x: Numbers.
        ord: The order of the norm; None for 2. A matrix needs `axis`: NumPy's norm of a matrix is `matrix_norm`.
        axis: One axis, several, or None for all.
        keepdims: Whether to keep the reduced axes, with size 1.
    """
    if isinstance(ord, str):
        if ord != "fro":
            raise ShapeError(f"ord is a number or 'fro', not {ord!r}", hint="norms of matrices need singular values")
        ord = None
    x = tensor_like(b, x, f32)
    if ord is not None and len(axes_of(axis, x.rank, "axis")) == 2 and (axis is not None or x.rank == 2):
        raise ShapeError(
            f"ord={ord!r} of two axes is two things: that of a matrix, or of its elements",
            hint=f"g.matrix_norm(x, {ord!r}) as in NumPy, g.norm(g.flatten(x), {ord!r}, axis=…) as torch.norm",
        )
    return elements_norm(b, x, 2 if ord is None else ord, axis, keepdims)


def elements_norm(b: Builder, x: TensorLike, ord: float, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
    """Return `norm` of the elements along any axes, for any `ord`."""
    x = inexact(b, tensor_like(b, x, f32))
    wide = _norm(b, statistics_input(b, x), ord, axis, keepdims)
    return wide if x.dtype.is_complex else cast(b, wide, x.dtype)


def _norm(b: Builder, x: Tensor, ord: float, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
    if ord == 2 and not x.dtype.is_complex:  # without |x|, which has no second derivative at 0
        return root(b, b.sum(x * x, axis, keepdims))
    size = b.abs(x)
    if ord in (np.inf, -np.inf):
        return b.reduce("max" if ord > 0 else "min", size, axis, keepdims)
    if ord == 0:
        return b.sum(cast(b, b.compare("ne", size, 0.0), size.dtype), axis, keepdims)
    if ord == 1:
        return b.sum(size, axis, keepdims)
    if ord == 2:
        return root(b, b.sum(size * size, axis, keepdims))
    if ord < 0:
        return b.pow(b.sum(b.pow(size, float(ord)), axis, keepdims), 1 / ord)
    zero = size == 0.0  # powers below 1 have an infinite derivative at 0
    powers = b.where(zero, 0.0, b.pow(b.where(zero, 1.0, size), float(ord))) if ord < 1 else b.pow(size, float(ord))
    return root(b, b.sum(powers, axis, keepdims), ord)
