"""Reductions: a single RLX op if the region corresponds to one, else repeated halving with the region."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.types import is_quantised
from rlx.importers.stablehlo.values import ending, scalar_of
from rlx.ir.dtype import DType
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape

Tensors = Sequence[Tensor]
Join = Callable[[Tensors, Tensors], list[Tensor]]

# The op in the region, and the corresponding reduction.
_KINDS = {
    "stablehlo.add": "sum",
    "stablehlo.multiply": "prod",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
}
_OF_BOOLS = {
    "stablehlo.or": "max",
    "stablehlo.and": "min",
    "stablehlo.add": "max",
    "stablehlo.multiply": "min",
}
# The reductions, and the methods that combine two tensors accordingly.
METHODS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


@imports("reduce")
def reduce(
    g: Graph, *operands: Tensor, dimensions: tuple[int, ...], regions: Sequence[Any], results: list[Shape]
) -> list[Tensor]:
    count = len(operands) // 2
    # The region computes in the dtypes of the results, which may be wider than those of the operands.
    wide = [g.cast(t, shape.dtype) for t, shape in zip(operands, (*results, *results), strict=True)]
    xs, starts = wide[:count], wide[count:]
    kind = joining_kind(regions[0], 0, xs[0]) if count == 1 else None
    if not dimensions:
        return regions[0].lifted(*starts, *xs)
    if kind in METHODS:
        total = _reduced(g, str(kind), xs[0], dimensions)
        return [total if is_neutral(starts[0], str(kind), xs[0].dtype) else regions[0].lifted(starts[0], total)[0]]
    order = [*dimensions, *(axis for axis in range(xs[0].rank) if axis not in dimensions)]
    length = math.prod(xs[0].shape.static[axis] for axis in dimensions)
    rows = [g.reshape(g.transpose(x, order), (length, *results[0].dims)) for x in xs]
    if length == 0:
        return [g.expand(s, shape.dims) for s, shape in zip(starts, results, strict=True)]
    join = joining(g, regions[0])
    totals = [g.squeeze(t, 0) for t in _in_halves(g, rows, join)]
    return [g.expand(t, shape.dims) for t, shape in zip(join(starts, totals), results, strict=True)]


def _in_halves(g: Graph, rows: Tensors, join: Join) -> list[Tensor]:
    """Reduce rows to one row, in their order."""
    rows = list(rows)
    while (length := rows[0].shape.static[0]) > 1:
        half = length // 2
        pairs = [g.reshape(x[: 2 * half], (half, 2, *x.shape.dims[1:])) for x in rows]
        joined = join([p[:, 0] for p in pairs], [p[:, 1] for p in pairs])
        joined = [g.expand(j, p[:, 0].shape.dims) for j, p in zip(joined, pairs, strict=True)]
        rows = [g.concat([j, x[-1:]], 0) if length % 2 else j for j, x in zip(joined, rows, strict=True)]
    return rows


def joining(g: Graph, region: Any) -> Join:
    return lambda first, second: region.lifted(*first, *second)


def joining_kind(region: Any, number: int, x: Tensor) -> str | None:
    """Return how a region combines a pair of arguments: a reduction, "second" for the second argument, or None."""
    arguments = list(region.block.arguments)
    pair = [arguments[number], arguments[number + len(arguments) // 2]]
    result = ending(region.block)[number]
    if result == pair[1]:
        return "second"
    op = getattr(result.owner, "operation", None)
    if op is None or not isinstance(result, mlir.OpResult):
        return None
    kind = (_OF_BOOLS if x.dtype.is_bool else _KINDS).get(op.name)
    if kind in ("sum", "prod") and is_quantised(result.type):
        return None
    return kind if list(op.operands) in (pair, pair[::-1]) else None


def _reduced(g: Graph, kind: str, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    if x.dtype.is_bool:
        return g.cast(g.reduce(kind, g.cast(x, "u8"), axes=list(axes)), "bool")
    return g.reduce(kind, x, axes=list(axes))


def is_neutral(start: Tensor, kind: str, limits: DType) -> bool:
    """Return whether a start value is the neutral constant that the reduction in this dtype starts from by default."""
    value = scalar_of(start)
    if value is None:
        return False
    if kind in ("sum", "prod"):
        # The neutral element of a sum is -0. A start of 0 only changes the sign of a sum of -0, as in rlx.
        return value == (kind == "prod")
    if limits.is_float:
        return value == (-np.inf if kind == "max" else np.inf)
    if limits.is_bool:
        return value == (kind == "min")
    return value == (limits.min if kind == "max" else limits.max)
