"""The patterns of `rlx-simplify`."""

from __future__ import annotations

import math

from rlx import mlir
from rlx.ir import opview, views
from rlx.ir.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import shape_of
from rlx.ops.lift import broadcast
from rlx.passes.pattern import Rewriter, pattern, producer

# --- looking at values ----------------------------------------------------------------------------


def splat(value: mlir.Value) -> float | None:
    """The number that all elements of a value are equal to; None if that is not known, or if it is complex."""
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


def _if_alike(value: mlir.Value, result: mlir.Value) -> mlir.Value | None:
    """A value, if it has the same type as the result that it would replace; else None."""
    return value if value.type == result.type else None


def _expanded(rewriter: Rewriter, value: mlir.Value, result: mlir.Value) -> mlir.Value:
    """A value, expanded to the shape of the result that it replaces."""
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
    if _is(splat(op.rhs), neutral) and _if_alike(op.lhs, op.result) is not None:
        return op.lhs
    return _if_alike(op.rhs, op.result) if _is(splat(op.lhs), neutral) and op.has_trait("commutative") else None


def _is(value: float | None, number: float) -> bool:
    """Whether a splat is a number, with its sign where it is a float."""
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
    return None if zero is None else _expanded(rewriter, zero, op.result)


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
            if splat(factor) == -1 and _if_alike(value, op.result) is not None:
                return rewriter.emit("activation", [value], kind="neg")
    return None


def _negated(value: mlir.Value) -> mlir.Value | None:
    """The tensor of which a value is the negative; None if it is not the result of a negation."""
    op = producer(value, views.Activation)
    return op.x if op is not None and op.kind == "neg" else None


@pattern
def activation_twice(op: views.Activation, rewriter: Rewriter) -> mlir.Value | None:
    """-(-x); abs, relu or round applied twice; abs(-x)."""
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
    """A choice with a constant condition, or two equal branches."""
    known = splat(op.condition)
    if known is None and op.on_true != op.on_false:
        return None
    return _expanded(rewriter, op.on_false if known is False else op.on_true, op.result)


# --- casts ----------------------------------------------------------------------------------------

_MANTISSA = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "c64": 24}
_FLOAT_INTO = {"f16": ("f32", "f64", "c64"), "bf16": ("f32", "f64", "c64"), "f32": ("f64", "c64")}


def lossless(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    if a is b or a.is_bool:
        return True
    if a.is_integer and b.is_integer:
        return b.min <= a.min and a.max <= b.max
    if a.is_integer and b.is_inexact:
        return max(a.max, -a.min) <= 2 ** _MANTISSA[b.name]
    return b.name in _FLOAT_INTO.get(a.name, ())


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
    # A cast from float to integer saturates, a cast from integer to integer wraps.
    if source.is_integer and middle.is_inexact and to.is_integer and not lossless(source, to):
        return None
    return inner.x if source is to else rewriter.emit("cast", [inner.x], dtype=to)


# --- shapes ---------------------------------------------------------------------------------------


@pattern
def shape_chain(op: views.Reshape | views.Expand, rewriter: Rewriter) -> mlir.Value | None:
    """A reshape or expand to the shape that the operand has already, and two of them in a row."""
    if _if_alike(op.x, op.result) is not None:
        return op.x
    inner = producer(op.x, type(op))
    return None if inner is None else rewriter.emit(op.spec.name, [inner.x], shape=shape_of(op.result).dims)


@pattern
def expanded_operand(op: views.Binary | views.Compare | views.Where, rewriter: Rewriter) -> mlir.Value | None:
    """An operand that is expanded, although the result has the same shape without that: these ops broadcast their operands."""
    values = op.operands
    for i, value in enumerate(values):
        inner = producer(value, views.Expand)
        if inner is None:
            continue
        changed = [*values[:i], inner.x, *values[i + 1 :]]
        if broadcast(*(shape_of(v).dims for v in changed)) == shape_of(op.result).dims:
            return rewriter.emit(op.spec.name, changed, **op.attributes)
    return None


@pattern
def transpose_chain(op: views.Transpose, rewriter: Rewriter) -> mlir.Value | None:
    """A transpose that keeps the order of axes, and two transposes in a row."""
    if op.perm == tuple(range(len(op.perm))):
        return op.x
    inner = producer(op.x, views.Transpose)
    return inner and rewriter.emit("transpose", [inner.x], perm=tuple(inner.perm[p] for p in op.perm))


@pattern
def whole(op: views.Narrow | views.Slice, rewriter: Rewriter) -> mlir.Value | None:
    """A narrow or slice of the whole tensor: if it keeps the shape, it starts at 0."""
    if isinstance(op, views.Slice) and any(s != 1 for s in op.strides):
        return None
    return _if_alike(op.x, op.result)


@pattern
def narrow_of_narrow(op: views.Narrow, rewriter: Rewriter) -> mlir.Value | None:
    """Two ranges of one axis."""
    inner = producer(op.x, views.Narrow)
    if inner is None or op.axis != inner.axis:
        return None
    start = op.start[0] + inner.start[0]
    return rewriter.emit("narrow", [inner.x], axis=op.axis, start=(start,), length=op.length)


@pattern
def narrow_of_concat(op: views.Narrow, rewriter: Rewriter) -> mlir.Value | None:
    """A range that is inside of one of the joined tensors."""
    inner, axis = producer(op.x, views.Concat), op.axis
    if inner is None or inner.axis != axis:
        return None
    (start,), (length,) = op.start, op.length
    border = shape_of(inner.lhs).dims[axis]
    if _at_most(start + length, border):
        return rewriter.emit("narrow", [inner.lhs], axis=axis, start=(start,), length=(length,))
    if _at_most(border, start):
        return rewriter.emit("narrow", [inner.rhs], axis=axis, start=(start - border,), length=(length,))
    return None


def _at_most(a: Dim, b: Dim) -> bool:
    """Whether `a <= b` is known."""
    gap = b - a
    return type(gap) is int and gap >= 0


@pattern
def concat_of_neighbours(op: views.Concat, rewriter: Rewriter) -> mlir.Value | None:
    """Neighbouring ranges of one tensor that are joined again; an empty operand."""
    axis = op.axis
    for part, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if shape_of(part).dims[axis] == 0:
            return _if_alike(other, op.result)
    base, start, length = _range(op.lhs, axis)
    other, next_start, next_length = _range(op.rhs, axis)
    if base != other or start + length != next_start:
        return None
    return rewriter.emit("narrow", [base], axis=axis, start=(start,), length=(length + next_length,))


def _range(value: mlir.Value, axis: int) -> tuple[mlir.Value, Dim, Dim]:
    """A value as a range of an axis of another tensor: this tensor, the start and the length."""
    op = producer(value, views.Narrow)
    if op is None or op.axis != axis:
        return value, 0, shape_of(value).dims[axis]
    return op.x, op.start[0], op.length[0]


@pattern
def reduce_of_ones(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """A reduction over axes of size 1 only changes the shape."""
    x, result = shape_of(op.x), shape_of(op.result)
    if x.dtype is not result.dtype or any(x.dims[a] != 1 for a in op.axes):
        return None
    if x.dtype.is_complex and op.kind == "prod":  # it starts from 1, by which a complex product makes inf NaN
        return None
    return op.x if x.dims == result.dims else rewriter.emit("reshape", [op.x], shape=result.dims)
