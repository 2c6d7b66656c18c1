"""Numbers and types of values, for patterns."""

from __future__ import annotations

import numpy as np

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Rewriter


def splat(value: mlir.Value) -> float | None:
    """Return the number that all elements of a value equal; None if it is unknown or complex."""
    while isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name == "rlx.constant":
            elements = op.attributes["value"]
            is_splat = isinstance(elements, mlir.ir.DenseElementsAttr) and elements.is_splat
            return getattr(elements.get_splat_value(), "value", None) if is_splat else None
        if not opview.has_trait(op, "rearranges"):
            return None
        value = op.operands[0]
    return None


def if_alike(value: mlir.Value, result: mlir.Value) -> mlir.Value | None:
    """Return a value if its type is that of the result that it would replace, else None."""
    return value if value.type == result.type else None


def scalar(rewriter: Rewriter, number: float, like: mlir.Value) -> mlir.Value:
    """Return a number as a tensor without axes, of the dtype of another value."""
    return rewriter.builder.constant(np.array(number).astype(shape_of(like).dtype.numpy)).value


def expand_like(rewriter: Rewriter, value: mlir.Value, result: mlir.Value) -> mlir.Value:
    """Return a value, expanded to the shape of the result that it replaces."""
    return value if value.type == result.type else rewriter.emit("expand", [value], shape=shape_of(result).dims)
