"""Sampling of images at positions: grids, regions, deformable convolutions, and images from blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.network import StepAttributes, along_channels
from rlx.importers.onnx.rules import (
    Static,
    element_count,
    imports,
    integers,
)
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@imports("GridSample")
def grid_sample(
    g: Graph, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    result = g.grid_sample(x, grid, _MODES.get(mode, mode), padding_mode, bool(align_corners))
    return g.cast(result, x.dtype)


@imports("Col2Im")
def col2im(
    g: Graph,
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    static: Static,
    window: StepAttributes,
) -> Tensor:
    """Sum blocks at their positions, for any number of axes."""
    sizes, kernel = integers(static, 1, "image_shape"), integers(static, 2, "block_shape")
    assert sizes is not None and kernel is not None
    half = len(sizes)
    strides, dilations = window.steps(kernel)
    padding = window.pairs(half)
    places = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), bool)
    for i, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        count = (n + sum(padding[i]) - d * (k - 1) - 1) // s + 1
        at = np.arange(k)[:, None] * d + np.arange(count)[None] * s - padding[i][0]
        fits = (at >= 0) & (at < n)
        rows, columns = places.shape
        element_count(rows * k * columns * max(count, 1), "places")
        places = (places[:, None, :, None] * n + at[None, :, None, :]).reshape(rows * k, columns * count)
        inside = (inside[:, None, :, None] & fits[None, :, None, :]).reshape(rows * k, columns * count)
    batch, width, _ = x.shape.static
    channels, span = width // math.prod(kernel), math.prod(sizes)
    values = g.reshape(x, (batch * channels, -1))
    kept = np.flatnonzero(inside.reshape(-1)).astype(np.int32)
    rows = g.transpose(g.gather(values, g.constant(kept), axis=1), (1, 0))
    flat = g.zeros((span, batch * channels), dtype=x.dtype)
    target = g.constant(places.reshape(-1)[kept].astype(np.int32).reshape(-1, 1))
    total = g.scatter_nd(flat, target, rows, reduction="add")
    return g.reshape(g.transpose(total, (1, 0)), (batch, channels, *sizes))


def _read_at(g: Graph, images: Tensor, at: Any) -> Tensor:
    """Sample images `[N, C, H, W]` at positions `[N, P]` of both axes, linearly and with zeros outside: `[N, C, P]`."""
    count, channels, *sizes = images.shape.static
    flat = g.reshape(images, (count, channels, -1))
    first = [g.floor(a) for a in at]
    share = [g.sub(a, f) for a, f in zip(at, first, strict=True)]
    total: Any = None
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight: Any = None
        place: Any = None
        for axis, step in enumerate(corner):
            position = g.add(first[axis], float(step))
            inside = g.logical_and(g.ge(position, 0.0), g.lt(position, float(sizes[axis])))
            part = g.where(inside, share[axis] if step else g.sub(1.0, share[axis]), 0.0)
            index = g.cast(g.clamp(position, 0.0, float(sizes[axis] - 1)), "i32")
            weight = part if weight is None else g.mul(weight, part)
            place = index if place is None else g.add(g.mul(place, sizes[axis]), index)
        places = g.broadcast_to(g.expand_dims(place, 1), (count, channels, place.shape.static[-1]))
        term = g.mul(g.take_along_axis(flat, places, axis=2), g.expand_dims(weight, 1))
        total = term if total is None else g.add(total, term)
    return total


@dataclass(frozen=True, kw_only=True)
class DeformAttributes(StepAttributes):
    """The attributes of a deformable convolution, with ONNX's names."""

    group: int = 1
    kernel_shape: Sequence[int] | None = None
    offset_group: int = 1


@dataclass(frozen=True)
class DeformOperands(ArgumentGroup):
    """The operands of `DeformConv`, in its order."""

    x: Tensor
    w: Tensor
    offset: Tensor
    bias: Tensor | None = None
    mask: Tensor | None = None


@imports("DeformConv")
def deform_conv(g: Graph, operands: DeformOperands, *, window: DeformAttributes) -> Tensor:
    """Convolve with window elements that are sampled at their position plus an offset, by linear interpolation."""
    x, w, offset, bias, mask = operands.x, operands.w, operands.offset, operands.bias, operands.mask
    batch, channels, *sizes = x.shape.static
    kernel = w.shape.static[2:]
    if len(kernel) != 2:
        raise UnsupportedError(f"in {len(kernel)} dimensions cannot be imported")
    (strides, dilations), padding = window.steps(kernel), window.pairs(2)
    group, offset_group = window.group, window.offset_group
    taps, (rows, columns) = math.prod(kernel), offset.shape.static[2:]
    element_count(taps * rows * columns, "places")
    starts = []
    for i in range(2):
        out = np.arange((rows, columns)[i]) * strides[i] - padding[i][0]
        within = np.arange(kernel[i]) * dilations[i]
        shape = [1, 1, 1, 1]
        shape[i], shape[2 + i] = kernel[i], (rows, columns)[i]
        axis = np.add.outer(within, out)
        starts.append(np.broadcast_to(axis.reshape(shape), (*kernel, rows, columns)).reshape(taps, rows, columns))
    moved = g.reshape(offset, (batch * offset_group, taps, 2, rows, columns))
    at = [
        g.reshape(
            g.add(g.squeeze(g.narrow(moved, 2, i, 1), 2), g.constant(starts[i].astype(x.dtype.numpy))),
            (batch * offset_group, taps * rows * columns),
        )
        for i in range(2)
    ]
    images = g.reshape(x, (batch * offset_group, channels // offset_group, *sizes))
    read = _read_at(g, images, at)
    read = g.reshape(read, (batch, offset_group, channels // offset_group, taps, rows, columns))
    if mask is not None:
        read = g.mul(read, g.reshape(mask, (batch, offset_group, 1, taps, rows, columns)))
    out_channels = w.shape.static[0]
    parts = g.reshape(read, (batch, group, channels // group * taps, rows * columns))
    weights = g.reshape(w, (1, group, out_channels // group, channels // group * taps))
    result = g.reshape(g.matmul(weights, parts), (batch, out_channels, rows, columns))
    return result if bias is None else g.add(result, along_channels(g, x, bias))


@dataclass(frozen=True, kw_only=True)
class RoiAttributes(ArgumentGroup):
    """The attributes of `RoiAlign`, with ONNX's names."""

    coordinate_transformation_mode: str | None = None
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


@imports("RoiAlign")
def roi_align(g: Graph, x: Tensor, rois: Tensor, batch_indices: Tensor, *, opset: int, cells: RoiAttributes) -> Tensor:
    """Return the mean or maximum of samples in each cell of regions. A sample more than one element outside is 0."""
    sampling_ratio, output_height, output_width = cells.sampling_ratio, cells.output_height, cells.output_width
    if not sampling_ratio:
        raise UnsupportedError("whose number of samples depends on the regions cannot be imported")
    half = (
        cells.coordinate_transformation_mode or ("half_pixel" if opset >= 16 else "output_half_pixel")
    ) == "half_pixel"
    height, width = x.shape.static[2:]
    count, axes = rois.shape.static[0], ((output_width, width), (output_height, height))
    taken, weights = [], []
    for axis, (cell, size) in enumerate(axes):
        low, high = (
            g.sub(g.mul(g.squeeze(rois[:, i : i + 1], 1), cells.spatial_scale), 0.5 * half) for i in (axis, axis + 2)
        )
        span = g.sub(high, low)
        span = span if half else g.maximum(span, 1.0)
        element_count(cell * sampling_ratio, "samples of a region")
        steps = (np.arange(cell * sampling_ratio) + 0.5) / sampling_ratio / cell
        at = g.add(g.reshape(low, (-1, 1)), g.mul(g.reshape(span, (-1, 1)), g.constant(steps.astype(x.dtype.numpy))))
        outside = g.logical_or(g.lt(at, -1.0), g.gt(at, float(size)))
        at = g.clamp(at, 0.0, float(size - 1))
        first = g.minimum(g.floor(at), float(max(size - 2, 0)))
        share = g.sub(at, first)
        kept = g.where(outside, 0.0, 1.0)
        index = g.cast(first, "i32")
        taken.append((index, g.minimum(g.add(index, 1), size - 1)))
        weights.append((g.mul(g.sub(1.0, share), kept), g.mul(share, kept)))
    images = g.gather(x, g.cast(batch_indices, "i32"), axis=0)
    channels = x.shape.static[1]
    flat = g.reshape(images, (count, channels, height * width))
    rows, columns = output_height * sampling_ratio, output_width * sampling_ratio
    terms = []
    for j in range(2):
        for i in range(2):
            place = g.add(
                g.mul(g.reshape(taken[1][j], (count, rows, 1)), width), g.reshape(taken[0][i], (count, 1, columns))
            )
            place = g.broadcast_to(g.reshape(place, (count, 1, rows * columns)), (count, channels, rows * columns))
            weight = g.mul(g.reshape(weights[1][j], (count, rows, 1)), g.reshape(weights[0][i], (count, 1, columns)))
            value = g.reshape(g.take_along_axis(flat, place, axis=2), (count, channels, rows, columns))
            terms.append(g.mul(value, g.reshape(weight, (count, 1, rows, columns))))
    shape = (count, channels, output_height, sampling_ratio, output_width, sampling_ratio)
    if cells.mode == "max":  # of the four products, as ONNX's own kernel has it
        return g.max(g.reshape(g.max(g.stack(terms, 0), 0), shape), (3, 5))
    total = g.add(g.add(terms[0], terms[1]), g.add(terms[2], terms[3]))
    return g.mean(g.reshape(total, shape), (3, 5))
