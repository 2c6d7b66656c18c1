"""Lowering rules for pooling."""

from __future__ import annotations

from math import prod

from rlx.ir.shape import Shape
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.ops.convolution.pool import window_counts
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.reduce import neutral
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("pool")
def pool(
    emit: HloEmitter,
    results: list[Shape],
    x: Lowered,
    *,
    kind: str,
    geometry: PoolGeometry,
    count_include_pad: bool,
) -> Lowered:
    wide = emit.convert(x, accumulator(x.dtype))
    join, window = "maximum" if kind == "max" else "add", (1, 1, *geometry.kernel)
    edges, strides = [(0, 0), (0, 0), *geometry.edges], (1, 1, *geometry.stride)
    total = emit.reduce_window(wide, join, neutral(kind, wide.dtype), window, edges, strides)
    if kind == "mean":
        total = emit.div(total, prod(geometry.kernel) if count_include_pad else _counts(emit, x, total, geometry))
    return emit.convert(total, x.dtype)


def _counts(emit: HloEmitter, x: Lowered, total: Lowered, geometry: PoolGeometry) -> Lowered:
    """The number of elements of each window that are not padding."""
    divisor = emit.like(total, 1)
    for i, counts in enumerate(window_counts(x.dims[2:], geometry)):
        held = emit.constant(counts.astype(total.dtype.numpy))
        divisor = emit.mul(divisor, emit.broadcast_in_dim(held, total.dims, [2 + i]))
    return divisor
