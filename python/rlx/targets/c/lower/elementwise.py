"""Elementwise ops. Integers wrap around as in the evaluator, without overflow of C's signed integers."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType, f32, i32, i64, u32
from rlx.ir.shape import Shape, shape_of
from rlx.ops.shape.shape import SliceRanges
from rlx.support.errors import UnsupportedError
from rlx.targets.c.lower import integers
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.kernel import IndexBody
from rlx.targets.c.lower.rules import elementwise, looks_up, moves
from rlx.targets.c.lower.values import (
    STORED,
    Affine,
    Index,
    Scalar,
    broadcast,
    computed_in,
    integer_text,
    limits,
    literal,
    scalar,
)

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_WORDS = {"add": "sum", "sub": "difference", "mul": "product"}


def bounds_of(kind: str, a: Scalar, b: Scalar) -> tuple[int, int]:
    """Return the least and greatest result of an op on two integers, without wraparound."""
    if kind == "add":
        return a.low + b.low, a.high + b.high
    if kind == "sub":
        return a.low - b.high, a.high - b.low
    if kind == "mul":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    pick = max if kind == "max" else min
    return pick(a.low, b.low), pick(a.high, b.high)


def within(bounds: tuple[int, int], dtype: DType) -> bool:
    """Whether a dtype can represent all integers between two bounds."""
    low, high = limits(dtype)
    return low <= bounds[0] and bounds[1] <= high


@elementwise("binary")
def binary(body: IndexBody, result: Shape, a: Scalar, b: Scalar, *, kind: str) -> Scalar:
    dtype = result.dtype
    if dtype.is_bool:
        return scalar(f"{a.term} {'|' if kind in ('add', 'max') else '&'} {b.term}", dtype, simple=False)
    if dtype is f32:
        return _binary_float(body, a, b, kind)
    if kind in ("max", "min"):
        bounds = bounds_of(kind, a, b)
        for one, other in ((a, b), (b, a)):
            decided = one.low >= other.high if kind == "max" else one.high <= other.low
            if decided:
                return one
        return scalar(f"{body.need(f'{kind}_{computed_in(dtype).name}')}({a.text}, {b.text})", dtype, bounds)
    if kind in integers.KINDS:
        return integers.binary(body, a, b, kind, dtype)
    if kind not in _WORDS:
        raise UnsupportedError(f"C has no {kind} of {dtype.name}", hint="cast to f32")
    bounds = bounds_of(kind, a, b)
    if within(bounds, dtype) or dtype is u32:
        if kind == "add" and b.fixed and b.low < 0 and dtype is not u32:
            return scalar(f"{a.term} - {-b.low}", dtype, bounds, simple=False)
        if kind == "sub" and b.fixed and b.low < 0 and dtype is not u32:
            return scalar(f"{a.term} + {-b.low}", dtype, bounds, simple=False)
        text = f"{a.term} {_SIGNS[kind]} {b.term}"
        return scalar(text, dtype, bounds if within(bounds, dtype) else None, simple=False)
    if dtype in (i32, i64):
        return scalar(f"{body.need(f'wrapping_{_WORDS[kind]}_{computed_in(dtype).name}')}({a.text}, {b.text})", dtype)
    return scalar(f"({STORED[dtype.name]})({a.term} {_SIGNS[kind]} {b.term})", dtype, simple=False)


_MATH = {"pow": "powf", "rem": "fmodf", "atan2": "atan2f"}


def _binary_float(body: IndexBody, a: Scalar, b: Scalar, kind: str) -> Scalar:
    if kind in _SIGNS:
        return scalar(f"{a.term} {_SIGNS[kind]} {b.term}", f32, simple=False)
    if kind in _MATH:
        return scalar(f"{body.need('math')}{_MATH[kind]}({a.text}, {b.text})", f32)
    return scalar(f"{body.need(f'{kind}_f32')}({a.text}, {b.text})", f32)


_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NEGATED = {"ne": "eq", "ge": "lt", "gt": "le"}


def _known(kind: str, a: Scalar, b: Scalar) -> bool | None:
    """Return the result of an integer comparison that the bounds decide, else None. Compilers warn about these comparisons."""
    if kind in _NEGATED:
        known = _known(_NEGATED[kind], a, b)
        return None if known is None else not known
    same = a.text == b.text
    if kind == "eq":
        if same or (a.fixed and b.fixed and a.low == b.low):
            return True
        return False if a.high < b.low or b.high < a.low else None
    if same:
        return kind == "le"
    surely = a.high < b.low if kind == "lt" else a.high <= b.low
    never = a.low >= b.high if kind == "lt" else a.low > b.high
    return True if surely else (False if never else None)


@elementwise("compare")
def compare(body: IndexBody, result: Shape, a: Scalar, b: Scalar, *, kind: str) -> Scalar:
    if a.dtype is not f32 and (known := _known(kind, a, b)) is not None:
        return literal(known, result.dtype)
    return scalar(f"{a.term} {_COMPARED[kind]} {b.term}", result.dtype, simple=False)


@elementwise("where")
def where(body: IndexBody, result: Shape, condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
    bounds = min(a.low, b.low), max(a.high, b.high)
    test = condition.term if condition.simple and not condition.text.endswith("]") else f"({condition.text} != 0)"
    return scalar(f"{test} ? {a.term} : {b.term}", result.dtype, bounds, simple=False)


@elementwise("cast")
def cast(body: IndexBody, result: Shape, x: Scalar, *, dtype: DType) -> Scalar:
    if dtype is x.dtype:
        return x
    if dtype.is_bool:
        return scalar(f"{x.term} != {'0.0f' if x.dtype is f32 else '0'}", dtype, simple=False)
    if dtype is f32:
        return scalar(f"(float){x.term}", dtype, simple=False)
    if x.dtype is f32:
        low, high = (integer_text(n, dtype) for n in limits(dtype))
        is_wide = dtype in (i32, i64, u32)
        function = body.need(f"{dtype.name}_of_f32" if is_wide else "narrow_of_f32")
        bounds = "" if is_wide else f", {low}, {high}"
        return scalar(f"{function}({x.text}{bounds})", dtype)
    held, kept = x.dtype, (x.low, x.high)
    if dtype is i64 or held is i64 or u32 in (dtype, held):
        kind = {"i64": "int64_t", "u32": "uint32_t"}.get(dtype.name, "int32_t")
        inside = within(kept, dtype)
        narrow = "" if inside or dtype in (i32, i64, u32) else f"({STORED[dtype.name]})"
        return scalar(f"({kind}){narrow}{x.term}", dtype, kept if inside else None, simple=False)
    if within(kept, dtype):
        return Scalar(x.text, dtype, *kept, x.simple)
    return scalar(f"({STORED[dtype.name]}){x.term}", dtype, simple=False)


@elementwise("bitcast")
def bitcast(body: IndexBody, result: Shape, x: Scalar, *, dtype: DType) -> Scalar:
    if x.dtype is dtype or f32 not in (x.dtype, dtype):
        return cast(body, result, x, dtype=dtype)  # integers of the same size wrap
    if dtype is f32:
        return scalar(f"{body.need('f32_of_bits')}((int32_t){x.term})", f32)
    bits = scalar(f"{body.need('bits_of_f32')}({x.text})", i32)
    return cast(body, result, bits, dtype=dtype)


_SAME_IN_C = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "erf", "erfc"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_FLOAT_FUNCTIONS = {
    **{kind: f"{kind}f" for kind in _SAME_IN_C},
    **{"abs": "fabsf", "round": "rintf", "floor": "floorf", "ceil": "ceilf"},
}
_OWN_FUNCTIONS = ("sigmoid", "silu", "gelu", "gelu_approx", "rsqrt")


@elementwise("activation")
def activation(body: IndexBody, result: Shape, x: Scalar, *, kind: str) -> Scalar:
    dtype = result.dtype
    zero = literal(0, dtype)
    if kind == "relu":
        return binary(body, result, x, zero, kind="max")
    if dtype is f32:
        if kind == "neg":
            return scalar(f"-{x.term}", dtype, simple=False)
        if kind in _OWN_FUNCTIONS:
            return scalar(f"{body.need(f'{kind}_f32')}({x.text})", dtype)
        return scalar(f"{body.need('math')}{_FLOAT_FUNCTIONS[kind]}({x.text})", dtype)
    negated = binary(body, result, zero, x, kind="sub")
    if kind == "neg":
        return negated
    if dtype in (u32,) or x.low >= 0:
        return x
    bounds = (0, max(-x.low, x.high))
    return scalar(
        f"({x.term} < 0) ? {negated.term} : {x.term}", dtype, bounds if within(bounds, dtype) else None, simple=False
    )


@elementwise("popcount")
def popcount(body: IndexBody, result: Shape, x: Scalar) -> Scalar:
    return integers.popcount(body, x, result.dtype)


@looks_up("gather")
def gather(
    body: IndexBody, index: Index, result: Shape, table: mlir.Value, indices: mlir.Value, *, axis: int
) -> Scalar:
    """Read a table at clamped positions. With a table of one axis, this is a function of the index."""
    shape, rank = shape_of(table), shape_of(indices).rank
    chosen = body.element(indices, index[axis : axis + rank])
    place = _clamped(body, chosen, shape.static[axis])
    at = (*index[:axis], place, *index[axis + rank :])
    array = constant_of(table)
    return body.load(table, at) if array is None else body.lookup(array, at, shape.dtype, "table")


def _clamped(body: IndexBody, chosen: Scalar, size: int) -> Affine:
    """An index clamped to [0, size), as an `Affine`."""
    if chosen.fixed:
        return Affine((), min(max(chosen.low, 0), size - 1))
    if chosen.low < 0 or chosen.high >= size or chosen.dtype in (i64, u32):
        function = body.need("clamped_i64" if chosen.dtype in (i64, u32) else "clamped")
        chosen = scalar(f"{function}({chosen.text}, {size - 1})", i32, (0, size - 1))
    name = (
        chosen.text
        if chosen.text.isidentifier()
        else body.local(Scalar(chosen.text, i32, 0, size - 1), "position").text
    )
    return Affine.of(name)


# --- moves -----------------------------------------------------------------------------------------------


@moves("reshape")
def reshape(body: IndexBody, index: Index, result: Shape, x: Shape, **_: Any) -> Index:
    raise AssertionError("a reshape is a view")


@moves("transpose")
def transpose(body: IndexBody, index: Index, result: Shape, x: Shape, *, perm: tuple[int, ...]) -> Index:
    at = [Affine()] * len(perm)
    for axis, of in zip(index, perm, strict=True):
        at[of] = axis
    return tuple(at)


@moves("narrow")
def narrow(body: IndexBody, index: Index, result: Shape, x: Shape, *, axis: int, start: Any, **_: Any) -> Index:
    return tuple(at + start[0] if i == axis else at for i, at in enumerate(index))


@moves("slice")
def slice_(body: IndexBody, index: Index, result: Shape, x: Shape, *, ranges: SliceRanges) -> Index:
    return tuple(at * step + start for at, start, step in zip(index, ranges.starts, ranges.strides, strict=True))


@moves("expand")
def expand(body: IndexBody, index: Index, result: Shape, x: Shape, *, shape: Any) -> Index:
    return broadcast(index, x.static)


@moves("reverse")
def reverse(body: IndexBody, index: Index, result: Shape, x: Shape, *, axes: tuple[int, ...]) -> Index:
    return tuple(at * -1 + (d - 1) if i in axes else at for i, (at, d) in enumerate(zip(index, x.static, strict=True)))
