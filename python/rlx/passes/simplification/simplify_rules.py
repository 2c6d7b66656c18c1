"""Patterns of `rlx-simplify` for arithmetic and casts. Those for shapes are in `simplify_shape_rules.py`."""

from __future__ import annotations

import math

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.op import opview, views
from rlx.ir.promotion import holds
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Rewriter, pattern, producer

# --- inspection of values -----------------------------------------------------------------------


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


# --- arithmetic -----------------------------------------------------------------------------------

# The neutral element on the right. For floats, 0 is not neutral for add, and -0 not for sub: -0 + 0 and -0 - (-0) are 0.
_NEUTRAL = {"add": -0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}


@pattern
def neutral_element(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x + (-0)`, `x - 0`, `x·1`, `x / 1`, `x ** 1`; `x + 0` of integers."""
    neutral = _NEUTRAL.get(op.kind)
    if neutral is None:
        return None
    if _is(splat(op.rhs), neutral) and if_alike(op.lhs, op.result) is not None:
        return op.lhs
    return if_alike(op.rhs, op.result) if _is(splat(op.lhs), neutral) and op.has_trait("commutative") else None


@pattern
def bound_that_never_counts(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """The maximum of x and the smallest value of its dtype, and the minimum of x and the largest value. NaN stays NaN."""
    if op.kind not in ("max", "min"):
        return None
    dtype = shape_of(op.result).dtype
    if dtype.is_complex:
        return None
    least, greatest = (
        (False, True) if dtype.is_bool else (-math.inf, math.inf) if dtype.is_float else (dtype.min, dtype.max)
    )
    limit = least if op.kind == "max" else greatest
    for x, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if splat(other) == limit and if_alike(x, op.result) is not None:
            return x
    return None


@pattern
def integer_minus_itself(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x - x` of integers. For floats, it may be NaN."""
    dtype = shape_of(op.result).dtype
    if op.kind != "sub" or op.lhs != op.rhs or dtype.is_inexact:
        return None
    return expand_like(rewriter, rewriter.builder.constant(np.zeros((), dtype.numpy)).value, op.result)


def _is(value: float | None, number: float) -> bool:
    """Whether a splat equals a number, including the sign for floats."""
    return value == number and (not isinstance(value, float) or math.copysign(1, value) == math.copysign(1, number))


@pattern
def extremum_of_itself(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """max(x, x), min(x, x)."""
    return op.lhs if op.kind in ("max", "min") and op.lhs == op.rhs else None


@pattern
def times_zero(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """x·0 for integers and bool; a float may be NaN or infinite."""
    if op.kind != "mul" or shape_of(op.result).dtype.is_inexact:
        return None
    zero = next((value for value in op.operands if splat(value) == 0), None)
    return None if zero is None else expand_like(rewriter, zero, op.result)


@pattern
def sign(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x + (-y)`, `x - (-y)`, `x·(-1)`."""
    if op.kind in ("add", "sub"):
        other = _negated(op.rhs)
        if other is not None:
            return rewriter.emit("binary", [op.lhs, other], kind="sub" if op.kind == "add" else "add")
        other = _negated(op.lhs) if op.kind == "add" else None
        return None if other is None else rewriter.emit("binary", [op.rhs, other], kind="sub")
    if op.kind == "mul":
        for value, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if splat(factor) == -1 and if_alike(value, op.result) is not None:
                return rewriter.emit("activation", [value], kind="neg")
    return None


def _negated(value: mlir.Value) -> mlir.Value | None:
    """Return `x` of `-x`; None if the value is not the result of a negation."""
    op = producer(value, views.Activation)
    return op.x if op is not None and op.kind == "neg" else None


@pattern
def activation_twice(op: views.Activation, rewriter: Rewriter) -> mlir.Value | None:
    """`-(-x)`; abs, relu or round applied twice; `abs(-x)`."""
    inner = producer(op.x, views.Activation)
    if inner is None:
        return None
    if op.kind == inner.kind == "neg":
        return inner.x
    if op.kind == inner.kind and op.kind in ("abs", "relu", "round"):
        return op.x
    if op.kind == "abs" and inner.kind == "neg" and shape_of(inner.x).dtype.is_signed:
        return rewriter.emit("activation", [inner.x], kind="abs")
    return None


@pattern
def known_condition(op: views.Where, rewriter: Rewriter) -> mlir.Value | None:
    """A select with a constant condition, or with two equal branches."""
    known = splat(op.condition)
    if known is None and op.on_true != op.on_false:
        return None
    return expand_like(rewriter, op.on_false if known is False else op.on_true, op.result)


@pattern
def repeated_choice(op: views.Where, rewriter: Rewriter) -> mlir.Value | None:
    """A select whose operand is a select by the same condition, so that the branch of the inner one is known.

    IREE 3.13 gives `where(m, where(m, a, b), b)` the value of `b` if a third select reads `b` in the same kernel.
    """
    for i, branch in enumerate((op.on_true, op.on_false)):
        inner = producer(branch, views.Where)
        if inner is not None and inner.condition == op.condition:
            value = inner.on_false if i else inner.on_true
            operands = [op.condition, op.on_true, value] if i else [op.condition, value, op.on_false]
            return expand_like(rewriter, rewriter.emit("where", operands), op.result)
    return None


# --- casts ----------------------------------------------------------------------------------------


def lossless(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    layout = b.part.float_format
    if a is b:
        return True
    if a.is_bool:
        return layout is None or layout.mantissa > 0  # a float without a mantissa has no 0
    if a.is_integer and b.is_integer:
        return b.min <= a.min and a.max <= b.max
    if layout is None or not b.is_inexact or (a.is_complex and not b.is_complex):
        return False
    if a.is_integer:
        return layout.mantissa > 0 and max(a.max, -a.min) <= min(2 ** (layout.mantissa + 1), b.part.max)
    return a.part is b.part or holds(b.part, a.part)


@pattern
def cast_chain(op: views.Cast, rewriter: Rewriter) -> mlir.Value | None:
    """A cast to the same dtype, and a cast of the result of a lossless cast."""
    middle, to = shape_of(op.x).dtype, op.dtype
    if middle is to:
        return op.x
    inner = producer(op.x, views.Cast)
    if inner is None:
        return None
    source = shape_of(inner.x).dtype
    if not lossless(source, middle):
        return None
    # A cast from float to integer saturates; a cast from integer to integer wraps.
    if source.is_integer and middle.is_inexact and to.is_integer and not lossless(source, to):
        return None
    return inner.x if source is to else rewriter.emit("cast", [inner.x], dtype=to)
