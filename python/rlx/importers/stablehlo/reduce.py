"""Reductions whose region is one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.ir import opview
from rlx.ir.builder import Tensor
from rlx.ir.dtype import DType
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape

# By the op in the region: the reduction that it gives, and the method that joins two tensors.
_KINDS = {
    "stablehlo.add": ("sum", "add"),
    "stablehlo.multiply": ("prod", "mul"),
    "stablehlo.maximum": ("max", "maximum"),
    "stablehlo.minimum": ("min", "minimum"),
}
_OF_BOOLS = {"stablehlo.or": "stablehlo.maximum", "stablehlo.and": "stablehlo.minimum"}


@imports("reduce")
def reduce(
    g: Any, *operands: Tensor, dimensions: tuple[int, ...], regions: Sequence[mlir.Region], results: list[Shape]
) -> Tensor:
    if len(operands) != 2:
        raise UnsupportedError("of several tensors at once cannot be imported")
    # The region computes in the dtype of the result, which may be wider than that of the operands.
    x, start = (t if t.dtype is results[0].dtype else g.cast(t, results[0].dtype) for t in operands)
    kind, join = _KINDS[_joining_op(regions[0], x)]
    total = _reduced(g, kind, x, dimensions) if dimensions else x
    return total if _is_neutral(operands[1], kind, x.dtype) else getattr(g, join)(total, start)


def _joining_op(region: mlir.Region, x: Tensor) -> str:
    """The name of the only op of a region, which joins its two arguments and whose result the region returns."""
    block = region.blocks[0]
    first, *other_ops = (op.operation for op in block.operations)
    name = _OF_BOOLS.get(first.name, first.name) if x.dtype.is_bool else first.name
    joins = len(other_ops) == 1 and name in _KINDS and set(first.operands) == set(block.arguments)
    if not joins or list(other_ops[0].operands) != list(first.results):
        known_names = ", ".join(n.removeprefix("stablehlo.") for n in _KINDS)
        raise UnsupportedError(f"by another function than one of {known_names} cannot be imported")
    return name


def _reduced(g: Any, kind: str, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    if not x.dtype.is_bool:
        return g.reduce(kind, x, axes=list(axes))
    if kind not in ("max", "min"):
        raise UnsupportedError(f"to the {kind} of bools cannot be imported")
    return g.cast(g.reduce(kind, g.cast(x, "u8"), axes=list(axes)), "bool")


def _is_neutral(start: Tensor, kind: str, limits: DType) -> bool:
    """Whether a value, once it is cast to a dtype, is the constant from which the reduction in this dtype starts by default."""
    op = getattr(start.value.owner, "operation", None)
    if op is None or op.name != "rlx.constant":
        return False
    value = opview.attributes_of(op)["value"].item()
    if kind in ("sum", "prod"):
        # The neutral element of a sum is -0. A start of 0 changes the sign of a sum of -0 alone, as it does in rlx.
        return value == (kind == "prod")
    if limits.is_float:
        return value == (-np.inf if kind == "max" else np.inf)
    return value == (limits.min if kind == "max" else limits.max)
