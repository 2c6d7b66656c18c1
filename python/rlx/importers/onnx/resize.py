"""Resizing. Each axis is handled separately, as weighted sums of input elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.resize_open import Interpolation, along_open, scaled
from rlx.importers.onnx.rules import Static, dims, element_count, elements, imports, static_dims
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import ShapeError, UnsupportedError

# From this number of elements per result on, a matrix product is used instead of a sum of gathers.
_MANY = 8


def _places(mode: str, count: int, size: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Return the position of each of `count` results on an axis of `size` elements, by `coordinate_transformation_mode`."""
    x = np.arange(count, dtype=np.float64)
    if not count:
        return x
    whole = scale * size
    if mode == "align_corners":
        return x * (size - 1) / (whole - 1) if whole != 1 else np.zeros(count)
    if mode in ("asymmetric", "tf_half_pixel_for_nn"):
        return (x + 0.5 * (mode != "asymmetric")) / scale
    if mode == "tf_crop_and_resize":
        span = (roi[1] - roi[0]) * (size - 1)
        return roi[0] * (size - 1) + (x * span / (whole - 1) if whole != 1 else span / 2 + 0 * x)
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(count)
    half = (x + 0.5) / scale - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return half
    if mode == "half_pixel_symmetric":
        return half + size / 2 * (1 - count / whole)
    raise UnsupportedError(f"with the coordinates '{mode}' cannot be imported")


def _nearest(places: np.ndarray, mode: str) -> tuple[np.ndarray, np.ndarray]:
    rounded = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounded:
        raise UnsupportedError(f"with the rounding '{mode}' cannot be imported")
    return rounded[mode](places)[:, None], np.ones((places.size, 1))


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Return Keys' cubic kernel at a distance from a position."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _weighted(places: np.ndarray, scale: float, kernel: Any, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements within the kernel radius of each position, and their weights. Scales below 1 widen the kernel."""
    reach = math.ceil(radius / scale) if scale < 1 else radius
    element_count(max(places.size, 1) * 2 * reach, "weights")
    first = np.floor(places)[:, None]
    taken = first + np.arange(-reach + 1, reach + 1)
    weights = kernel((taken - places[:, None]) * min(scale, 1.0))
    return taken, weights / weights.sum(axis=1, keepdims=True)


def _interpolated(
    places: np.ndarray, size: int, scale: float, mode: str, cubic: float, exclude_outside: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements for results between elements, and their weights. Outside elements may have weight 0."""
    if mode == "linear":
        taken, weights = _weighted(places, scale, lambda d: np.maximum(0.0, 1 - np.abs(d)), 1)
    else:
        taken, weights = _weighted(places, scale, lambda d: _cubic(d, cubic), 2)
    if exclude_outside:
        weights = np.where((taken < 0) | (taken >= size), 0.0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return taken, weights


def _along(g: Graph, x: Tensor, axis: int, taken: np.ndarray, weights: np.ndarray) -> Tensor:
    """Return a weighted sum of elements of an axis, for each of the results."""
    (size,) = static_dims(x, axis)
    index = np.clip(taken, 0, size - 1).astype(np.int32)
    if index.shape[1] == 1:
        return g.gather(x, g.constant(index[:, 0]), axis=axis)
    if index.shape[1] >= _MANY:
        element_count(index.shape[0] * size, "weights")
        matrix = np.zeros((index.shape[0], size))
        np.add.at(matrix, (np.arange(index.shape[0])[:, None], index), weights)
        product = g.tensordot(x, g.constant(matrix.astype(x.dtype.numpy)), axes=((axis,), (1,)))
        return g.moveaxis(product, -1, axis)
    total = None
    tail = (1,) * (x.shape.rank - 1 - axis)
    for k in range(index.shape[1]):
        weight = g.constant(weights[:, k].reshape(-1, *tail).astype(x.dtype.numpy))
        term = g.mul(g.gather(x, g.constant(index[:, k]), axis=axis), weight)
        total = term if total is None else g.add(total, term)
    assert total is not None
    return total


def _ratio(wanted: int, length: int) -> float:
    """Return the number of results of an axis per element.

    Raises:
        ShapeError: The axis has no elements.
    """
    if wanted and not length:
        raise ShapeError(f"an axis without elements cannot be resized to {wanted}")
    return wanted / length if length else 1.0


def _sizes(
    x: Tensor, axes: list[int], scales: np.ndarray | None, wanted: Any, policy: str
) -> tuple[list[Dim], list[float | None]]:
    """Return the size of each result axis and its ratio to the input size. The ratio is None for open sizes."""
    if scales is not None:
        factors = [float(s) for s in scales]
        return [scaled(x.shape.dims[a], s) for a, s in zip(axes, factors, strict=True)], list(factors)
    is_open = not all(isinstance(d, int) for d in (*(x.shape.dims[a] for a in axes), *wanted))
    if is_open and policy == "stretch":
        pairs = [(x.shape.dims[a], w) for a, w in zip(axes, wanted, strict=True)]
        return [w for _, w in pairs], [
            _ratio(w, n) if isinstance(w, int) and isinstance(n, int) else None for n, w in pairs
        ]
    lengths = static_dims(x, *axes)
    factors = [_ratio(w, n) for w, n in zip(wanted, lengths, strict=True)]
    if policy == "stretch":
        return [int(w) for w in wanted], [*factors]
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(factor * n + 0.5) for n in lengths], [factor] * len(axes)


@dataclass(frozen=True)
class ResizeOperands(ArgumentGroup):
    """The operands of `Resize` after the tensor; version 10 has only the scales."""

    region: Tensor | None = None
    scales: Tensor | None = None
    sizes: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class ResizeAttributes(ArgumentGroup):
    """The attributes of `Resize`, with ONNX's names."""

    antialias: int = 0
    axes: Sequence[int] | None = None
    coordinate_transformation_mode: str | None = None
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str | None = None

    def interpolation(self, is_old: bool) -> Interpolation:
        """How results are made; version 10 reads at `i/scale`."""
        coordinates = self.coordinate_transformation_mode or ("asymmetric" if is_old else "half_pixel")
        rounding = self.nearest_mode or ("floor" if is_old else "round_prefer_floor")
        return Interpolation(coordinates, self.mode, rounding, self.cubic_coeff_a)

    def taken(self, how: Interpolation, places: np.ndarray, size: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """The elements of an axis that results at these places take, and their weights."""
        if how.mode == "nearest":
            return _nearest(places, how.rounding)
        narrowed = scale if self.antialias else 1.0
        return _interpolated(places, size, narrowed, how.mode, how.cubic, bool(self.exclude_outside))


@imports("Resize")
def resize(
    g: Graph, x: Tensor, operands: ResizeOperands, *, static: Static, opset: int, by: ResizeAttributes
) -> Tensor:
    """Version 10 has the scales as its second operand."""
    is_old = opset < 11
    scales = elements(static, 1 if is_old else 2, "scales")
    sizes = dims(static, 3, "sizes")
    used = [a % x.shape.rank for a in by.axes] if by.axes is not None else list(range(x.shape.rank))
    scales = scales if scales is not None and scales.size else None
    if scales is None and not sizes:
        raise UnsupportedError("without scales and sizes cannot be imported")
    counts, ratios = _sizes(x, used, scales, sizes, by.keep_aspect_ratio_policy)
    how = by.interpolation(is_old)
    roi = None if is_old or how.coordinates != "tf_crop_and_resize" else elements(static, 1, "roi")
    dtype = x.dtype
    if how.mode != "nearest" and dtype.name not in ("f32", "f64"):
        x = g.cast(x, "f32")
    outside: Any = None
    for i, (axis, count, scale) in enumerate(zip(used, counts, ratios, strict=True)):
        size = x.shape.dims[axis]
        if not (isinstance(size, int) and isinstance(count, int) and scale is not None):
            if by.antialias or by.exclude_outside or roi is not None:
                raise UnsupportedError(f"of the open size {size} in this way cannot be imported")
            if not dim.same(count, size):
                x = along_open(g, x, axis, count, scale, how)
            continue
        element_count(count, "results along an axis")
        part = (float(roi[i]), float(roi[i + len(used)])) if roi is not None else (0.0, 1.0)
        if count == size and (scale == 1 or not size) and part == (0.0, 1.0):
            continue
        places = _places(how.coordinates, count, size, scale, part)
        x = _along(g, x, axis, *by.taken(how, places, size, scale))
        if how.coordinates == "tf_crop_and_resize":
            beyond = ((places < 0) | (places > size - 1)).reshape(-1, *(1,) * (x.shape.rank - 1 - axis))
            outside = g.constant(beyond) if outside is None else g.logical_or(outside, g.constant(beyond))
    if outside is not None:
        x = g.where(outside, by.extrapolation_value, x)
    return x if x.dtype is dtype else g.cast(x, dtype)


@imports("Upsample")
def upsample(
    g: Graph,
    x: Tensor,
    factors: Tensor | None = None,
    *,
    static: Static,
    mode: str = "nearest",
    scales: Sequence[float] | None = None,
) -> Tensor:
    known = np.asarray(scales) if scales is not None else elements(static, 1, "scales")
    return resize(g, x, ResizeOperands(), static=[None, known], opset=10, by=ResizeAttributes(mode=mode))
