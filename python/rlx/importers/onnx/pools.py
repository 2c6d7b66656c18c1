"""Pooling ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.importers.onnx.network import padded, padding_of, spatial_axes
from rlx.importers.onnx.rules import Static, bounded, imports, integers, static_dims
from rlx.ir.dims import dim
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError


def _windows(
    g: Any, x: Tensor, fill: Any, kernel: Any, strides: Any, padding: Any, dilations: Any, counts: Any
) -> Tensor:
    """Return the windows of a pool: [N, C, spatial…, kernel…], with `fill` outside of the tensor."""
    sizes = static_dims(x, *spatial_axes(x))
    # Positions outside of the tensor read one additional element at the end of each axis.
    x = g.pad(x, [(0, 0), (0, 0), *((0, 1) for _ in kernel)], value=fill)
    for i, (k, s, (low, _), d) in enumerate(zip(kernel, strides, padding, dilations, strict=True)):
        bounded(counts[i] * k, "positions of windows")
        places = np.arange(counts[i])[:, None] * s + np.arange(k)[None] * d - low
        table = np.where((places < 0) | (places >= sizes[i]), sizes[i], places)
        x = g.gather(x, g.constant(table.astype(np.int32)), axis=2 + 2 * i)
    half = len(kernel)
    return g.transpose(x, (0, 1, *(2 + 2 * i for i in range(half)), *(3 + 2 * i for i in range(half))))


def counts_of(sizes: Any, kernel: Any, strides: Any, padding: Any, dilations: Any, ceil: int) -> list[int]:
    """Return the number of windows along each axis."""
    counts: list[int] = []
    for n, k, s, (low, high), d in zip(sizes, kernel, strides, padding, dilations, strict=True):
        span = n + low + high - d * (k - 1) - 1
        count = (-(-span // s) if ceil else span // s) + 1
        # A window that starts in the extension by ceil_mode, or in the padding at the end, is left out.
        counts.append(count - 1 if ceil and (count - 1) * s >= n + low else count)
    return counts


@imports("MaxPool")
def max_pool(
    g: Any,
    x: Tensor,
    *,
    kernel_shape: Any,
    outputs: int,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
) -> Tensor | list[Tensor]:
    bounded(math.prod(kernel_shape), "elements of a window")
    ones = (1,) * len(kernel_shape)
    strides, dilations = tuple(strides or ones), tuple(dilations or ones)
    wanted = padding_of(x.shape.dims[2:], kernel_shape, strides, dilations, pads, auto_pad)
    if outputs == 1 and x.dtype.is_float:
        x, padding = padded(g, x, wanted, -math.inf)
        return g.max_pool(x, tuple(kernel_shape), strides, padding, dilations, bool(ceil_mode))
    sizes, padding = static_dims(x, *spatial_axes(x)), [(int(low), int(high)) for low, high in wanted]  # type: ignore[arg-type]
    counts = counts_of(sizes, kernel_shape, strides, padding, dilations, ceil_mode)
    if outputs > 1:
        return _with_places(g, x, kernel_shape, strides, padding, dilations, counts, storage_order)
    least = int(np.iinfo(x.dtype.numpy).min)
    windows = _windows(g, x, least, kernel_shape, strides, padding, dilations, counts)
    return g.max(windows, tuple(range(-len(kernel_shape), 0)))


def _with_places(
    g: Any, x: Tensor, kernel: Any, strides: Any, padding: Any, dilations: Any, counts: Any, storage_order: int
) -> list[Tensor]:
    """Return the maxima and their positions in the whole tensor, counted in row-major or column-major spatial order."""
    batch, channels, *sizes = x.shape.static
    bounded(math.prod(x.shape.static), "places")
    half = len(kernel)
    least = -math.inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    arguments = (kernel, strides, padding, dilations, counts)
    windows = g.reshape(_windows(g, x, least, *arguments), (batch, channels, *counts, math.prod(kernel)))
    places = np.arange(math.prod(sizes)).reshape(sizes, order="F" if storage_order else "C")
    whole = (np.arange(batch * channels) * places.size).reshape(batch, channels, *(1,) * half) + places
    numbers = _windows(g, g.constant(whole.astype(np.int64)), -1, *arguments)
    best = g.expand_dims(g.argmax(windows, -1), -1)
    chosen = [g.take_along_axis(t, best, axis=-1) for t in (windows, g.reshape(numbers, windows.shape))]
    return [g.squeeze(t, -1) for t in chosen]


@imports("MaxUnpool")
def max_unpool(
    g: Any,
    x: Tensor,
    places: Tensor,
    shape: Tensor | None = None,
    *,
    static: Static,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """Place the elements in the smaller tensor that the attributes imply. A larger result is padded at the end."""
    half = len(kernel_shape)
    strides, pads = strides or (1,) * half, pads or (0,) * 2 * half
    implied = [
        (n - 1) * s + k - pads[i] - pads[i + half]
        for i, (n, s, k) in enumerate(zip(x.shape.dims[2:], strides, kernel_shape, strict=True))
    ]
    dims = (*x.shape.dims[:2], *implied)
    flat = g.zeros((dim.product(dims),), dtype=x.dtype)
    filled = g.scatter_nd(flat, g.reshape(places, (-1, 1)), g.reshape(x, (-1,)), reduction="set")
    wanted = integers(static, 2, "output_shape") or dims
    result = g.reshape(filled, dims)
    return g.pad(result, [(0, dim.maximum(0, w - n)) for n, w in zip(dims, wanted, strict=True)])


@imports("LpPool")
def lp_pool(
    g: Any,
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    bounded(math.prod(kernel_shape), "elements of a window")
    ones = (1,) * len(kernel_shape)
    strides, dilations = tuple(strides or ones), tuple(dilations or ones)
    wanted = padding_of(x.shape.dims[2:], kernel_shape, strides, dilations, pads, auto_pad)
    powers, padding = padded(g, _power(g, x, p), wanted)
    sums = g.avg_pool(powers, tuple(kernel_shape), strides, padding, bool(ceil_mode), True, 1, dilations)
    return _root(g, sums, p)


def _power(g: Any, x: Tensor, p: int) -> Tensor:
    return g.abs(x) if p == 1 else g.mul(x, x) if p == 2 else g.pow(g.abs(x), float(p))


def _root(g: Any, x: Tensor, p: int) -> Tensor:
    return x if p == 1 else g.sqrt(x) if p == 2 else g.pow(x, 1.0 / p)


@imports("GlobalLpPool")
def global_lp_pool(g: Any, x: Tensor, *, p: int = 2) -> Tensor:
    return _root(g, g.sum(_power(g, x, p), spatial_axes(x), True), p)


@imports("AveragePool")
def average_pool(
    g: Any,
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    bounded(math.prod(kernel_shape), "elements of a window")
    ones = (1,) * len(kernel_shape)
    strides, dilations = tuple(strides or ones), tuple(dilations or ones)
    padding = padding_of(x.shape.dims[2:], kernel_shape, strides, dilations, pads, auto_pad)
    if not all(isinstance(n, int) for pair in padding for n in pair):
        raise UnsupportedError("whose padding depends on sizes that are open cannot be imported")
    return g.avg_pool(
        x, tuple(kernel_shape), strides, padding, bool(ceil_mode), bool(count_include_pad), None, dilations
    )


@imports("GlobalAveragePool")
def global_average_pool(g: Any, x: Tensor) -> Tensor:
    return g.mean(x, spatial_axes(x), True)


@imports("GlobalMaxPool")
def global_max_pool(g: Any, x: Tensor) -> Tensor:
    return g.max(x, spatial_axes(x), True)
