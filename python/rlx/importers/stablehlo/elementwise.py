"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.importers.stablehlo.rules import imports
from rlx.ir.builder import Tensor
from rlx.ir.dtype import f64, i64
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape

# The ops that correspond to one method of graphs: name of the op, name of the method.
_METHODS = {
    "abs": "abs",
    "add": "add",
    "complex": "complex",
    "cosine": "cos",
    "exponential": "exp",
    "imag": "imag",
    "log": "log",
    "logistic": "sigmoid",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negate": "neg",
    "power": "pow",
    "real": "real",
    "round_nearest_even": "round",
    "rsqrt": "rsqrt",
    "select": "where",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tan": "tan",
    "tanh": "tanh",
}


def _method(name: str) -> Callable[..., Tensor]:
    return lambda g, *operands: getattr(g, name)(*operands)


for _op, _name in _METHODS.items():
    imports(_op)(_method(_name))


@imports("divide")
def divide(g: Any, a: Tensor, b: Tensor) -> Tensor:
    if not a.dtype.is_integer:
        return g.div(a, b)
    if a.dtype is i64:
        raise UnsupportedError("of i64 cannot be imported", hint="integers of at most 32 bits can, and floats")
    # Exact: of such integers f64 holds the quotient so well that its whole part is right. What StableHLO leaves open is as
    # in XLA: division by 0 gives all bits, and that of the least integer by -1 wraps.
    by_zero = g.eq(b, 0)
    quotient = g.cast(a, f64) / g.cast(g.where(by_zero, 1, b), f64)
    return g.cast(g.where(by_zero, -1, g.cast(quotient, i64)), a.dtype)


@imports("convert")
def convert(g: Any, x: Tensor, *, results: list[Shape]) -> Tensor:
    return g.cast(x, results[0].dtype)


@imports("compare")
def compare(g: Any, a: Tensor, b: Tensor, *, comparison_direction: str, compare_type: str = "NOTYPE") -> Tensor:
    if compare_type == "TOTALORDER":  # this order distinguishes -NaN and NaN, and -0 and 0
        raise UnsupportedError("in total order cannot be imported")
    return g.compare(comparison_direction.lower(), a, b)


@imports("clamp")
def clamp(g: Any, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return g.minimum(g.maximum(x, low), high)


@imports("and")
def and_(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return g.minimum(*_bools(a, b))


@imports("or")
def or_(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return g.maximum(*_bools(a, b))


@imports("xor")
def xor(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return g.ne(*_bools(a, b))


@imports("not")
def not_(g: Any, x: Tensor) -> Tensor:
    return g.eq(*_bools(x), False)


@imports("is_finite")
def is_finite(g: Any, x: Tensor) -> Tensor:
    return g.lt(g.abs(x), float("inf"))


def _bools(*tensors: Tensor) -> tuple[Tensor, ...]:
    if not all(t.dtype.is_bool for t in tensors):
        raise UnsupportedError(f"of the bits of {tensors[0].dtype} cannot be imported")
    return tensors
