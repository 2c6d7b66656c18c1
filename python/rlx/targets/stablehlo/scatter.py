"""Lowering rules for scatters. An index out of range becomes row -1, whose updates have no effect."""

from __future__ import annotations

from math import prod

from rlx.ir.dtype import i32, i64
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.index import clamp_indices
from rlx.targets.stablehlo.rules import Lowered, lowers

_JOIN = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@lowers("scatter_nd")
def scatter_nd(
    emit: HloEmitter, results: list[Shape], x: Lowered, indices: Lowered, updates: Lowered, *, reduction: str
) -> Lowered:
    if 0 in x.dims or 0 in updates.dims:
        return x
    *places, count = indices.dims
    rows, width = prod(x.dims[:count]), prod(x.dims[count:])
    table = emit.reshape(x, (rows, width))
    updates = emit.reshape(updates, (prod(places), width))
    targets = _targets(emit, emit.reshape(indices, (prod(places), count)), x.dims[:count])
    if reduction == "set":
        found = _last(emit, table, targets, updates)
    else:
        wide = accumulator(x.dtype)
        found = emit.scatter(emit.convert(table, wide), targets, emit.convert(updates, wide), _JOIN[reduction])
    return emit.reshape(emit.convert(found, x.dtype), x.dims)


def _targets(emit: HloEmitter, tuples: Lowered, sizes: tuple[int, ...]) -> Lowered:
    """`[N, 1]` i64: the row of each of N tuples, or -1 if any of its indices is out of range."""
    number, count = tuples.dims
    row = emit.full((number, 1), i64, 0)
    outside = emit.compare("ne", row, row)
    tuples = emit.convert(tuples, i64)
    for k in range(count):
        index = emit.slice_axis(tuples, 1, k, k + 1)
        beyond = emit.either(emit.compare("lt", index, 0), emit.compare("ge", index, sizes[k]))
        outside = emit.either(outside, beyond)
        row = emit.add(emit.mul(row, sizes[k]), index)
    return emit.select(outside, -1, row)


def _last(emit: HloEmitter, table: Lowered, targets: Lowered, updates: Lowered) -> Lowered:
    """Replace rows, each by its last update: the one with the greatest number."""
    rows, number = table.dims[0], updates.dims[0]
    numbers = emit.iota((number, 1), 0, i32)
    last = emit.scatter(emit.full((rows, 1), i32, -1), targets, numbers, "maximum")
    chosen = emit.gather(updates, clamp_indices(emit, last, number), table.dims, axis=0, offset_dims=[1])
    return emit.select(emit.broadcast(emit.compare("ge", last, 0), table.dims), chosen, table)
