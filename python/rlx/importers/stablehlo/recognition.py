"""Recognition of functions that JAX exports as several ops whose derivative overflows, unlike that of the function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rlx import mlir
from rlx.importers.closed_forms import relu6
from rlx.importers.stablehlo.choices import dominators, is_absolute, is_inert, number_of
from rlx.ir.graph.builder import Tensor
from rlx.ir.op import opview

_LARGEST_POWER = 64


def is_one(x: Tensor) -> bool:
    """Return whether a tensor is the constant 1."""
    return _is_number(x.value, 1.0)


def operand_of_sigmoid(divisor: Tensor) -> Tensor | None:
    """Return the `x` of `1 + exp(-x)`."""
    for one, exponential in _sides(divisor.value, "add"):
        negated = _operand(exponential, "exp") if _is_number(one, 1.0) else None
        x = None if negated is None else _operand(negated, "neg")
        if x is not None:
            return divisor.builder.tensor(x)
    return None


def operand_of_odds(x: Tensor) -> Tensor | None:
    """Return the `p` of `p / (1 - p)`."""
    for p, complement in _sides(x.value, "div")[:1]:
        if [(True, p)] == [(_is_number(one, 1.0), other) for one, other in _sides(complement, "sub")[:1]]:
            return x.builder.tensor(p)
    return None


def factor_of_power(divisor: Tensor) -> tuple[Tensor, int] | None:
    """Return the `x` and `n` of a product of n equal factors `x`, for n > 1."""
    counts: dict[mlir.Value, int] = {}
    stack = [(divisor.value, 1)]
    while stack:
        value, count = stack.pop()
        sides = _sides(value, "mul")
        if sides and len(counts) < 2 and len(stack) < _LARGEST_POWER:
            stack += [(v, count) for v in sides[0]]
        else:
            counts[value] = counts.get(value, 0) + count
    if len(counts) != 1:
        return None
    ((factor, count),) = counts.items()
    return (divisor.builder.tensor(factor), count) if 1 < count <= _LARGEST_POWER else None


def operands_of_logaddexp(condition: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the `a` and `b` of `max(a, b) + log1p(exp(-|a - b|))`, with `a + b` as the result where `a - b` is NaN."""
    for larger, rest in _sides(y.value, "add"):
        steps = ("log1p", "exp", "neg", "abs")
        gap: mlir.Value | None = rest
        for kind in steps:
            gap = None if gap is None else _operand(gap, kind)
        pair = _sides(larger, "max")
        if gap is None or not pair:
            continue
        differs = _op(condition.value, "rlx.compare")
        is_nan = differs is not None and list(differs.operands) == [gap, gap]
        found = [_sides(v, kind) for v, kind in ((gap, "sub"), (x.value, "add"))]
        if is_nan and all(any(_same(pair[0], sides) for sides in s) for s in found):
            return x.builder.tensor(pair[0][0]), x.builder.tensor(pair[0][1])
    return None


def factors_of_xlogy(condition: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, str] | None:
    """Return `a`, `b` and the function of `a·log(b)` or `a·log1p(b)`, with 0 as the result where a = 0 and b is not NaN."""
    if not _is_number(y.value, 0.0):
        return None
    both = [_op(v, "rlx.compare") for v in next(iter(_sides(condition.value, "max")), ())]
    compared = [None if op is None else list(op.operands) for op in both]
    for factor, logarithm in _sides(x.value, "mul"):
        for kind in ("log", "log1p"):
            argument = _operand(logarithm, kind)
            if argument is None or len(compared) != 2 or compared[0] is None or compared[1] != [argument, argument]:
                continue
            if compared[0][0] == factor and _is_number(compared[0][1], 0.0):
                return x.builder.tensor(factor), x.builder.tensor(argument), kind
    return None


def factors_of_odd(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the `x`, `sign(x)` and `y` of `sign(x)·y`, if `y` depends on `x` only through `|x|`."""
    for sign, other in ((a, b), (b, a)):
        x = _operand_of_sign(sign.value)
        if x is None:
            continue
        absolutes = [_operand(v, "abs") for v in dominators(other.value)]
        if any(v is not None and v == x for v in absolutes):
            return sign.builder.tensor(x), sign, other
    return None


def _same(pair: tuple[mlir.Value, mlir.Value], other: tuple[mlir.Value, mlir.Value]) -> bool:
    """Return whether two pairs contain the same values, or equal constants."""

    def is_same(a: mlir.Value, b: mlir.Value) -> bool:
        return a == b or (is_inert(a) and number_of(a) is not None and number_of(a) == number_of(b))

    return all(is_same(a, b) for a, b in zip(pair, other, strict=True))


# --- ops of RLX ---------------------------------------------------------------------------------------


def _op(value: mlir.Value, name: str) -> mlir.Operation | None:
    if not isinstance(value, mlir.ir.OpResult) or value.owner.operation.name != name:
        return None
    return value.owner.operation


def _sides(value: mlir.Value, kind: str) -> list[tuple[mlir.Value, mlir.Value]]:
    """Return the operands of a binary op of this kind, in both orders; an empty list for another op."""
    op = _op(value, "rlx.binary")
    if op is None or opview.attributes_of(op)["kind"] != kind:
        return []
    a, b = op.operands
    return [(a, b), (b, a)]


def _operand(value: mlir.Value, kind: str) -> mlir.Value | None:
    """Return the operand of an activation of this kind."""
    if kind == "abs" and is_absolute(value):
        return value.owner.operation.operands[0]
    op = _op(value, "rlx.activation")
    return op.operands[0] if op is not None and opview.attributes_of(op)["kind"] == kind else None


def _operand_of_sign(value: mlir.Value) -> mlir.Value | None:
    """Return the `x` of `sign(x)`, which is 1, -1, or `x` itself."""
    positive = _op(value, "rlx.where")
    negative = None if positive is None else _op(positive.operands[2], "rlx.where")
    rest = None if negative is None else _op(negative.operands[2], "rlx.stop_gradient")
    if positive is None or negative is None or rest is None:
        return None
    is_sign = _is_number(positive.operands[1], 1.0) and _is_number(negative.operands[1], -1.0)
    return rest.operands[0] if is_sign else None


def _is_number(value: mlir.Value, number: float) -> bool:
    return number_of(value) == number


# --- functions by name --------------------------------------------------------------------------------

# The ops of `max(x, 0)` alone would give the derivative of a maximum. The function's name implies derivative 0 at 0.
_BY_NAME: dict[str, tuple[list[str], Callable[[Any, Tensor], Tensor]]] = {
    "relu": (["maximum"], lambda g, x: g.relu(x)),
    "relu6": (["maximum", "minimum"], relu6),
}


def by_name(function: mlir.FuncOp) -> Callable[[Any, Tensor], Tensor] | None:
    """Return the builder of a jax.nn function that JAX exports as a separate function; None for other functions."""
    name = re.sub(r"_\d+$", "", function.name.value)
    if name not in _BY_NAME or len(function.entry_block.arguments) != 1:
        return None
    expected, build = _BY_NAME[name]
    ops = [op.operation.name.removeprefix("stablehlo.") for op in function.entry_block.operations]
    return build if [n for n in ops if n not in ("constant", "broadcast_in_dim", "func.return")] == expected else None
