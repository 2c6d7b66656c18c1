"""`rlx-recognize-activations`: creation of sigmoid, silu, relu and gelu from primitives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, pattern, producer
from rlx.passes.simplification.identities import KNOWN_CHOICES
from rlx.passes.simplification.values import splat

_DEEPEST = 6  # maximum depth of ops in a product or polynomial
_GELU = math.sqrt(2 / math.pi)


@pattern
def sigmoid(op: views.Binary, rewriter: Rewriter) -> Any:
    """`1 / (1 + exp(-x))`."""
    if op.kind != "div" or splat(op.lhs) != 1:
        return None
    exponential = producer(_plus_one(op.rhs), views.Activation)
    negative = None if exponential is None else producer(exponential.x, views.Activation)
    if exponential is None or negative is None or (exponential.kind, negative.kind) != ("exp", "neg"):
        return None
    return _activation(rewriter, op, negative.x, "sigmoid")


@pattern
def silu(op: views.Binary, rewriter: Rewriter) -> Any:
    """`x · sigmoid(x)`."""
    if op.kind != "mul":
        return None
    for x, other in operand_pairs(op):
        gate = producer(other, views.Activation)
        if gate is not None and gate.kind == "sigmoid" and gate.x == x:
            return _activation(rewriter, op, x, "silu")
    return None


@pattern
def relu(op: views.Binary, rewriter: Rewriter) -> Any:
    """`max(x, 0)`."""
    if op.kind != "max" or not shape_of(op.result).dtype.is_float:
        return None
    return next((_activation(rewriter, op, x, "relu") for x, zero in operand_pairs(op) if splat(zero) == 0), None)


@pattern
def gelu_by_tanh(op: views.Binary, rewriter: Rewriter) -> Any:
    """`x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, multiplied in any order."""
    if op.kind != "mul":
        return None
    number, factors = _factors(op.result, _DEEPEST)
    if len(factors) != 2 or not math.isclose(number, 0.5, rel_tol=1e-6):
        return None
    for x, other in (factors, factors[::-1]):
        tanh = producer(_plus_one(other), views.Activation)
        inner = polynomial(tanh.x, x, _DEEPEST) if tanh is not None and tanh.kind == "tanh" else None
        if inner is not None and _is_close(inner, {1: _GELU, 3: _GELU * 0.044715}):
            return _activation(rewriter, op, x, "gelu_approx")
    return None


def _activation(rewriter: Rewriter, op: views.Binary, x: mlir.Value, kind: str) -> Any:
    return rewriter.emit("activation", [x], kind=kind) if x.type == op.result.type else None


def _plus_one(value: mlir.Value | None) -> Any:
    """Return `x` of `1 + x`. Other values are returned unchanged; they match nothing."""
    op = None if value is None else producer(value, views.Binary)
    if op is None or op.kind != "add":
        return value
    return next((x for x, one in operand_pairs(op) if splat(one) == 1), value)


def _factors(value: mlir.Value, depth: int) -> tuple[float, list[mlir.Value]]:
    """Return a value as a number times other values."""
    number = splat(value)
    if number is not None:
        return float(number), []
    op = producer(value, views.Binary)
    if op is None or op.kind not in ("mul", "div") or depth == 0:
        return 1.0, [value]
    if op.kind == "div":
        divisor = splat(op.rhs)
        if not divisor:
            return 1.0, [value]
        left, values = _factors(op.lhs, depth - 1)
        return left / divisor, values
    (left, values), (right, others) = (_factors(v, depth - 1) for v in (op.lhs, op.rhs))
    return left * right, values + others


def polynomial(value: mlir.Value, x: mlir.Value, depth: int) -> dict[int, float] | None:
    """Return a value as a polynomial of another: its coefficients by degree, or None."""
    if value == x:
        return {1: 1.0}
    number = splat(value)
    if number is not None:
        return {0: float(number)}
    op = producer(value, views.Binary)
    if op is None or depth == 0:
        return None
    left = polynomial(op.lhs, x, depth - 1)
    right = None if left is None else polynomial(op.rhs, x, depth - 1)
    if left is None or right is None:
        return None
    if op.kind == "add":
        return {d: left.get(d, 0.0) + right.get(d, 0.0) for d in {*left, *right}}
    if op.kind == "mul":
        return _product(left, right)
    exponent = right.get(0, 0.0)
    if op.kind == "pow" and set(right) == {0} and exponent in (1, 2, 3):
        result = left
        for _ in range(int(exponent) - 1):
            result = _product(result, left)
        return result
    return None


def _product(left: dict[int, float], right: dict[int, float]) -> dict[int, float]:
    result: dict[int, float] = {}
    for i, a in left.items():
        for j, b in right.items():
            result[i + j] = result.get(i + j, 0.0) + a * b
    return result


def _is_close(found: dict[int, float], expected: dict[int, float]) -> bool:
    terms = {degree: c for degree, c in found.items() if c}
    return terms.keys() == expected.keys() and all(math.isclose(terms[d], c, rel_tol=1e-4) for d, c in expected.items())


@dataclass(frozen=True)
class RecognizeActivations(Fusion, name="rlx-recognize-activations"):
    """Create activations from their primitives.

    Results are equal except for rounding, and for infinite operands for which the primitives give NaN: the activation
    gives the limit.
    """

    makes = "activation"
    patterns = (sigmoid, silu, relu, gelu_by_tanh)
    helpers = (KNOWN_CHOICES,)
