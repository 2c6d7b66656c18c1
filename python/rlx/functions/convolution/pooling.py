"""Pooling functions with their usual names: dilated, with `ceil_mode`, with indices, adaptive. They use `pool` and gathers."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, dim, exact_divide, product
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Padding, ShapeLike, TensorLike, Window
from rlx.ir.shape import Shape
from rlx.ops.convolution.convolution import out_size, pads_of, per_axis
from rlx.ops.convolution.pool_gradient import Taps, winners
from rlx.ops.lift import cast, inexact, size_of, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_tuple


class _PoolWindow:
    """The window of a pooling, with its sizes for each spatial axis."""

    def __init__(
        self, x: Shape, kernel: Window, stride: Window | None, padding: Padding, dilation: Window, ceil_mode: bool
    ):
        count = x.rank - 2
        if count not in (1, 2, 3):
            raise ShapeError(f"x must be [N, C, spatial…] of rank 3, 4 or 5, got {x}")
        self.kernel = _positive(kernel, count, "kernel")
        self.stride = self.kernel if stride is None else _positive(stride, count, "stride")
        self.dilation = _positive(dilation, count, "dilation")
        self.sizes = x.dims[2:]
        self.pads = pads_of(padding, x, Shape((1, 1, *self.kernel), x.dtype), self.stride, self.dilation)
        if len(self.pads) != 2 * count or any(p < 0 for p in self.pads):
            raise ShapeError(f"padding must be numbers from 0 on or (before, after) pairs, got {padding!r}")
        self.room = [self._room(i) if ceil_mode else 0 for i in range(count)]  # room for a last, partial window

    def _room(self, axis: int) -> int:
        """Return the extra padding that rounds the number of windows up. No window starts in this padding."""
        size, s = self.sizes[axis], self.stride[axis]
        before, after = self.pads[2 * axis : 2 * axis + 2]
        span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        if type(size) is not int:
            if after + s > span:
                raise ShapeError(f"with ceil_mode and a stride of {s}, spatial axis {axis} must have a known size")
            return s - 1
        windows = -((span - size - before - after) // s) + 1
        if (windows - 1) * s >= size + before:
            windows -= 1
        return max((windows - 1) * s + span - size - before - after, 0)

    @property
    def padding(self) -> tuple[int, ...]:
        """The padding before and after each axis, with the room for a last window."""
        return tuple(p + (self.room[i // 2] if i % 2 else 0) for i, p in enumerate(self.pads))

    def counts(self) -> list[Dim]:
        """The number of windows along each axis."""
        window = zip(self.sizes, self.kernel, self.stride, self.edges(), self.dilation, strict=True)
        return [out_size(size, k, s, *edge, d) for size, k, s, edge, d in window]

    def edges(self) -> list[tuple[int, int]]:
        """The padding of each axis, as a (before, after) pair."""
        return list(zip(self.padding[::2], self.padding[1::2], strict=True))

    def arguments(self) -> dict[str, Any]:
        """The arguments of `pool`."""
        return {"kernel": self.kernel, "stride": self.stride, "padding": self.edges()}

    def taps(self, b: Builder) -> list[Taps]:
        """Return the positions that the windows read. A tap in the padding reads the nearest tap inside the image."""
        result: list[Taps] = []
        window = zip(self.sizes, self.counts(), self.kernel, self.stride, self.padding[::2], self.dilation, strict=True)
        for size, count, k, s, before, d in window:
            if type(size) is int and type(count) is int and count < 0:
                raise ShapeError(f"a window of {k} with dilation {d} does not fit an axis of {size} with its padding")
            starts = b.iota((count, 1), axis=0) * s - before
            first = b.maximum((d - 1 - starts) // d, 0)
            last = (size_of(b, size) - 1 - starts) // d
            tap = b.minimum(b.maximum(b.constant(np.arange(k, dtype=np.int32)), first), last)
            some = b.reshape((last >= first) & (first < k), (count,))
            result.append(Taps(count, k, starts + tap * d, some))
        return result


def _positive(value: Window, count: int, name: str) -> tuple[int, ...]:
    values = per_axis(value, count, name)
    if any(not is_integer(v) or v < 1 for v in values):
        raise ShapeError(f"{name} must be integers from 1 on, got {value!r:.60}")
    return tuple(int(v) for v in values)


def _largest(b: Builder, x: Tensor, axes: Sequence[Taps]) -> tuple[Tensor, Tensor]:
    """Return the first largest elements of windows, and their positions in the flattened spatial axes."""
    place = winners(b, axes, x)
    (n, channels, *sizes), counts = x.shape.dims, place.shape.dims[2:]
    flat = b.reshape(place, (n, channels, product(counts)))
    values = b.gather_batched(b.reshape(x, (n, channels, product(sizes))), flat, axis=2)
    lowest = np.iinfo(x.dtype.numpy).min if x.dtype.is_integer else -np.inf
    if any(a.holds_some is not None for a in axes):
        values = b.where(flat >= 0, values, b.constant(lowest, dtype=x.dtype))
    return b.reshape(values, (n, channels, *counts)), place


@helper
def max_pool(
    b: Builder,
    x: TensorLike,
    kernel: Window,
    stride: Window | None = None,
    padding: Padding = 0,
    dilation: Window = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window: `pool` of kind `max`, with the other options of PyTorch's `max_pool2d`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]` with one to three spatial axes; floats and integers.
        kernel: The size of the windows: one integer, or one for each spatial axis.
        stride: The step from one window to the next; by default the size of the windows.
        padding: An integer, one for each spatial axis, (before, after) pairs, `"same"` or `"valid"`. Padding is never
            the maximum.
        dilation: The distance between the elements of a window.
        ceil_mode: Whether to round the number of windows up. The last one may reach beyond the edge, but starts before
            it.
        return_indices: Whether to return positions too.

    Returns:
        The maxima. With `return_indices`, a pair of the maxima and their i32 positions in the flattened spatial axes,
        as in PyTorch. Among equal elements, and among NaN, the first counts. The position is -1 for a window of padding
        alone.

    Raises:
        ShapeError: A window does not fit, or `ceil_mode` needs a static size where the size is symbolic.
    """
    x = tensor_like(b, x, f32)
    window = _PoolWindow(x.shape, kernel, stride, padding, dilation, ceil_mode)
    if window.dilation == (1,) * len(window.kernel):
        values = b.pool(x, kind="max", **window.arguments())
        return (values, winners(b, window.taps(b), x)) if return_indices else values
    values, place = _largest(b, x, window.taps(b))
    return (values, place) if return_indices else values


@helper
def avg_pool(
    b: Builder,
    x: TensorLike,
    kernel: Window,
    stride: Window | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: Window = 1,
) -> Tensor:
    """The mean of each window: `pool` of kind `mean`, with the other options of PyTorch's `avg_pool2d`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]` with one to three spatial axes; the means of integers are f32, of i64 f64.
        kernel: The size of the windows: one integer, or one for each spatial axis.
        stride: The step from one window to the next; by default the size of the windows.
        padding: An integer, one for each spatial axis, (before, after) pairs, `"same"` or `"valid"`.
        ceil_mode: As in `max_pool`. Positions beyond the padding never count.
        count_include_pad: Whether padding counts as zeros in the mean; otherwise it does not count at all.
        divisor_override: The divisor of the sums, in place of the number of elements.
        dilation: The distance between the elements of a window.

    Raises:
        ShapeError: A window does not fit, or `ceil_mode` needs a static size where the size is symbolic.
    """
    x = inexact(b, tensor_like(b, x, f32))
    window = _PoolWindow(x.shape, kernel, stride, padding, dilation, ceil_mode)
    if divisor_override is not None:
        if isinstance(divisor_override, bool) or divisor_override == 0:
            raise ShapeError(f"divisor_override must be a number that is not 0, got {divisor_override!r}")
        return cast(b, _sums(b, statistics_input(b, x), window) / float(divisor_override), x.dtype)
    if count_include_pad and any(window.room):
        edges = list(zip(window.pads[::2], window.pads[1::2], strict=True))
        x = b.pad(x, [(0, 0), (0, 0), *edges])
        room = [(0, r) for r in window.room]
        window, count_include_pad = _PoolWindow(x.shape, kernel, stride, room, dilation, False), False
    if window.dilation == (1,) * len(window.kernel):
        return b.pool(x, kind="mean", count_include_pad=count_include_pad, **window.arguments())
    wide = statistics_input(b, x)
    if count_include_pad:
        return cast(b, _sums(b, wide, window) / float(prod(window.kernel)), x.dtype)
    counted = b.expand(b.constant(1, dtype=wide.dtype), (1, 1, *window.sizes))
    return cast(b, _sums(b, wide, window) / _sums(b, counted, window), x.dtype)


def _sums(b: Builder, x: Tensor, window: _PoolWindow) -> Tensor:
    """Return the sum of each window. Windows with dilation use a convolution with ones."""
    if window.dilation == (1,) * len(window.kernel):
        return b.pool(x, kind="sum", **window.arguments())
    n, channels, *sizes = x.shape.dims
    ones = b.expand(b.constant(1, dtype=x.dtype), (1, 1, *window.kernel))
    images = b.reshape(x, (n * channels, 1, *sizes))
    summed = b.conv(images, ones, stride=window.stride, padding=window.edges(), dilation=window.dilation)
    return b.reshape(summed, (n, channels, *summed.shape.dims[2:]))


@helper
def mean_pool(
    b: Builder,
    x: TensorLike,
    kernel: Window,
    stride: Window | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """`pool` of kind `mean`; `avg_pool` has PyTorch's other arguments.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`.
        kernel: The size of the windows: one integer, or one for each spatial axis.
        stride: The step from one window to the next; by default the size of the windows.
        padding: An integer, one for each spatial axis, (before, after) pairs, `"same"` or `"valid"`.
        count_include_pad: Whether padding counts as zeros in the mean; otherwise it does not count at all.
    """
    return avg_pool(b, x, kernel, stride, padding, count_include_pad=count_include_pad)


@helper
def sum_pool(
    b: Builder,
    x: TensorLike,
    kernel: Window,
    stride: Window | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    dilation: Window = 1,
) -> Tensor:
    """The sum of each window: `pool` of kind `sum`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`; integers wrap.
        kernel: The size of the windows: one integer, or one for each spatial axis.
        stride: The step from one window to the next; by default the size of the windows.
        padding: An integer, one for each spatial axis, (before, after) pairs, `"same"` or `"valid"`.
        ceil_mode: As in `max_pool`.
        dilation: The distance between the elements of a window.
    """
    x = tensor_like(b, x, f32)
    return _sums(b, x, _PoolWindow(x.shape, kernel, stride, padding, dilation, ceil_mode))


@helper
def lp_pool(
    b: Builder,
    x: TensorLike,
    norm_type: float,
    kernel: Window,
    stride: Window | None = None,
    ceil_mode: bool = False,
    *,
    padding: Padding = 0,
) -> Tensor:
    """PyTorch's `lp_pool2d`: `(sum x^p)^(1/p)` of each window, with `p = norm_type`, for `[N, C, spatial…]` floats."""
    x = inexact(b, tensor_like(b, x, f32))
    if isinstance(norm_type, bool) or not isinstance(norm_type, (int, float)) or norm_type <= 0:
        raise ShapeError(f"norm_type must be a positive number, got {norm_type!r:.60}")
    powers = sum_pool(b, b.pow(statistics_input(b, x), float(norm_type)), kernel, stride, padding, ceil_mode)
    return cast(b, b.pow(powers, 1 / norm_type), x.dtype)


def _targets(x: Tensor, size: ShapeLike) -> list[Dim]:
    """Return the result sizes of an adaptive pooling; None keeps the size of an axis."""
    if x.rank not in (3, 4, 5):
        raise ShapeError(f"x must be [N, C, spatial…] of rank 3, 4 or 5, got {x.shape}")
    given = size if isinstance(size, (list, tuple, Shape)) else (size,) * (x.rank - 2)
    if len(given) != x.rank - 2:
        raise ShapeError(f"size needs {x.rank - 2} entries for {x.shape}, got {list(given)}")
    result = [old if new is None else dim(new) for old, new in zip(x.shape.dims[2:], given, strict=True)]
    for i, (old, new) in enumerate(zip(x.shape.dims[2:], result, strict=True)):
        if old == 0 or (type(new) is int and new < 1):
            raise ShapeError(f"spatial axis {i} of {x.shape} cannot be pooled to size {new}")
    return result


def _adaptive(old: Dim, new: Dim) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions that each window reads, `[new, kernel]`, and a mask of those in the window.

    The other positions repeat the last position of the window.
    """
    if type(old) is not int or type(new) is not int:
        raise ShapeError(f"windows from {old} to {new} elements have no known sizes", hint="give the axis a known size")
    starts: np.ndarray = np.arange(new) * old // new
    ends: np.ndarray = -(-np.arange(1, new + 1) * old // new)
    steps: np.ndarray = starts[:, None] + np.arange(int((ends - starts).max()))
    return np.minimum(steps, ends[:, None] - 1).astype(np.int32), steps < ends[:, None]


@helper
def adaptive_avg_pool(b: Builder, x: TensorLike, size: ShapeLike) -> Tensor:
    """PyTorch's `adaptive_avg_pool2d`: means over windows from `floor(i·in/out)` up to `ceil((i + 1)·in/out)`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]` with one to three spatial axes; the means of integers are f32, of i64 f64.
        size: The spatial sizes of the result: one, or one for each axis; None keeps the size of `x`.

    Raises:
        ShapeError: Sizes are symbolic. Allowed are a size of 1 and a size that divides that of `x`.
    """
    x = inexact(b, tensor_like(b, x, f32))
    result, sizes = statistics_input(b, x), _targets(x, size)
    if all(new == 1 for new in sizes):
        return cast(b, b.mean(result, range(2, x.rank), keep_dims=True), x.dtype)
    for axis, new in enumerate(sizes, 2):
        old, dims = x.shape.dims[axis], result.shape.dims
        if old == new:
            continue
        if new == 1:
            result = b.mean(result, axis, keep_dims=True)
        elif type(times := exact_divide(old, new)) is int:
            result = b.mean(b.reshape(result, (*dims[:axis], new, times, *dims[axis + 1 :])), axis + 1)
        else:
            places, is_own = _adaptive(old, new)
            tail = (1,) * (result.rank - 1 - axis)
            elements = b.gather(result, b.constant(places), axis)
            own = b.where(b.constant(is_own.reshape(*is_own.shape, *tail)), elements, 0.0)
            counts = is_own.sum(1).astype(result.dtype.numpy).reshape(-1, *tail)
            result = b.sum(own, axis + 1) / b.constant(counts)
    return cast(b, result, x.dtype)


@helper
def adaptive_max_pool(b: Builder, x: TensorLike, size: ShapeLike, return_indices: bool = False) -> Any:
    """PyTorch's `adaptive_max_pool2d`: maxima over windows from `floor(i·in/out)` up to `ceil((i + 1)·in/out)`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]` with one to three spatial axes; floats and integers.
        size: The spatial sizes of the result: one, or one for each axis; None keeps the size of `x`.
        return_indices: Whether to return the positions too, as in `max_pool`.

    Raises:
        ShapeError: Sizes are symbolic. Allowed are a size of 1 and a size that divides that of `x`.
    """
    x = tensor_like(b, x, f32)
    sizes = _targets(x, size)
    if all(new == 1 for new in sizes):
        if not return_indices:
            return b.max(x, range(2, x.rank), keep_dims=True)
        flat = b.reshape(x, (*x.shape.dims[:2], product(x.shape.dims[2:])))
        place = b.reshape(b.argmax(flat, axis=2), (*x.shape.dims[:2], *sizes))
        return b.max(x, range(2, x.rank), keep_dims=True), place
    times: list[Any] = [exact_divide(old, new) for old, new in zip(x.shape.dims[2:], sizes, strict=True)]
    if all(type(t) is int for t in times):
        return max_pool(b, x, times, return_indices=return_indices)
    axes: list[Taps] = []
    for old, new in zip(x.shape.dims[2:], sizes, strict=True):
        places, _ = _adaptive(old, new)
        axes.append(Taps(new, places.shape[1], b.constant(places)))
    values, place = _largest(b, x, axes)
    return (values, place) if return_indices else values


_AXES = ("one spatial axis", "two spatial axes", "three spatial axes")


def with_dimensions(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return an image function restricted to `count` spatial axes. Its name ends with `1d`, `2d` or `3d`.

    As in PyTorch, it also accepts a single image `[C, spatial…]`.
    """
    name = f"{function.__name__}{count}d"

    @wraps(function)
    def named(b: Builder, x: TensorLike, *args: Any, **options: Any) -> Any:
        x = tensor_like(b, x, f32)
        if x.rank not in (count + 1, count + 2):
            raise ShapeError(
                f"x must be [N, C, spatial…] of rank {count + 2}, or one image [C, spatial…], got {x.shape}"
            )
        if x.rank == count + 2:
            return function(b, x, *args, **options)
        result = function(b, b.reshape(x, (1, *x.shape.dims)), *args, **options)
        single = [b.reshape(t, t.shape.dims[1:]) for t in (result if is_tuple(result) else (result,))]
        return tuple(single) if is_tuple(result) else single[0]

    named.__name__ = name
    first, _, rest = (function.__doc__ or "").partition("\n")
    named.__doc__ = f"`{function.__name__}` of {_AXES[count - 1]}. {first}\n{rest}"
    return named


for _function in (max_pool, avg_pool, lp_pool, adaptive_avg_pool, adaptive_max_pool):
    for _count in (1, 2, 3):
        helper(with_dimensions(_function, _count))
