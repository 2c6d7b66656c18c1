"""Search functions: NumPy's `nonzero`, `searchsorted`, `unique`, `bincount` and others.

A shape must not depend on values. Functions whose result size depends on the number of matches therefore take `size=`,
as in JAX: matches beyond it are dropped, and missing ones are filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.functions.elementwise.logic import truth
from rlx.functions.shape.along import unravel_index
from rlx.functions.shape.arrange import flip, ravel
from rlx.functions.shape.make import linspace
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import axis_of, cast, common, constant_scalar, inexact, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import INTEGERS, is_sequence


def _known(size: int | None, call: str) -> int:
    if size is None:
        raise ShapeError("how many there are depends on values", hint=f"give the size of the result: {call}")
    return size


def _filled(b: Builder, size: Dim, value: TensorLike, places: Tensor, values: Tensor) -> Tensor:
    """Return `size` elements: `values` at the given positions, else one fill value. Positions outside are dropped."""
    start = b.expand(cast(b, tensor_like(b, value, values.dtype), values.dtype), (size,))
    return b.scatter_nd(start, b.expand_dims(places, -1), values, reduction="set")


@helper
def flatnonzero(b: Builder, x: TensorLike, size: int | None = None, fill_value: int = 0) -> Tensor:
    """NumPy's `flatnonzero`: the positions of the nonzero elements in row-major order, i32 `[size]`.

    Args:
        b: The builder.
        x: Any tensor.
        size: The number of positions in the result; required.
        fill_value: The value after the positions that were found.
    """
    size = _known(size, "flatnonzero(x, size=…, fill_value=0)")
    mask = ravel(b, truth(b, tensor_like(b, x, f32)))
    count = mask.shape.dims[0]
    rank = b.cumsum(cast(b, mask, i32), 0) - 1
    outside = b.cast(b.constant(-1), i32)
    return _filled(b, size, fill_value, b.where(mask, rank, outside), b.iota((count,), dtype=i32))


@helper
def nonzero(b: Builder, x: TensorLike, size: int | None = None, fill_value: int = 0) -> tuple[Tensor, ...]:
    """NumPy's `nonzero` with JAX's `size`: the positions of the nonzero elements along each axis, i32 `[size]`.

    Args:
        b: The builder.
        x: Any tensor of rank 1 or more.
        size: The number of positions in the results; required.
        fill_value: The value after the positions that were found.
    """
    x = tensor_like(b, x, f32)
    size = _known(size, "nonzero(x, size=…, fill_value=0)")
    if not x.rank:
        raise ShapeError("expected a tensor of rank 1 or more", hint="use ravel(x)")
    flat = flatnonzero(b, x, size, -1)
    parts = unravel_index(b, b.maximum(flat, 0), x.shape.dims)
    return tuple(b.where(flat >= 0, part, fill_value) for part in parts)


@helper
def argwhere(b: Builder, x: TensorLike, size: int | None = None, fill_value: int = 0) -> Tensor:
    """NumPy's `argwhere` with JAX's `size`: the positions of the nonzero elements, i32 `[size, rank of x]`."""
    return b.stack(nonzero(b, x, _known(size, "argwhere(x, size=…)"), fill_value), axis=-1)


def _before(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Return whether x precedes y in a sorted row, where NaN is last."""
    if not x.dtype.is_inexact:
        return x < y
    return (x < y) | (b.isnan(y) & b.bitwise_not(b.isnan(x)))


@helper
def searchsorted(b: Builder, x: TensorLike, v: TensorLike, side: str = "left") -> Tensor:
    """NumPy's `searchsorted`: the i32 positions at which to insert elements into a sorted row to keep it sorted.

    Args:
        b: The builder.
        x: The row `[N]`, ascending; NaN comes last.
        v: The elements, of any shape, which is also the shape of the result.
        side: Among equal elements, `"left"` is the first position, `"right"` the one after the last.
    """
    x, v = common(b, x, v)
    if x.rank != 1:
        raise ShapeError(
            f"expected a row of rank 1 to search in, got {x.shape}",
            hint="each row is a call: g.searchsorted(x[i], v[i])",
        )
    if side not in ("left", "right"):
        raise ShapeError(f"side is 'left' or 'right', not {side!r}")
    count = x.shape.dims[0]
    if type(count) is not int:  # the number of binary search steps is unknown: compare with all elements
        row, each = b.reshape(x, (*(1,) * v.rank, count)), b.expand_dims(v, -1)
        smaller = _before(b, row, each) if side == "left" else b.bitwise_not(_before(b, each, row))
        return b.sum(cast(b, smaller, i32), -1)
    low = b.expand(constant_scalar(b, 0, i32), v.shape.dims)
    high = low + count
    for _ in range(count.bit_length()):
        middle = b.shift_right_logical(low + high, 1)
        found = b.gather(x, middle)
        right = _before(b, found, v) if side == "left" else b.bitwise_not(_before(b, v, found))
        right = right & (low < high)
        low, high = b.where(right, middle + 1, low), b.where(right, high, middle)
    return low


@helper
def digitize(b: Builder, x: TensorLike, bins: TensorLike, right: bool = False) -> Tensor:
    """NumPy's `digitize`: the i32 index of the interval that contains each element; `bins` ascend or descend."""
    x, bins = common(b, x, bins)
    ascending = searchsorted(b, bins, x, "left" if right else "right")
    count = bins.shape.dims[0]
    if count == 0:
        return ascending
    backwards = searchsorted(b, flip(b, bins), x, "left" if right else "right")
    falls = b.narrow(bins, 0, 0, 1) > b.narrow(bins, 0, count - 1, 1)
    return b.where(b.reshape(falls, ()), b.cast(b.dim_size(count), i32) - backwards, ascending)


@helper
def bincount(
    b: Builder, x: TensorLike, weights: TensorLike | None = None, minlength: int = 0, *, length: int | None = None
) -> Tensor:
    """NumPy's `bincount` with JAX's `length`: the count of each integer from 0 on, or the sum of its weights.

    Args:
        b: The builder.
        x: Integers of rank 1. Those below 0 or not below `length` are not counted.
        weights: The amount that each integer adds; 1 by default.
        minlength: NumPy's name for `length`. Here it is the exact length of the result.
        length: The length of the result; required if `minlength` is not given.
    """
    x = tensor_like(b, x, i32)
    if not x.dtype.is_integer or x.rank != 1:
        raise ShapeError(f"expected integers of rank 1, got {x.shape}")
    length = _known(length or minlength or None, "bincount(x, length=…)")
    if weights is None:
        weights = b.expand(constant_scalar(b, 1, i32), x.shape.dims)
    weights = b.expand(tensor_like(b, weights, f32), x.shape.dims)
    return b.scatter_add(weights, x, length)


@helper
def unique(
    b: Builder,
    x: TensorLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    size: int | None = None,
    fill_value: TensorLike | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """NumPy's `unique` with JAX's `size`: the distinct elements of a tensor, ascending, `[size]`; NaNs count as equal.

    Args:
        b: The builder.
        x: Any tensor of real numbers.
        return_index: Whether to return the i32 position of each first occurrence, in row-major order.
        return_inverse: Whether to return the i32 position of each element of `x` in the result, in the shape of `x`.
        return_counts: Whether to return the i32 count of each element; 0 after the last.
        size: The number of elements in the result; required.
        fill_value: The value after the elements that were found; by default the smallest element.

    Returns:
        The elements, or a tuple of the elements and the requested arrays in that order.
    """
    x = tensor_like(b, x, f32)
    size = _known(size, "unique(x, size=…, fill_value=…)")
    flat = ravel(b, x)
    count = flat.shape.dims[0]
    order = b.argsort(flat, 0)
    ordered = b.gather(flat, order)
    later, earlier = b.narrow(ordered, 0, 1, count - 1), b.narrow(ordered, 0, 0, count - 1)
    differs = b.compare("ne", later, earlier)
    if x.dtype.is_inexact:
        differs = differs & b.bitwise_not(b.isnan(later) & b.isnan(earlier))
    first = b.concat([b.expand(b.constant(True), (1,)), differs], 0)
    rank = b.cumsum(cast(b, first, i32), 0) - 1
    places = b.where(first, rank, -1)
    least = b.reshape(b.narrow(ordered, 0, 0, 1), ()) if fill_value is None else fill_value
    results = [_filled(b, size, least, places, ordered)]
    if return_index:
        results.append(_filled(b, size, b.reshape(b.narrow(order, 0, 0, 1), ()), places, order))
    if return_inverse:
        results.append(b.reshape(_filled(b, count, 0, order, rank), x.shape.dims))
    if return_counts:
        results.append(b.scatter_add(b.expand(constant_scalar(b, 1, i32), (count,)), rank, size))
    return results[0] if len(results) == 1 else tuple(results)


@helper
def isin(b: Builder, x: TensorLike, test: TensorLike, *, invert: bool = False) -> Tensor:
    """NumPy's `isin`: for each element of `x`, whether it is in `test`."""
    x, test = common(b, x, test)
    found = b.compare("eq", b.expand_dims(x, -1), ravel(b, test))
    result = b.max(found, -1)
    return b.bitwise_not(result) if invert else result


@helper
def histogram(
    b: Builder,
    x: TensorLike,
    bins: TensorLike = 10,
    range: Sequence[float] | None = None,
    density: bool = False,
    weights: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """NumPy's `histogram`: the number of elements in each interval, and the edges of the intervals.

    Args:
        b: The builder.
        x: Real numbers.
        bins: The number of intervals of equal width; or their edges, ascending.
        range: The start of the first interval and the end of the last, inclusive; by default the extreme elements.
        weights: The amount that each element adds.
        density: Whether to divide by the total and the widths.

    Returns:
        Counts `[bins]`, i32, or floats for weights and density; and edges `[bins + 1]`.
    """
    x = ravel(b, inexact(b, tensor_like(b, x, f32)))
    count: Any = bins
    if isinstance(bins, INTEGERS):
        low: Any
        high: Any
        low, high = range if range is not None else (b.min(x), b.max(x))
        if range is None:  # all elements are equal: an interval around them
            low, high = b.where(low == high, low - 0.5, low), b.where(low == high, high + 0.5, high)
        share = linspace(b, 0.0, 1.0, int(count) + 1, dtype=x.dtype)
        edges = low + (high - low) * share
        # Rounding must not put the last edge below the largest element.
        edges = b.where(share == 1, high, edges)
    else:
        edges = tensor_like(b, np.asarray(bins) if is_sequence(bins) else bins, x.dtype)
        edges = cast(b, edges, x.dtype)
    count = edges.shape.dims[0] - 1
    place = searchsorted(b, edges, x, "right") - 1
    last = b.narrow(edges, 0, count, 1)
    place = b.where(x == last, b.cast(b.dim_size(count), i32) - 1, place)
    if weights is None:
        kind = x.dtype if density else i32
        amounts = b.expand(constant_scalar(b, 1, kind), x.shape.dims)
    else:
        amounts = ravel(b, tensor_like(b, weights, f32))
    counts = b.scatter_add(amounts, b.where(b.isnan(x), -1, place), count)
    if density:
        counts = counts / (b.diff(edges) * b.sum(counts))
    return counts, edges


@helper
def interp(
    b: Builder,
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
) -> Tensor:
    """NumPy's `interp`: the values at `x` of the piecewise linear function through the points `(xp, fp)`.

    Args:
        b: The builder.
        x: The positions to evaluate, of any shape.
        xp: The positions of the points `[N]`, ascending, with N at least 1.
        fp: The values of the points `[N]`.
        left: The value before the first point; by default that of the first point.
        right: The value after the last point; by default that of the last point.
    """
    x, xp, fp = (inexact(b, v) for v in common(b, x, xp, fp))
    count = xp.shape.dims[0]
    place = b.clip(searchsorted(b, xp, x, "right"), 1, b.maximum(b.dim_size(count) - 1, 1))
    x0, x1, f0, f1 = (b.gather(v, i) for v in (xp, fp) for i in (place - 1, place))
    width = x1 - x0
    share = b.where(width == 0, 0.0, (x - x0) / b.where(width == 0, 1.0, width))
    rise = f1 - f0
    flat = (share == 0) & b.bitwise_not(b.isfinite(rise))  # infinity times 0
    result = b.where(flat, f0, f0 + b.where(flat, 0.0, rise) * share)
    first, last = b.gather(fp, 0), b.gather(fp, b.dim_size(count) - 1)
    result = b.where(x < b.gather(xp, 0), first if left is None else left, result)
    return b.where(x > b.gather(xp, b.dim_size(count) - 1), last if right is None else right, result)


@helper
def logcumsumexp(b: Builder, x: TensorLike, axis: int = -1) -> Tensor:
    """PyTorch's `logcumsumexp`, JAX's `cumlogsumexp`: the logarithm of the running sum of exponentials, without overflow.

    Sums of 1, 2, 4 … elements are joined by `logaddexp`, so the number of steps is the number of bits of the size.
    """
    x = inexact(b, tensor_like(b, x, f32))
    if x.dtype.is_complex:
        raise ShapeError(f"it takes real numbers, not {x.dtype.name}")
    place, kind = axis_of(axis, x.rank), x.dtype
    x = statistics_input(b, x)
    count = x.shape.dims[place]
    if type(count) is not int:
        rows = b.moveaxis(x, place, 0)
        nothing = b.expand(constant_scalar(b, -np.inf, x.dtype), rows.shape.dims[1:])

        def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            joined = b.logaddexp(carry, row)
            return joined, joined

        return cast(b, b.moveaxis(b.scan(step, nothing, rows)[1], 0, place), kind)
    distance = 1
    while distance < count:
        padding = [(distance, 0) if i == place else (0, 0) for i in np.arange(x.rank)]
        shifted = b.narrow(b.pad(x, padding, value=-np.inf), place, 0, count)
        x = b.logaddexp(x, shifted)
        distance *= 2
    return cast(b, x, kind)
