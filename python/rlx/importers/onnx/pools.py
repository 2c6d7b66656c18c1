"""Pooling ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.importers.onnx.network import WindowAttributes, padded, spatial_axes
from rlx.importers.onnx.rules import Static, element_count, imports, integers, static_dims
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


@dataclass(frozen=True)
class OnnxPoolWindow:
    """The windows of a pool along each spatial axis, of known sizes.

    Attributes:
        kernel: The number of elements of a window.
        strides: The distance between windows.
        padding: The number of places before and after the elements.
        dilations: The distance between the elements of a window.
        counts: The number of windows.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    padding: Sequence[tuple[int, int]]
    dilations: Sequence[int]
    counts: Sequence[int]

    def windows(self, g: Graph, x: Tensor, fill: float) -> Tensor:
        """The windows: [N, C, places…, kernel…], with `fill` wherever a window leaves the tensor."""
        sizes = static_dims(x, *spatial_axes(x))
        # Positions outside of the image refer to one more element at the end of each axis.
        x = g.pad(x, [(0, 0), (0, 0), *((0, 1) for _ in self.kernel)], value=fill)
        for i, (k, s, (low, _), d) in enumerate(
            zip(self.kernel, self.strides, self.padding, self.dilations, strict=True)
        ):
            element_count(self.counts[i] * k, "positions of windows")
            places = np.arange(self.counts[i])[:, None] * s + np.arange(k)[None] * d - low
            table = np.where((places < 0) | (places >= sizes[i]), sizes[i], places)
            x = g.gather(x, g.constant(table.astype(np.int32)), axis=2 + 2 * i)
        half = len(self.kernel)
        return g.transpose(x, (0, 1, *(2 + 2 * i for i in range(half)), *(3 + 2 * i for i in range(half))))

    def maxima(self, g: Graph, x: Tensor, storage_order: int) -> list[Tensor]:
        """The maxima, and where each is among all elements of the tensor: in rows, or in columns of the spatial axes."""
        batch, channels, *sizes = x.shape.static
        element_count(math.prod(x.shape.static), "places")
        half = len(self.kernel)
        least = -math.inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
        shape = (batch, channels, *self.counts, math.prod(self.kernel))
        windows = g.reshape(self.windows(g, x, least), shape)
        places = np.arange(math.prod(sizes)).reshape(sizes, order="F" if storage_order else "C")
        whole = (np.arange(batch * channels) * places.size).reshape(batch, channels, *(1,) * half) + places
        numbers = self.windows(g, g.constant(whole.astype(np.int64)), -1)
        best = g.expand_dims(g.argmax(windows, -1), -1)
        chosen = [g.take_along_axis(t, best, axis=-1) for t in (windows, g.reshape(numbers, windows.shape))]
        return [g.squeeze(t, -1) for t in chosen]


@dataclass(frozen=True, kw_only=True)
class PoolAttributes(WindowAttributes):
    """The attributes of a pool, with ONNX's names."""

    kernel_shape: Sequence[int]
    ceil_mode: int = 0

    def padding_of(self, x: Tensor) -> list[tuple[Dim, Dim]]:
        """The amounts of padding before and after each spatial axis of a tensor.

        Raises:
            UnsupportedError: A window has too many elements.
        """
        element_count(math.prod(self.kernel_shape), "elements of a window")
        return self.padding(x.shape.dims[2:], self.kernel_shape)

    def geometry(self, x: Tensor) -> OnnxPoolWindow:
        """The windows of a tensor whose sizes are known."""
        sizes = static_dims(x, *spatial_axes(x))
        padding = [(int(low), int(high)) for low, high in self.padding_of(x)]  # type: ignore[arg-type]
        strides, dilations = self.steps(self.kernel_shape)
        counts: list[int] = []
        for n, k, s, (low, high), d in zip(sizes, self.kernel_shape, strides, padding, dilations, strict=True):
            span = n + low + high - d * (k - 1) - 1
            count = (-(-span // s) if self.ceil_mode else span // s) + 1
            # A window that begins in what ceil_mode adds, or in the padding behind, is left out.
            counts.append(count - 1 if self.ceil_mode and (count - 1) * s >= n + low else count)
        return OnnxPoolWindow(self.kernel_shape, strides, padding, dilations, counts)


@imports("MaxPool")
def max_pool(
    g: Graph, x: Tensor, *, pool: PoolAttributes, outputs: int, storage_order: int = 0
) -> Tensor | list[Tensor]:
    wanted = pool.padding_of(x)
    if outputs == 1 and x.dtype.is_float:
        x, padding = padded(g, x, wanted, -math.inf)
        kernel, (strides, dilations) = tuple(pool.kernel_shape), pool.steps(pool.kernel_shape)
        return g.max_pool(x, kernel, strides, padding, dilations, bool(pool.ceil_mode))
    geometry = pool.geometry(x)
    if outputs > 1:
        return geometry.maxima(g, x, storage_order)
    windows = geometry.windows(g, x, int(np.iinfo(x.dtype.numpy).min))
    return g.max(windows, tuple(range(-len(pool.kernel_shape), 0)))


@dataclass(frozen=True, kw_only=True)
class UnpoolAttributes(ArgumentGroup):
    """The attributes of `MaxUnpool`, with ONNX's names."""

    kernel_shape: Sequence[int]
    pads: Sequence[int] | None = None
    strides: Sequence[int] | None = None

    def sizes(self, x: Tensor) -> list[Dim]:
        """The sizes of the spatial axes of the tensor that was pooled, as far as the attributes imply them."""
        half = len(self.kernel_shape)
        strides, pads = self.strides or (1,) * half, self.pads or (0,) * 2 * half
        return [
            (n - 1) * s + k - pads[i] - pads[i + half]
            for i, (n, s, k) in enumerate(zip(x.shape.dims[2:], strides, self.kernel_shape, strict=True))
        ]


@imports("MaxUnpool")
def max_unpool(
    g: Graph, x: Tensor, places: Tensor, shape: Tensor | None = None, *, static: Static, pool: UnpoolAttributes
) -> Tensor:
    """Place the elements in the smaller tensor that the attributes imply. A larger result is padded at the end."""
    dims = (*x.shape.dims[:2], *pool.sizes(x))
    flat = g.zeros((dim.product(dims),), dtype=x.dtype)
    filled = g.scatter_nd(flat, g.reshape(places, (-1, 1)), g.reshape(x, (-1,)), reduction="set")
    wanted = integers(static, 2, "output_shape") or dims
    result = g.reshape(filled, dims)
    return g.pad(result, [(0, dim.maximum(0, w - n)) for n, w in zip(dims, wanted, strict=True)])


@imports("LpPool")
def lp_pool(g: Graph, x: Tensor, *, pool: PoolAttributes, p: int = 2) -> Tensor:
    powers, padding = padded(g, _power(g, x, p), pool.padding_of(x))
    kernel, (strides, dilations) = tuple(pool.kernel_shape), pool.steps(pool.kernel_shape)
    sums = g.avg_pool(powers, kernel, strides, padding, bool(pool.ceil_mode), True, 1, dilations)
    return _root(g, sums, p)


def _power(g: Graph, x: Tensor, p: int) -> Tensor:
    return g.abs(x) if p == 1 else g.mul(x, x) if p == 2 else g.pow(g.abs(x), float(p))


def _root(g: Graph, x: Tensor, p: int) -> Tensor:
    return x if p == 1 else g.sqrt(x) if p == 2 else g.pow(x, 1.0 / p)


@imports("GlobalLpPool")
def global_lp_pool(g: Graph, x: Tensor, *, p: int = 2) -> Tensor:
    return _root(g, g.sum(_power(g, x, p), spatial_axes(x), True), p)


@dataclass(frozen=True, kw_only=True)
class AveragePoolAttributes(PoolAttributes):
    """The attributes of `AveragePool`, with ONNX's names."""

    count_include_pad: int = 0

    def averaged(self, g: Graph, x: Tensor) -> Tensor:
        """The averages of the windows of a tensor."""
        padding = self.padding_of(x)
        if not all(isinstance(n, int) for pair in padding for n in pair):
            raise UnsupportedError("whose padding depends on sizes that are open cannot be imported")
        kernel, (strides, dilations) = tuple(self.kernel_shape), self.steps(self.kernel_shape)
        modes = bool(self.ceil_mode), bool(self.count_include_pad)
        return g.avg_pool(x, kernel, strides, padding, *modes, None, dilations)


@imports("AveragePool")
def average_pool(g: Graph, x: Tensor, *, pool: AveragePoolAttributes) -> Tensor:
    return pool.averaged(g, x)


@imports("GlobalAveragePool")
def global_average_pool(g: Graph, x: Tensor) -> Tensor:
    return g.mean(x, spatial_axes(x), True)


@imports("GlobalMaxPool")
def global_max_pool(g: Graph, x: Tensor) -> Tensor:
    return g.max(x, spatial_axes(x), True)
