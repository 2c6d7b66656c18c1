"""The rules of `rlx-simplify`: each takes an op and gives a value that may stand for its result, or None."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from rlx import mlir
from rlx.dialect.spec import AttributeSpec
from rlx.ir import attributes, registry
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape, shape_of
from rlx.ops.lift import broadcast
from rlx.passes.rewrite import builder_before

Rule = Callable[[Any], Any]
RULES: dict[str, list[Rule]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES.setdefault(name, []).append(function)
        return function

    return register


# --- looking at ops -------------------------------------------------------------------------------


@cache
def _attribute(op: str, name: str) -> AttributeSpec:
    return next(a for a in registry.card(op).spec.attributes if a.name == name)


def read(op: Any, name: str) -> Any:
    """One attribute of an op, as Python has it."""
    entry, stored = _attribute(op.name, name), op.attributes
    return attributes.from_mlir(entry, stored[name]) if name in stored else entry.default


def producer(value: Any, name: str) -> Any:
    """The op that gives a value, when it is of that name."""
    if isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name == f"rlx.{name}":
            return op
    return None


def emit(op: Any, name: str, values: list[Any], **values_of: Any) -> Any:
    """A new op in front of another; its result."""
    b = builder_before(op, "rlx-simplify")
    return b.emit(name, [b.tensor(v) for v in values], **values_of).value


_SAME_EVERYWHERE = ("rlx.expand", "rlx.reshape", "rlx.transpose", "rlx.narrow", "rlx.slice")


def splat(value: Any) -> Any:
    """The number that every element of a value is; None when that is not known, or it is complex."""
    while isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name in _SAME_EVERYWHERE:
            value = op.operands[0]
            continue
        if op.name != "rlx.constant":
            return None
        elements = op.attributes["value"]
        if not isinstance(elements, mlir.ir.DenseElementsAttr) or not elements.is_splat:
            return None
        return getattr(elements.get_splat_value(), "value", None)
    return None


def same_type(op: Any, value: Any) -> Any:
    """The value, when it has the type of the op's result."""
    return value if value.type == op.results[0].type else None


# --- arithmetic -----------------------------------------------------------------------------------

# kind -> (neutral element, whether it is so on the left too). Of floats, -0 + 0 is 0, and so is -0 - (-0).
_NEUTRAL = {"add": (-0.0, True), "sub": (0.0, False), "mul": (1.0, True), "div": (1.0, False), "pow": (1.0, False)}


@rule("binary")
def neutral_element(op: Any) -> Any:
    """`x + (-0)`, `x - 0`, `x·1`, `x / 1`, `x ** 1`; `x + 0` of integers."""
    lhs, rhs = op.operands
    neutral, both = _NEUTRAL.get(read(op, "kind"), (None, False))
    if neutral is None:
        return None
    if _is(splat(rhs), neutral) and same_type(op, lhs) is not None:
        return lhs
    return same_type(op, rhs) if both and _is(splat(lhs), neutral) else None


def _is(value: Any, number: float) -> bool:
    """Whether a splat is a number, with its sign where it is a float."""
    return value == number and (not isinstance(value, float) or math.copysign(1, value) == math.copysign(1, number))


@rule("binary")
def extremum_of_itself(op: Any) -> Any:
    """max(x, x), min(x, x)."""
    lhs, rhs = op.operands
    return lhs if lhs == rhs and read(op, "kind") in ("max", "min") else None


@rule("binary")
def times_zero(op: Any) -> Any:
    """x·0 for integers and bool; a float may be NaN or infinite."""
    if read(op, "kind") != "mul":
        return None
    result = shape_of(op.results[0])
    if result.dtype.is_inexact:
        return None
    for value in op.operands:
        if splat(value) == 0:
            return value if value.type == result.type else emit(op, "expand", [value], shape=result.dims)
    return None


@rule("binary")
def sign(op: Any) -> Any:
    """`x + (-y)`, `x - (-y)`, `x·(-1)`."""
    kind = read(op, "kind")
    lhs, rhs = op.operands
    if kind in ("add", "sub"):
        other = negated(rhs)
        if other is not None:
            return emit(op, "binary", [lhs, other], kind="sub" if kind == "add" else "add")
        other = negated(lhs) if kind == "add" else None
        return None if other is None else emit(op, "binary", [rhs, other], kind="sub")
    if kind == "mul":
        for value, factor in ((lhs, rhs), (rhs, lhs)):
            if splat(factor) == -1 and same_type(op, value) is not None:
                return emit(op, "activation", [value], kind="neg")
    return None


def negated(value: Any) -> Any:
    """What a value is the negative of."""
    op = producer(value, "activation")
    return op.operands[0] if op is not None and read(op, "kind") == "neg" else None


@rule("activation")
def activation_twice(op: Any) -> Any:
    """-(-x); abs, relu and round a second time; abs(-x)."""
    inner = producer(op.operands[0], "activation")
    if inner is None:
        return None
    kind, before = read(op, "kind"), read(inner, "kind")
    if kind == before == "neg":
        return inner.operands[0]
    if kind == before and kind in ("abs", "relu", "round"):
        return op.operands[0]
    if kind == "abs" and before == "neg" and shape_of(inner.operands[0]).dtype.is_signed:
        return emit(op, "activation", [inner.operands[0]], kind="abs")
    return None


@rule("where")
def known_condition(op: Any) -> Any:
    """A choice with a constant condition, or two equal branches."""
    condition, on_true, on_false = op.operands
    known = splat(condition)
    if known is None and on_true != on_false:
        return None
    value = on_false if known is False else on_true
    result = shape_of(op.results[0])
    return value if value.type == result.type else emit(op, "expand", [value], shape=result.dims)


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


@rule("cast")
def cast_chain(op: Any) -> Any:
    """A cast to the same dtype, and one whose input was cast without loss."""
    x, to = op.operands[0], shape_of(op.results[0]).dtype
    middle = shape_of(x).dtype
    if middle is to:
        return x
    inner = producer(x, "cast")
    if inner is None:
        return None
    source = shape_of(inner.operands[0]).dtype
    if not lossless(source, middle):
        return None
    # Floats saturate on their way to an integer, integers wrap.
    if source.is_integer and middle.is_inexact and to.is_integer and not lossless(source, to):
        return None
    return inner.operands[0] if source is to else emit(op, "cast", [inner.operands[0]], dtype=to)


# --- shapes ---------------------------------------------------------------------------------------


@rule("reshape", "expand")
def shape_chain(op: Any) -> Any:
    """A reshape or expand to the shape that there is, and two in a row."""
    x = op.operands[0]
    if same_type(op, x) is not None:
        return x
    name = op.name[4:]
    inner = producer(x, name)
    return None if inner is None else emit(op, name, [inner.operands[0]], shape=shape_of(op.results[0]).dims)


@rule("binary", "compare", "where")
def expanded_operand(op: Any) -> Any:
    """An operand that is repeated to the shape which the result has without that: these ops broadcast by themselves."""
    result = shape_of(op.results[0])
    values = list(op.operands)
    for i, value in enumerate(values):
        inner = producer(value, "expand")
        if inner is None:
            continue
        changed = [*values[:i], inner.operands[0], *values[i + 1 :]]
        if broadcast(*(shape_of(v).dims for v in changed)) == result.dims:
            kept = {"kind": read(op, "kind")} if op.name != "rlx.where" else {}
            return emit(op, op.name[4:], changed, **kept)
    return None


@rule("transpose")
def transpose_chain(op: Any) -> Any:
    """A transpose that moves nothing, and two in a row."""
    x, perm = op.operands[0], read(op, "perm")
    if perm == tuple(range(len(perm))):
        return x
    inner = producer(x, "transpose")
    if inner is None:
        return None
    first = read(inner, "perm")
    return emit(op, "transpose", [inner.operands[0]], perm=tuple(first[p] for p in perm))


@rule("narrow", "slice")
def whole(op: Any) -> Any:
    """A narrow or slice of everything: one that keeps the shape starts at 0."""
    if op.name == "rlx.slice" and any(s != 1 for s in read(op, "strides")):
        return None
    return same_type(op, op.operands[0])


@rule("narrow")
def narrow_of_narrow(op: Any) -> Any:
    """Two ranges of one axis."""
    inner = producer(op.operands[0], "narrow")
    if inner is None or read(op, "axis") != read(inner, "axis"):
        return None
    start = read(op, "start")[0] + read(inner, "start")[0]
    keep = {"axis": read(op, "axis"), "length": read(op, "length")}
    return emit(op, "narrow", [inner.operands[0]], start=(start,), **keep)


@rule("narrow")
def narrow_of_concat(op: Any) -> Any:
    """A range inside one of the parts."""
    inner, axis = producer(op.operands[0], "concat"), read(op, "axis")
    if inner is None or read(inner, "axis") != axis:
        return None
    lhs, rhs = inner.operands
    start, length = read(op, "start")[0], read(op, "length")[0]
    border = shape_of(lhs).dims[axis]
    if _at_most(start + length, border):
        return emit(op, "narrow", [lhs], axis=axis, start=(start,), length=(length,))
    if _at_most(border, start):
        return emit(op, "narrow", [rhs], axis=axis, start=(start - border,), length=(length,))
    return None


def _at_most(a: Any, b: Any) -> bool:
    """Whether `a <= b` is certain."""
    gap = b - a
    return type(gap) is int and gap >= 0


@rule("concat")
def concat_of_neighbours(op: Any) -> Any:
    """Neighbouring ranges of one tensor, joined again; an empty part."""
    axis = read(op, "axis")
    lhs, rhs = op.operands
    for part, other in ((lhs, rhs), (rhs, lhs)):
        if shape_of(part).dims[axis] == 0:
            return same_type(op, other)
    base, start, length = _range(lhs, axis)
    other, next_start, next_length = _range(rhs, axis)
    if base != other or start + length != next_start:
        return None
    return emit(op, "narrow", [base], axis=axis, start=(start,), length=(length + next_length,))


def _range(value: Any, axis: int) -> tuple[Any, Any, Any]:
    """A value as a range of an axis of another: that one, start and length."""
    op = producer(value, "narrow")
    if op is None or read(op, "axis") != axis:
        return value, 0, shape_of(value).dims[axis]
    return op.operands[0], read(op, "start")[0], read(op, "length")[0]


@rule("reduce")
def reduce_of_ones(op: Any) -> Any:
    """A reduction over axes of size 1 only moves the shape."""
    x, result = shape_of(op.operands[0]), shape_of(op.results[0])
    if x.dtype is not result.dtype or any(x.dims[a] != 1 for a in read(op, "axes")):
        return None
    return _reshaped(op, op.operands[0], x, result)


def _reshaped(op: Any, value: Any, x: Shape, result: Shape) -> Any:
    return value if x.dims == result.dims else emit(op, "reshape", [value], shape=result.dims)
