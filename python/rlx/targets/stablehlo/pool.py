"""Maxima and means over windows."""

from __future__ import annotations

from math import prod
from typing import Any

from rlx.ir.shape import Shape
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
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
) -> Lowered:
    wide = emit.convert(x, accumulator(x.dtype))
    edges = [(0, 0), (0, 0), *zip(padding[::2], padding[1::2], strict=True)]
    join = "maximum" if kind == "max" else "add"
    total = emit.reduce_window(wide, join, neutral(kind, wide.dtype), (1, 1, *kernel), edges, (1, 1, *stride))
    if kind == "mean":
        total = emit.div(total, _divisor(emit, x, total, kernel, stride, padding, count_include_pad))
    return emit.convert(total, x.dtype)


def _divisor(
    emit: HloEmitter,
    x: Lowered,
    total: Lowered,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
) -> Any:
    """How many elements each window counts."""
    if count_include_pad:
        return prod(kernel)
    divisor = emit.like(total, 1)
    for i, counts in enumerate(window_counts(x.dims[2:], kernel, stride, padding)):
        held = emit.constant(counts.astype(total.dtype.numpy))
        divisor = emit.mul(divisor, emit.broadcast_in_dim(held, total.dims, [2 + i]))
    return divisor
