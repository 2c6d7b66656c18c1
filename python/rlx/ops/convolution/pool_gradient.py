"""Derivatives of pooling, for any number of spatial axes, without scatters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.convolution.convolution_gradient import input_gradient, places
from rlx.ops.convolution.geometry import ConvGeometry, PoolGeometry
from rlx.ops.lift import cast, size_of
from rlx.ops.norm import statistics_input

# --- maxima -----------------------------------------------------------------------------------------


def collected_by_winners(b: Builder, x: Tensor, dy: Tensor, geometry: PoolGeometry) -> Tensor:
    """The cotangent of `x` in `pool` of kind `max`: the cotangent of a window goes to its first largest element.

    Args:
        b: The builder that emits the ops.
        x: `[N, C, spatial…]`.
        dy: The cotangent of the result.
        geometry: That of the `pool`.
    """
    if x.shape.num_elements == 0 or dy.shape.num_elements == 0:
        return rules.zeros(b, x.shape)
    if (tiles := _Tiles.of(x.shape.dims[2:], dy.shape, geometry)) is not None:
        cotangent = b.where(tiles.won(b, x), b.reshape(dy, tiles.of_windows), 0.0)
        return tiles.joined(b, cotangent)
    axes = _windows(b, x.shape, dy.shape, geometry)
    return _collected(b, axes, winners(b, axes, x), dy)


def taken_from_winners(b: Builder, x: Tensor, values: Tensor, result: Shape, geometry: PoolGeometry) -> Tensor:
    """Return the adjoint of `collected_by_winners`, in the shape `result`.

    It reads `values`, which has the shape of `x`, at the first largest element of each window of `x`. A window without
    such an element gives 0.
    """
    if x.shape.num_elements == 0 or result.num_elements == 0:
        return rules.zeros(b, result)
    if (tiles := _Tiles.of(x.shape.dims[2:], result, geometry)) is not None:
        chosen = b.where(tiles.won(b, x), tiles.parted(b, values), 0.0)
        return b.sum(chosen, tiles.of_taps)  # one of each window is not 0
    axes = _windows(b, x.shape, result, geometry)
    batch, counts, sizes = x.shape.dims[:2], result.dims[2:], x.shape.dims[2:]
    winner = b.reshape(winners(b, axes, x), (*batch, product(counts)))
    elements = b.gather_batched(b.reshape(values, (*batch, product(sizes))), winner, axis=2)
    if any(a.holds_some is not None for a in axes):
        elements = b.where(winner >= 0, elements, 0.0)
    return b.reshape(elements, result.dims)


class _Tiles:
    """Adjacent windows that do not overlap. An image of them is `[N, C, count, taps, count, taps, …]`.

    Attributes:
        size: The spatial sizes of the image.
        counts: The number of windows along each axis.
        kernel: The sizes of the windows.
        covered: The number of positions along each axis that are in a window.
        of_taps: The tap axes of `[N, C, count, taps, …]`.
        of_windows: The shape of an image with one number per window: the tap axes have size 1.
        of_elements: The shape of an image by windows and taps.
    """

    def __init__(self, size: Sequence[Dim], windows: Shape, kernel: Sequence[int]):
        self.size, self.counts, self.kernel = size, windows.dims[2:], kernel
        pairs = list(zip(self.counts, kernel, strict=True))
        self.covered = [count * k for count, k in pairs]
        self.of_taps = tuple(range(3, 3 + 2 * len(kernel), 2))
        self.of_windows = (*windows.dims[:2], *(part for count in self.counts for part in (count, 1)))
        self.of_elements = (*windows.dims[:2], *(part for pair in pairs for part in pair))

    @staticmethod
    def of(size: Sequence[Dim], windows: Shape, geometry: PoolGeometry) -> _Tiles | None:
        """Return the windows of a pooling without overlap and padding, else None.

        Symbolic sizes must be multiples of the kernel.
        """
        if tuple(geometry.stride) != tuple(geometry.kernel) or any(geometry.padding):
            return None
        tiles = _Tiles(size, windows, geometry.kernel)
        known = all(type(s) is int or s == c for s, c in zip(size, tiles.covered, strict=True))
        return tiles if known else None

    def parted(self, b: Builder, x: Tensor) -> Tensor:
        """Return an image by windows and taps, without the positions that are in no window."""
        for axis, (size, covered) in enumerate(zip(self.size, self.covered, strict=True), 2):
            if size != covered:
                x = b.narrow(x, axis, 0, covered)
        return b.reshape(x, self.of_elements)

    def joined(self, b: Builder, x: Tensor) -> Tensor:
        """The inverse of `parted`, with 0 at positions that are in no window."""
        rest = [(0, 0) if s == c else (0, s - c) for s, c in zip(self.size, self.covered, strict=True)]
        image = b.reshape(x, (*self.of_windows[:2], *self.covered))
        return b.pad(image, [(0, 0), (0, 0), *rest]) if any(map(any, rest)) else image

    def won(self, b: Builder, x: Tensor) -> Tensor:
        """Return whether each element is the first largest one of its window."""
        parted, taps = self.parted(b, x), prod(self.kernel)
        windows = [axis for axis in range(parted.rank) if axis not in self.of_taps]
        elements = b.reshape(
            b.transpose(parted, (*windows, *self.of_taps)), (*parted.shape.dims[:2], *self.counts, taps)
        )
        place = b.reshape(b.iota((taps,)), [part for k in self.kernel for part in (1, k)])
        return b.reshape(b.argmax(elements, axis=-1), self.of_windows) == place


@dataclass
class Taps:
    """One spatial axis of a pooling: the positions that its windows read.

    Attributes:
        count: The number of windows.
        kernel: The number of taps of a window.
        positions: `[count, kernel]`, the position that each tap of a window reads. A tap beyond the edges reads another
            position of the same window; the order of the elements in a window stays the same.
        holds_some: `[count]`, whether a window contains any position; None if all do.
    """

    count: Dim
    kernel: int
    positions: Tensor
    holds_some: Tensor | None = None


class _Windows(Taps):
    """One spatial axis of a pooling without dilation: `size` positions and `count` windows.

    Attributes:
        windows: `[size, reach]`, the windows that may contain a position, counted from 1. The values 0 and `count + 1`
            mean that there is no window.
    """

    def __init__(self, b: Builder, size: Dim, count: Dim, kernel: int, stride: int, edges: tuple[int, int]):
        before, after = edges
        self.size, self.reach = size, -(-kernel // stride)
        starts = b.iota((count, 1), axis=0) * stride - before
        last_position = size_of(b, size) - 1
        positions = b.minimum(b.maximum(starts + np.arange(kernel, dtype=np.int32), 0), last_position)
        super().__init__(count, kernel, positions)
        if before >= kernel or after >= kernel:
            self.holds_some = b.reshape((starts > -kernel) & (starts <= last_position), (count,))
        groups = (size + before + stride - 1) // stride
        last = b.reshape(b.expand(b.iota((groups, 1), axis=0), (groups, stride)), (groups * stride,))
        last = b.reshape(b.narrow(last, 0, before, size), (size, 1))
        windows = last + np.arange(1, 1 - self.reach, -1, dtype=np.int32)
        self.windows = b.minimum(b.maximum(windows, 0), size_of(b, count) + 1)


def _windows(b: Builder, x: Shape, result: Shape, geometry: PoolGeometry) -> list[_Windows]:
    """Return the spatial axes of a pooling."""
    axes = zip(x.dims[2:], result.dims[2:], geometry.kernel, geometry.stride, geometry.edges, strict=True)
    return [_Windows(b, *axis) for axis in axes]


def winners(b: Builder, axes: Sequence[Taps], x: Tensor) -> Tensor:
    """Return the image position of each window's first largest element, -1 if it has none: `[N, C, counts…]`."""
    n, channels, *sizes = x.shape.dims
    counts, taps = [a.count for a in axes], prod(a.kernel for a in axes)
    positions_read = places(b, [a.positions for a in axes], sizes)
    elements = b.gather(b.reshape(x, (n, channels, product(sizes))), positions_read, axis=2)
    window = b.reshape(b.iota((product(counts),)), counts)
    winner = b.gather(b.reshape(positions_read, (-1,)), b.argmax(elements, axis=-1) + window * taps)
    for i, a in enumerate(axes):
        if a.holds_some is not None:
            some = b.reshape(a.holds_some, (a.count, *(1,) * (len(axes) - 1 - i)))
            winner = b.where(some, winner, -1)
    return winner


def _collected(b: Builder, axes: Sequence[_Windows], winner: Tensor, dy: Tensor) -> Tensor:
    """Return the cotangent of each image position: the sum over the windows whose first largest element it is."""
    n, channels, *counts = dy.shape.dims
    framed, sizes = [count + 2 for count in counts], [a.size for a in axes]
    windows = places(b, [a.windows for a in axes], framed)

    def of_windows(values: Tensor, outside: int) -> Tensor:
        frame = b.pad(values, [(0, 0), (0, 0), *((1, 1) for _ in counts)], value=outside)
        return b.gather(b.reshape(frame, (n, channels, product(framed))), windows, axis=2)

    place = b.reshape(b.iota((product(sizes),)), (*sizes, 1))
    won = of_windows(winner, -1) == place
    return b.sum(b.where(won, of_windows(dy, 0), 0.0), -1)


# --- means ------------------------------------------------------------------------------------------


def mean_gradient(
    b: Builder, dy: Tensor, size: Sequence[Dim], geometry: PoolGeometry, count_include_pad: bool | None
) -> Tensor:
    """Return the cotangent of `x` in `pool` of kind `mean` or `sum`: its share of every window that covers it.

    Args:
        b: The builder that emits the ops.
        dy: The cotangent of the result.
        size: The spatial sizes of `x`.
        geometry: That of the `pool`.
        count_include_pad: As in `pool`; None for `sum`, where the share of each element is 1.
    """
    (n, channels, *counts), count, kernel = dy.shape.dims, len(size), geometry.kernel
    shares = statistics_input(b, dy)
    if count_include_pad is None:
        pass
    elif count_include_pad or not any(geometry.padding):
        shares = shares / prod(kernel)
    else:
        for i in range(count):
            window_sizes = _elements_in_windows(
                b, size[i], counts[i], kernel[i], geometry.stride[i], geometry.edges[i][0]
            )
            shares = shares / b.reshape(cast(b, window_sizes, shares.dtype), (counts[i], *(1,) * (count - 1 - i)))
    if (tiles := _Tiles.of(size, dy.shape, geometry)) is not None:
        repeated = b.expand(b.reshape(shares, tiles.of_windows), tiles.of_elements)
        return cast(b, tiles.joined(b, repeated), dy.dtype)
    images = b.reshape(shares, (n * channels, 1, *counts))
    kernel_of_ones = b.expand(b.constant(1, dtype=shares.dtype), (1, 1, *kernel))
    windows = ConvGeometry(geometry.stride, geometry.padding, (1,) * count, groups=1)
    result = input_gradient(b, images, kernel_of_ones, size, windows)
    return cast(b, b.reshape(result, (n, channels, *size)), dy.dtype)


def _elements_in_windows(b: Builder, size: Dim, count: Dim, kernel: int, stride: int, before: int) -> Tensor:
    """Return the number of elements of `x` in each window along an axis, as i32, at least 1."""
    starts = b.iota((count,)) * stride - before
    return b.maximum(b.minimum(starts + kernel, size_of(b, size)) - b.maximum(starts, 0), 1)
