"""Lowering rules for pooling, with a loop over each window.

An elementwise loop nest over shifted views, as in convolutions by taps, is not faster in general. Times in ms for f32 maxima
on one x86-64 core, compiled with the flags of the target `cpu`, compared with PyTorch:

================================  ========  =======  =======
x, kernel, stride                 as loops  by taps  PyTorch
================================  ========  =======  =======
[1, 64, 112, 112], 3x3, 2         1.3       2.9      5.8
[1, 64, 56, 56], 2x2, 2           0.15      0.26     0.96
[1, 64, 56, 56], 3x3, 1           0.41      0.30     10
[1, 64, 56, 56], 11x11, 1         1.5       4.1      57
[4, 256, 7, 7], 7x7               0.04      0.06     0.09
[1, 16, 16, 32, 32], 2x2x2, 2     0.29      0.26     1.0
[1, 80, 1500], 3, 1               0.35      0.13     0.05
================================  ========  =======  =======
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, i64
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.targets.linalg.contraction import accumulator, round_to_result
from rlx.targets.linalg.convolution import read_by_one
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, LoopEmitter
from rlx.targets.linalg.reduce import neutral
from rlx.targets.linalg.rules import Lowered, lowers


@lowers("pool")
def pool(
    low: LoopEmitter,
    results: list[Shape],
    x: Lowered,
    *,
    kind: str,
    geometry: PoolGeometry,
    count_include_pad: bool,
) -> mlir.Value:
    dims, dtype, kernel = results[0].dims, results[0].dtype, geometry.kernel
    if 0 in dims:
        return low.empty(dims, storage_type(dtype))
    axes = zip(x.shape.dims[2:], geometry.edges, strict=True)
    grown = (*x.shape.dims[:2], *(d + first + last for d, (first, last) in axes))
    padded = low.padded(x.value, x.shape.dims, grown, neutral(kind, dtype), (0, 0, *geometry.padding[::2]))
    padded = read_by_one(low, padded, grown, dims, kernel)
    total = _joined(low, padded, kind, results[0], geometry)
    if kind == "mean":
        counts = None if count_include_pad else _counts(low, x.shape.dims[2:], dims[2:], geometry)
        total = _divided(low, total, accumulator(dtype), dims, prod(kernel) if counts is None else counts)
    return round_to_result(low, total, dims, dtype)


def _joined(low: LoopEmitter, x: mlir.Value, kind: str, result: Shape, geometry: PoolGeometry) -> mlir.Value:
    """The maximum or the sum of every window, in the dtype that the result accumulates in."""
    dims, dtype, kernel = result.dims, result.dtype, geometry.kernel
    s = Scalars(dtype)
    join = s.max if kind == "max" else s.add
    rank, count = len(dims), len(kernel)
    positions = [((2 + i, step), (rank + i, 1)) for i, step in enumerate(geometry.stride)]
    window = (
        low.empty(kernel, s.element),
        tuple(range(rank, rank + count)),
    )  # its sizes are the bounds of the loops
    out = (low.filled(dims, s.element, neutral(kind, dtype)), tuple(range(rank)))
    iterators = [PARALLEL] * rank + [REDUCTION] * count

    def body(value: mlir.Value, _: mlir.Value, total: mlir.Value) -> mlir.Value:
        return join(total, s.enter(value))

    return low.generic([(x, (0, 1, *positions)), window], [out], iterators, body)


def _divided(low: LoopEmitter, total: mlir.Value, dtype: DType, dims: Sequence[Dim], counts: Any) -> mlir.Value:
    """Divide sums by one number, or by an i64 for each position."""
    s, axes = Scalars(dtype), tuple(range(len(dims)))
    known = isinstance(counts, int)

    def body(value: mlir.Value, *others: mlir.Value) -> mlir.Value:
        return s.div(value, s.constant(counts) if known else s.convert(others[0], i64))

    inputs = [(total, axes)] if known else [(total, axes), (counts, axes[2:])]
    return low.generic(inputs, [(low.empty(dims, s.element), axes)], [PARALLEL] * len(dims), body)


def _counts(low: LoopEmitter, sizes: Sequence[Dim], dims: Sequence[Dim], geometry: PoolGeometry) -> mlir.Value:
    """The number of elements of each window that are not padding, as i64."""
    arith, integer = low.arith, storage_type(i64)

    def body(_: mlir.Value) -> mlir.Value:
        total = None
        axes = zip(sizes, geometry.kernel, geometry.stride, geometry.edges, strict=True)
        for axis, (size, window, step, (edge, _after)) in enumerate(axes):
            first = arith.subi(arith.muli(low.scalar_index(axis), low.size(step)), low.size(edge))
            last = arith.minsi(arith.addi(first, low.size(window)), low.size(size))
            held = arith.maxsi(arith.subi(last, arith.maxsi(first, low.size(0))), low.size(0))
            total = held if total is None else arith.muli(total, held)
        return arith.index_cast(integer, total)

    out = (low.empty(dims, integer), tuple(range(len(dims))))
    return low.generic([], [out], [PARALLEL] * len(dims), body)
