"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Callable

from rlx.importers.closed_forms import absolute, clamped, inverse_power, logaddexp, logit, odd_product, product_with_log
from rlx.importers.stablehlo.choices import chosen
from rlx.importers.stablehlo.order import total_order
from rlx.importers.stablehlo.recognition import (
    factor_of_power,
    factors_of_odd,
    factors_of_xlogy,
    is_one,
    operand_of_odds,
    operand_of_sigmoid,
    operands_of_logaddexp,
)
from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.ops.lift import in_compute

# The ops that correspond to one method of graphs: op name, method name.
_METHODS = {
    "add": "add",
    "and": "bitwise_and",
    "ceil": "ceil",
    "complex": "complex",
    "cosine": "cos",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "floor": "floor",
    "imag": "imag",
    "is_finite": "isfinite",
    "log_plus_one": "log1p",
    "logistic": "sigmoid",
    "negate": "neg",
    "not": "bitwise_not",
    "or": "bitwise_or",
    "popcnt": "popcount",
    "power": "pow",
    "real": "real",
    "remainder": "fmod",
    "rsqrt": "rsqrt",
    "shift_right_logical": "shift_right_logical",
    "sign": "sign",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "bitwise_xor",
}


def method(name: str) -> Callable[..., Tensor]:
    """Return the rule that calls a method of the graph with the operands."""
    return lambda g, *operands: getattr(g, name)(*operands)


for _op, _name in _METHODS.items():
    imports(_op)(method(_name))


@imports("abs")
def abs_(g: Graph, x: Tensor) -> Tensor:
    return absolute(g, x)


@imports("multiply")
def multiply(g: Graph, a: Tensor, b: Tensor, *, has_pieces: bool) -> Tensor:
    factors = factors_of_odd(a, b) if has_pieces and a.dtype.is_float else None
    return g.mul(a, b) if factors is None else odd_product(g, *factors)


@imports("select")
def select(g: Graph, condition: Tensor, x: Tensor, y: Tensor, *, has_pieces: bool) -> Tensor:
    if not has_pieces:
        return g.where(condition, x, y)
    if (pair := operands_of_logaddexp(condition, x, y)) is not None:
        return logaddexp(g, *pair, g.where(condition, x, y))
    if (factors := factors_of_xlogy(condition, x, y)) is not None:
        first, second, kind = factors
        return product_with_log(g, first, second, g.where(condition, x, y), kind)
    return chosen(g, condition, x, y)


@imports("round_nearest_even")
def round_nearest_even(g: Graph, x: Tensor) -> Tensor:
    return g.stop_gradient(g.round(x))  # RLX counts it as the identity


@imports("maximum")
def maximum(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.maximum(a, b) if not a.dtype.is_complex else g.where(_before(g, a, b), b, a)


@imports("minimum")
def minimum(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.minimum(a, b) if not a.dtype.is_complex else g.where(_before(g, b, a), b, a)


def _before(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Return whether `a < b` for complex numbers, in lexicographic order of real and imaginary part."""
    real, other = (g.real(a), g.real(b)), (g.imag(a), g.imag(b))
    return (real[0] < real[1]) | (g.eq(*real) & (other[0] < other[1]))


@imports("cbrt")
def cbrt(g: Graph, x: Tensor) -> Tensor:
    return g.cbrt(x) if not x.dtype.is_complex else g.pow(x, 1 / 3)


@imports("atan2")
def atan2(g: Graph, y: Tensor, x: Tensor) -> Tensor:
    return g.atan2(y, x) if not x.dtype.is_complex else -1j * g.log((x + 1j * y) / g.sqrt(x * x + y * y))


@imports("divide")
def divide(g: Graph, a: Tensor, b: Tensor, *, has_pieces: bool) -> Tensor:
    if a.dtype.is_integer:
        return g.binary("trunc_div", a, b)
    if has_pieces and a.dtype.is_float and is_one(a):
        if (x := operand_of_sigmoid(b)) is not None:
            return g.sigmoid(x)
        if (power := factor_of_power(b)) is not None:
            return inverse_power(g, *power)
    return g.binary("div", a, b)


@imports("shift_left")
def shift_left(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.binary("shift_left", a, b)


@imports("shift_right_arithmetic")
def shift_right_arithmetic(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_signed:
        return g.binary("shift_right", a, b)
    # Interpret the highest bit as a sign.
    signed = a.dtype.signed_word
    return g.cast(g.binary("shift_right", g.cast(a, signed), g.cast(b, signed)), a.dtype)


@imports("convert")
def convert(g: Graph, x: Tensor, *, results: list[Shape]) -> Tensor:
    # The imaginary part does not count, where a cast of RLX to bool has True for a number that is not 0.
    return g.cast(g.real(x) if x.dtype.is_complex and results[0].dtype.is_bool else x, results[0].dtype)


@imports("compare")
def compare(g: Graph, a: Tensor, b: Tensor, *, comparison_direction: str, compare_type: str = "NOTYPE") -> Tensor:
    if compare_type == "TOTALORDER" and a.dtype.is_float:  # this order distinguishes -NaN and NaN, and -0 and 0
        a, b = total_order(g, a), total_order(g, b)
    return g.compare(comparison_direction.lower(), a, b)


@imports("log")
def log(g: Graph, x: Tensor, *, has_pieces: bool) -> Tensor:
    ratio = operand_of_odds(x) if has_pieces else None
    return g.log(x) if ratio is None else logit(g, ratio)


@imports("clamp")
def clamp(g: Graph, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    has_derivative = x.dtype.is_float and x.dtype.has_zero
    return clamped(g, low, x, high) if has_derivative else minimum(g, maximum(g, x, low), high)


@imports("round_nearest_afz")
@in_compute
def round_nearest_afz(g: Graph, x: Tensor) -> Tensor:
    whole = g.trunc(x)
    away = g.where(g.abs(x - whole) >= 0.5, g.sign(x), 0.0)
    return g.where(g.eq(away, 0.0), whole, whole + away)  # -0 + 0 would be 0
