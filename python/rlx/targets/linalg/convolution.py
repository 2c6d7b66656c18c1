"""Lowering rules for convolutions: as matmuls over windows, or by taps where each kernel has one channel.

linalg's named convolutions are not used: on one x86-64 core (AVX-512), compiled with the flags of the target `cpu`, they are
rarely faster and often much slower. Times in ms for f32, compared with PyTorch with oneDNN:

=========================================  =========  =========  =======  =======
x, w                                       named op   as matmul  by taps  PyTorch
=========================================  =========  =========  =======  =======
[1, 64, 56, 56], [64, 64, 3, 3]            2.6        2.6                 1.2
[4, 64, 56, 56], [64, 64, 3, 3]            10.6       11.7                5.0
[1, 3, 224, 224], [64, 3, 7, 7], stride 2  13.0       2.1                 1.2
[1, 128, 28, 28], [128, 128, 3, 3], 2      2.9        0.53                0.36
[1, 80, 1500], [512, 80, 3]                65         2.1                 2.1
[1, 16, 16, 32, 32], [32, 16, 3, 3, 3]     81         8.9                 12
[1, 256, 56, 56], [512, 256, 1, 1], 2      930        1.4                 1.4
[1, 64, 56, 56], [64, 64, 3, 3], bf16      11         2.2
[1, 128, 56, 56], [128, 1, 3, 3]           2.7        4.0        0.22     0.19
[1, 1536, 515], [1536, 1, 4]               2.5        2.4        0.28     0.29
=========================================  =========  =========  =======  =======
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.targets.linalg.contraction import batch_matmul, contraction_loop, factor, matmul_2d
from rlx.targets.linalg.loops import PARALLEL, Indexed, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers
from rlx.targets.linalg.shape import extract

# The maximal number of kernel positions that are unrolled.
_MOST_TAPS = 128


@dataclass(frozen=True)
class _ConvSizes:
    """Sizes of one convolution: `x [batch, groups·inner, source…]`, padded, and `w [groups·outer, inner, kernel…]`."""

    batch: Dim
    groups: int
    inner: int
    outer: int
    source: tuple[Dim, ...]
    kernel: tuple[int, ...]
    target: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: DType  # of the sum; stored integers may be shorter

    @property
    def result(self) -> tuple[Dim, ...]:
        """The sizes of the result."""
        return self.batch, self.groups * self.outer, *self.target


@lowers("conv")
def conv(
    low: LoopEmitter,
    results: list[Shape],
    x: Lowered,
    w: Lowered,
    *,
    geometry: ConvGeometry,
) -> mlir.Value:
    return emit_convolution(low, results[0], x, w, geometry)


def emit_convolution(
    low: LoopEmitter, result: Shape, x: Lowered, w: Lowered, geometry: ConvGeometry, fill: int = 0
) -> mlir.Value:
    """Emit a convolution.

    Args:
        low: The emitter.
        result: Its shape, in the dtype of the sum: that of x and w, or a wider one for integers.
        x: The images.
        w: The kernels.
        geometry: That of the `conv`.
        fill: The padding value of x.
    """
    dtype = result.dtype
    if 0 in result.dims or 0 in w.shape.dims:
        return low.filled(result.dims, storage_type(dtype), 0)
    (outer, inner, *kernel), (batch, channels, *source) = w.shape.static, x.shape.dims
    padded = tuple(d + before + after for d, (before, after) in zip(source, geometry.edges, strict=True))
    value = low.padded(x.value, x.shape.dims, (batch, channels, *padded), fill, (0, 0, *geometry.padding[::2]))
    spans = [d * (k - 1) + 1 for d, k in zip(geometry.dilation, kernel, strict=True)]
    value = read_by_one(low, value, (batch, channels, *padded), result.dims, spans)
    padded = tuple(read_sizes(padded, result.dims[2:], spans))
    stride, dilation, groups = tuple(geometry.stride), tuple(geometry.dilation), geometry.groups
    c = _ConvSizes(
        batch, groups, inner, outer // groups, padded, tuple(kernel), result.dims[2:], stride, dilation, dtype
    )
    form = _by_taps if c.inner == 1 and prod(c.kernel) <= _MOST_TAPS else _as_matmul
    return form(low, c, value, w.value)


def read_sizes(source: Sequence[Dim], target: Sequence[Dim], spans: Sequence[int]) -> list[Dim]:
    """The sizes of a padded image, cut to the span of the window along axes with a single window."""
    return [span if count == 1 else size for size, count, span in zip(source, target, spans, strict=True)]


def read_by_one(
    low: LoopEmitter, x: mlir.Value, source: Sequence[Dim], result: Sequence[Dim], spans: Sequence[int]
) -> mlir.Value:
    """A padded image `[N, C, source…]`, cut to `read_sizes`.

    Code generators remove a loop over one position. The remaining indexing map then requires that the image has exactly the
    size that is read.
    """
    dims = (*source[:2], *read_sizes(source[2:], result[2:], spans))
    return x if dims == tuple(source) else extract(low, x, (0,) * len(dims), dims, (1,) * len(dims))


def _by_taps(low: LoopEmitter, c: _ConvSizes, x: mlir.Value, w: mlir.Value) -> mlir.Value:
    """One elementwise loop nest over shifted views of x, one for each kernel position, for `inner` 1."""
    s = Scalars(c.dtype)
    ones = (1,) * len(c.kernel)
    spatial = tuple(range(3, 3 + len(c.kernel)))  # after the loops over batch, groups and outer
    channels = c.groups * c.outer
    views, weights = list[Indexed](), list[Indexed]()
    for tap in cartesian(*map(range, c.kernel)):
        starts = (0, 0, *(t * d for t, d in zip(tap, c.dilation, strict=True)))
        view = extract(low, x, starts, (c.batch, c.groups, *c.target), (1, 1, *c.stride))
        views.append((view, (0, 1, *spatial)))
        weight = extract(low, w, (0, 0, *tap), (channels, 1, *ones), (1, 1, *ones))
        weights.append((low.reshape(weight, (channels, 1, *ones), (c.groups, c.outer)), (1, 2)))

    def body(*scalars: mlir.Value) -> mlir.Value:
        total = None
        for value, weight in zip(scalars[: len(views)], scalars[len(views) : -1], strict=True):
            term = s.mul(factor(s, value), factor(s, weight))
            total = term if total is None else s.add(total, term)
        assert total is not None
        return s.leave(total)

    dims = (c.batch, c.groups, c.outer, *c.target)
    out = (low.empty(dims, storage_type(c.dtype)), tuple(range(len(dims))))
    result = low.generic([*views, *weights], [out], [PARALLEL] * len(dims), body)
    return low.reshape(result, dims, c.result)


def _as_matmul(low: LoopEmitter, c: _ConvSizes, x: mlir.Value, w: mlir.Value) -> mlir.Value:
    """A product with each window as a column: `[outer, inner·kernel] · [inner·kernel, target]` for each image and group."""
    size, points = c.inner * prod(c.kernel), product_of(c.target)
    columns = _columns(low, c, x)
    weights = low.reshape(w, (c.groups * c.outer, c.inner, *c.kernel), (c.groups, c.outer, size))
    if c.batch == 1 and c.groups == 1:
        columns = low.reshape(columns, (1, 1, size, points), (size, points))
        weights = low.reshape(weights, (1, c.outer, size), (c.outer, size))
        product = matmul_2d(low, weights, columns, c.outer, points, c.dtype)
        return low.reshape(product, (c.outer, points), c.result)
    if c.batch == 1:
        columns = low.reshape(columns, (1, c.groups, size, points), (c.groups, size, points))
        product = batch_matmul(low, weights, columns, (c.groups, c.outer, points), size, c.dtype)
        return low.reshape(product, (c.groups, c.outer, points), c.result)
    dims = (c.batch, c.groups, c.outer, points)
    inputs = [(weights, (1, 2, 4)), (columns, (0, 1, 4, 3))]
    product = contraction_loop(low, inputs, dims, (0, 1, 2, 3), 5, c.dtype)
    return low.reshape(product, dims, c.result)


def _columns(low: LoopEmitter, c: _ConvSizes, x: mlir.Value) -> mlir.Value:
    """`[batch, groups, inner·kernel, target]`."""
    count = len(c.kernel)
    dims = (c.batch, c.groups, c.inner, *c.kernel, *c.target)
    positions = [((3 + count + i, s), (3 + i, d)) for i, (s, d) in enumerate(zip(c.stride, c.dilation, strict=True))]
    grouped = low.reshape(x, (c.batch, c.groups * c.inner, *c.source), (c.batch, c.groups, c.inner, *c.source))
    out = (low.empty(dims, x.type.element_type), tuple(range(len(dims))))
    inputs = [(grouped, (0, 1, 2, *positions))]
    columns = low.generic(inputs, [out], [PARALLEL] * len(dims), lambda value, _: value)
    size, points = c.inner * prod(c.kernel), product_of(c.target)
    return low.reshape(columns, dims, (c.batch, c.groups, size, points))
