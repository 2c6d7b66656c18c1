"""`rlx-recognize-softmax`: creation of softmax from primitives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion, operand_pairs
from rlx.passes.origins import origin_of, stands_beside, statistic_of
from rlx.passes.pattern import Rewriter, pattern, producer
from rlx.passes.simplification.identities import KNOWN_CHOICES
from rlx.passes.simplification.values import splat


@pattern
def softmax(op: views.Binary, rewriter: Rewriter) -> Any:
    """`e / sum e` with `e = exp(x - max x)`, or multiplied by the inverse of the sum."""
    if op.kind not in ("div", "mul") or not shape_of(op.result).dtype.is_float:
        return None
    for value, divisor in operand_pairs(op) if op.kind == "mul" else ((op.lhs, op.rhs),):
        exponential = producer(value, views.Activation)
        total = divisor if op.kind == "div" else _inverted(divisor)
        if exponential is None or exponential.kind != "exp" or total is None or value.type != op.result.type:
            continue
        found = statistic_of(origin_of(total))
        if found is None or found.kind != "sum" or found.factor != 1.0 or len(found.axes) != 1:
            continue
        for axis in range(shape_of(value).rank):
            if not stands_beside(found, value, axis):
                continue
            x = _shifted(exponential.x, axis)
            if x is None:
                return rewriter.miss(
                    "no maximum is subtracted, so that numbers above 88 overflow", "write g.softmax(x, axis)"
                )
            return rewriter.emit("softmax", [x], axis=axis)
    return None


def _inverted(value: mlir.Value) -> mlir.Value | None:
    op = producer(value, views.Binary)
    return op.rhs if op is not None and op.kind == "div" and splat(op.lhs) == 1 else None


def _shifted(value: mlir.Value, axis: int) -> mlir.Value | None:
    """Return `x` of `x - max(x)` along an axis."""
    op = producer(value, views.Binary)
    if op is None or op.kind != "sub":
        return None
    found = statistic_of(origin_of(op.rhs))
    own = found is not None and found.kind == "max" and found.factor == 1.0 and stands_beside(found, op.lhs, axis)
    return op.lhs if own else None


@dataclass(frozen=True)
class RecognizeSoftmax(Fusion, name="rlx-recognize-softmax"):
    """Create `softmax` from exponentials of differences to the maximum, divided by their sum.

    Without the maximum, the function would differ: if an element is infinite, all results of a softmax are NaN.
    """

    makes = "softmax"
    patterns = (softmax,)
    helpers = (KNOWN_CHOICES,)
