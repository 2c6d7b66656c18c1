"""Maxima, means and sums over windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as cartesian
from math import prod
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS, INTEGERS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Padding, Tensors, Window
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.convolution.convolution import check_window, out_size, per_axis, per_edge
from rlx.ops.convolution.convolution_gradient import with_row, without_row
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.ops.convolution.pool_gradient import collected_by_winners, mean_gradient, taken_from_winners
from rlx.support.errors import ShapeError


class Pool(Card, op="pool"):
    def infer(self, x: Shape, *, kind: str, geometry: PoolGeometry, count_include_pad: bool) -> Shape:
        if x.rank not in (3, 4, 5):
            raise ShapeError(f"x must be [N, C, spatial…] of rank 3, 4 or 5, got {x}")
        if kind == "mean" and x.dtype.is_integer:
            hint = "take sum_pool of i32, and divide it; or cast x to f32"
            raise ShapeError(f"integers have no mean, got {x}", hint=hint)
        check_window(x.rank - 2, kernel=geometry.kernel, stride=geometry.stride, padding=geometry.padding)
        spatial = pooled(x.dims[2:], geometry)
        for i, size in enumerate(spatial):
            if type(size) is int and size < 0:
                before, after = geometry.edges[i]
                raise ShapeError(
                    f"a window of {geometry.kernel[i]} does not fit spatial axis {i} of {x} with padding {before} and {after}"
                )
        return x.with_dims((*x.dims[:2], *spatial))

    def evaluate(self, x: np.ndarray, *, kind: str, geometry: PoolGeometry, count_include_pad: bool) -> np.ndarray:
        spatial: Any = pooled(x.shape[2:], geometry)
        whole = x.dtype.kind in "iu"
        dtype = x.dtype if kind == "max" or whole else np.dtype(np.float64)
        edge = 0 if kind != "max" else np.iinfo(x.dtype).min if whole else -np.inf
        padded = np.pad(x.astype(dtype), [(0, 0), (0, 0), *geometry.edges], constant_values=edge)
        result = np.full((*x.shape[:2], *spatial), edge, dtype)
        for tap in cartesian(*map(range, geometry.kernel)):
            steps = zip(tap, geometry.stride, spatial, strict=True)
            places = (slice(t, t + (n - 1) * s + 1, s) for t, s, n in steps if n)
            if 0 not in spatial:
                window = padded[(..., *places)]
                result = np.maximum(result, window) if kind == "max" else result + window
        if kind == "mean":
            counts: Any = prod(geometry.kernel)
            if not count_include_pad:
                counts = np.ones(())
                for per_position in window_counts(x.shape[2:], geometry):
                    counts = np.multiply.outer(counts, per_position)
            result = result / counts
        return result.astype(x.dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        kind: str,
        kernel: Window,
        stride: Window | None = None,
        padding: Padding = 0,
        count_include_pad: bool = True,
    ) -> Tensor:
        count = max(x.rank - 2, 0)
        window = per_axis(kernel, count, "kernel")
        return b.emit(
            "pool",
            (x,),
            kind=kind,
            kernel=window,
            stride=window if stride is None else per_axis(stride, count, "stride"),
            padding=per_edge(padding, count),
            count_include_pad=count_include_pad,
        )

    def jvp(
        self,
        b: Builder,
        operands: Tensors,
        tangents: Tensors,
        results: Tensors,
        *,
        kind: str,
        geometry: PoolGeometry,
        **counted: Any,
    ) -> Tensor:
        (x,), (dx,) = operands, tangents
        if kind != "max":
            return b.emit("pool", (dx,), kind=kind, **geometry.named, **counted)
        return taken_from_winners(b, x, dx, results[0].shape, geometry)

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        kind: str,
        geometry: PoolGeometry,
        **counted: Any,
    ) -> rules.Cotangents:
        (x,), (dy,) = operands, cotangents
        if kind != "max":
            count_include_pad = counted["count_include_pad"] if kind == "mean" else None
            return (mean_gradient(b, dy, x.shape.dims[2:], geometry, count_include_pad),)
        return (_max_gradient(b, x, dy, geometry),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, **window: Any) -> Tensor:
        x = operands[0]
        return rules.unfolded(b, b.emit("pool", (rules.folded(b, x, 0),), **window), 0, size, x.shape.dims[1])

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(results[0].num_elements * prod(attributes["kernel"]), moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for kind in ("max", "mean", "sum"):
            plain: Attributes = {"kind": kind, "kernel": (2, 3), "stride": (2, 1), "padding": (1, 0, 1, 2)}
            yield sample((2, 3, 5, 4), **plain, dtypes=FLOATS)
            yield sample(("n", 2, "h", 6), **plain, count_include_pad=False, dtypes=("f32",))
            yield sample((2, 2, 9), kind=kind, kernel=(4,), stride=(3,), padding=(0, 1), dtypes=("f32",))
            yield sample(
                (1, 2, 4, 3, 5), kind=kind, kernel=(2, 1, 3), stride=(2, 2, 2), padding=(0,) * 6, dtypes=("f32",)
            )
            if kind != "mean":
                yield sample((2, 3, 5, 4), **plain, dtypes=INTEGERS)
            yield sample((2, 1, 14, 13), kind=kind, kernel=(12, 13), stride=(1, 1), padding=(0,) * 4, dtypes=("f32",))
        yield sample((1, 2, 4, 7), kind="max", kernel=(2, 3), stride=(2, 3), padding=(0,) * 4, dtypes=("f32",))
        # Windows with gaps between them, and windows that contain only padding.
        gaps: Attributes = {"kernel": (1, 2), "stride": (3, 2), "padding": (0, 2, 1, 2)}
        yield sample((1, 2, 4, 3), kind="max", **gaps, dtypes=("f32",))
        # The last window contains only padding.
        apart: Attributes = {"kernel": (2,), "stride": (2,), "padding": (0, 3), "dtypes": ("f32",)}
        yield sample((2, 1, 3), kind="max", **apart)
        yield sample((2, 1, 3), kind="mean", count_include_pad=False, **apart)
        yield sample((2, 1, 1), kind="max", kernel=(2,), stride=(1,), padding=(0, 0), dtypes=("f32",))
        # A single window, and a position that it does not cover.
        yield sample((2, 1, 3), kind="max", kernel=(2,), stride=(2,), padding=(0, 0), dtypes=("f32",))


def _max_gradient(b: Builder, x: Tensor, dy: Tensor, geometry: PoolGeometry) -> Tensor:
    """Return the cotangent of `x`. One spatial axis uses `max_pool2d_backward`, whose own gradient is in closed form."""
    if x.rank != 3:
        return collected_by_winners(b, x, dy, geometry)
    rows = with_row(b, x), with_row(b, dy)
    return without_row(b, b.emit("max_pool2d_backward", rows, **geometry.with_row().named))


def pooled(sizes: Sequence[Dim], geometry: PoolGeometry) -> tuple[Dim, ...]:
    """Return the number of windows along each spatial axis."""
    axes = zip(sizes, geometry.kernel, geometry.stride, geometry.edges, strict=True)
    return tuple(out_size(d, k, s, *edge, 1) for d, k, s, edge in axes)


def window_counts(sizes: Sequence[int], geometry: PoolGeometry) -> list[np.ndarray]:
    """Return the number of elements that are not padding in each window, along each spatial axis."""
    counts: list[np.ndarray] = []
    windows: Any = pooled(sizes, geometry)
    axes = zip(sizes, geometry.kernel, geometry.stride, geometry.edges, windows, strict=True)
    for d, k, s, (before, _), n in axes:
        starts = np.arange(int(n)) * s - before
        counts.append(np.maximum(np.minimum(starts + k, d) - np.maximum(starts, 0), 0).astype(np.float64))
    return counts
