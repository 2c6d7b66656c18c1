"""Patterns of `rlx-quantize-integer` for ops that move or select numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dtype import i8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import opview, views
from rlx.passes.integer.operands import Goal, Integers, constant
from rlx.passes.integer.quantize_values import keeps_scale, maker_of
from rlx.passes.pattern import Rewriter, pattern


@pattern
def moved(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A reshape, a transpose, a slice, a window maximum …: the same op on integers, which keep their scale."""
    goal = Goal.of(op)
    maker = None if goal is None else maker_of(goal.core)
    if goal is None or maker is None or not keeps_scale(maker):
        return None
    b, (first, *others) = rewriter.builder, maker.operands
    x = _with_scale(b, first, goal)
    if x is None:
        return None
    attributes = opview.attributes_of(maker)
    if attributes.get("mode") == "constant":
        attributes["value"] = float(goal.zero)
    result = b.emit(opview.name_of(maker), (x, *map(b.tensor, others)), **attributes)
    return goal.bounded(b, result).value


@pattern
def joined(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A concatenation: both operands get the scale of the result."""
    found = Goal.behind(op, views.Concat)
    if found is None:
        return None
    (goal, maker), b = found, rewriter.builder
    parts = [_with_scale(b, v, goal) for v in (maker.lhs, maker.rhs)]
    if parts[0] is None or parts[1] is None:
        return None
    return goal.bounded(b, b.emit("concat", parts, axis=maker.axis)).value


@pattern
def larger_of_two(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A binary maximum or minimum: the op on integers with a common scale."""
    found = Goal.behind(op, views.Binary)
    if found is None or found[1].kind not in ("max", "min"):
        return None
    (goal, maker), b = found, rewriter.builder
    lhs, rhs = _with_scale(b, maker.lhs, goal), _with_scale(b, maker.rhs, goal)
    if lhs is None or rhs is None:
        return None
    return goal.bounded(b, b.binary(maker.kind, lhs, rhs)).value


def _with_scale(b: Builder, value: Any, goal: Goal) -> Tensor | None:
    """Return integers that represent a value with the scale of a result; None if no such integers are known."""
    known, x = constant(value), Integers.of(value)
    if known is not None:
        if np.isnan(known).any():  # no integer represents NaN
            return None
        steps = np.rint(known.astype(np.float64) / goal.scale) + goal.zero
        return b.constant(np.clip(steps, -128, 127).astype(np.int8))
    if x is None:
        return None
    if (float(x.scale), x.zero) == (goal.scale, goal.zero):
        return b.tensor(x.value)
    return b.rescale(x.centred(b), float(x.scale) / goal.scale, zero_point=goal.zero, dtype=i8)
