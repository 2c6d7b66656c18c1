"""Lowering rules for cumulative sums, products and maxima."""

from __future__ import annotations

from rlx.ir.shape import Shape
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter, Scalar
from rlx.targets.stablehlo.reduce import JOIN, neutral
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("cumsum")
def cumsum(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> Lowered:
    return _scan(emit, x, "sum", axis, exclusive)


@lowers("cumprod")
def cumprod(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> Lowered:
    return _scan(emit, x, "prod", axis, exclusive)


@lowers("cummax")
def cummax(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int) -> Lowered:
    return _scan(emit, x, "max", axis, False)


def _scan(emit: HloEmitter, x: Lowered, kind: str, axis: int, exclusive: bool) -> Lowered:
    running = emit.convert(x, accumulator(x.dtype))
    start = neutral(kind, running.dtype)
    if exclusive:
        running = _shifted(emit, running, axis, 1, start)
    distance = 1
    while distance < x.dims[axis]:
        # Each element is the combination of the last `distance` elements. Each step doubles the distance.
        running = emit.elementwise(JOIN[kind], running, _shifted(emit, running, axis, distance, start))
        distance *= 2
    return emit.convert(running, x.dtype)


def _shifted(emit: HloEmitter, x: Lowered, axis: int, distance: int, fill: Scalar) -> Lowered:
    """Shift towards the end, and fill with one number."""
    if x.dims[axis] == 0:
        return x
    low, high = [0] * x.rank, [0] * x.rank
    low[axis], high[axis] = distance, -distance
    return emit.pad(x, fill, low, high)
