"""Elementwise functions, comparisons, logic and casts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.powers_of_two import power_of_two
from rlx.importers.onnx.rules import Static, elements, imports
from rlx.ir.dtype import dtype, f8e8m0fnu
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

# The name in ONNX, and the name of the graph's method.
_SAME = {
    **{
        name: name.lower() for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh")
    },
    **{name: name.lower() for name in ("Exp", "Floor", "Log", "Neg", "Round", "Sigmoid", "Sign", "Sin", "Sinh")},
    **{
        name: name.lower()
        for name in ("Sqrt", "Tan", "Tanh", "Relu", "Reciprocal", "Softplus", "Mish", "Add", "Sub", "Mul")
    },
    **{
        "Softsign": "soft_sign",
        "HardSwish": "hard_swish",
        "IsNaN": "isnan",
        "Not": "logical_not",
        "And": "logical_and",
    },
    **{"Or": "logical_or", "Xor": "logical_xor", "Equal": "eq", "Less": "lt", "Greater": "gt", "LessOrEqual": "le"},
    **{"GreaterOrEqual": "ge", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor"},
    **{"BitwiseNot": "bitwise_not", "Where": "where"},
}


def _renamed(method: str) -> Callable[..., Any]:
    return lambda g, *xs: getattr(g, method)(*xs)


for _name, _method in _SAME.items():
    imports(_name)(_renamed(_method))


@imports("Erf")
def erf(g: Graph, x: Tensor) -> Tensor:
    return g.erf(x) if x.dtype.is_float else g.cast(g.erf(g.cast(x, "f64")), x.dtype)


@dataclass(frozen=True)
class DropoutOperands(ArgumentGroup):
    """The operands of `Dropout`, in its order."""

    x: Tensor
    ratio: Tensor | None = None
    training_mode: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class DropoutAttributes(ArgumentGroup):
    """The attributes of `Dropout`, with ONNX's names."""

    ratio: float = 0.5
    seed: int = 0


@imports("Dropout")
def dropout(
    g: Graph, operands: DropoutOperands, *, static: Static, outputs: int, opset: int, attributes: DropoutAttributes
) -> list[Tensor]:
    x = operands.x
    training = elements(static, 2, "training_mode")
    rate = elements(static, 1, "ratio")
    if training is not None and training.any() and (rate is None or float(rate) != 0):
        raise UnsupportedError("in training mode cannot be imported", hint="its random numbers are not specified")
    return [x, g.full(x.shape.dims, True, dtype="bool" if opset >= 10 else x.dtype)][:outputs]


@imports("Div")
def div(g: Graph, lhs: Tensor, rhs: Tensor) -> Tensor:
    if lhs.dtype.is_float:
        return g.div(lhs, rhs)
    quotient = g.floor_divide(lhs, rhs)  # ONNX rounds toward zero
    rest = g.sub(lhs, g.mul(quotient, rhs))
    up = g.logical_and(g.lt(quotient, 0), g.ne(rest, 0))
    return g.add(quotient, g.cast(up, lhs.dtype))


@imports("Pow")
def power(g: Graph, base: Tensor, exponent: Tensor) -> Tensor:
    if base.dtype is exponent.dtype:
        return g.pow(base, exponent)
    if base.dtype.is_float:
        return g.pow(base, g.cast(exponent, base.dtype))
    return g.cast(g.pow(g.cast(base, "f64"), g.cast(exponent, "f64")), base.dtype)


@imports("Mod")
def mod(g: Graph, lhs: Tensor, rhs: Tensor, *, fmod: int = 0) -> Tensor:
    return g.fmod(lhs, rhs) if fmod else g.remainder(lhs, rhs)


@imports("BitShift")
def bit_shift(g: Graph, x: Tensor, count: Tensor, *, direction: str) -> Tensor:
    if direction == "LEFT":
        return g.left_shift(x, count)
    width = 8 * x.dtype.numpy.itemsize
    beyond = g.logical_or(g.lt(count, 0), g.ge(count, width))  # all bits are then equal to the sign bit
    return (
        g.right_shift(x, g.where(beyond, width - 1, count))
        if x.dtype.numpy.kind == "i"
        else g.where(beyond, 0, g.shift_right_logical(x, g.where(beyond, 0, count)))
    )


@imports("IsInf")
def is_inf(g: Graph, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    x = g.cast(x, x.dtype.compute) if x.dtype.storage else x  # most formats of 8 bits have no infinity
    positive, negative = g.eq(x, np.inf), g.eq(x, -np.inf)
    if not (detect_negative or detect_positive):
        return g.zeros_like(positive)
    if detect_negative and detect_positive:
        return g.logical_or(positive, negative)
    return positive if detect_positive else negative


def _folded(method: str) -> Callable[..., Any]:
    def rule(g: Graph, first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = getattr(g, method)(first, other)
        return first

    return rule


imports("Max")(_folded("maximum"))
imports("Min")(_folded("minimum"))
imports("Sum")(_folded("add"))


@imports("Mean")
def mean(g: Graph, *xs: Tensor) -> Tensor:
    return g.div(_folded("add")(g, *xs), float(len(xs)))


@imports("Clip")
def clip(
    g: Graph,
    x: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Tensor:
    least, most = (low if low is not None else min), (high if high is not None else max)
    if least is not None:
        x = g.maximum(x, least)
    return x if most is None else g.minimum(x, most)


@imports("Gelu")
def gelu(g: Graph, x: Tensor, *, approximate: str = "none") -> Tensor:
    return g.gelu_approx(x) if approximate == "tanh" else g.gelu(x)


@imports("LeakyRelu")
def leaky_relu(g: Graph, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return g.where(g.lt(x, 0), g.mul(x, alpha), x)


@imports("PRelu")
def prelu(g: Graph, x: Tensor, slope: Tensor) -> Tensor:
    return g.where(g.lt(x, 0), g.mul(x, slope), x)


@imports("ThresholdedRelu")
def thresholded_relu(g: Graph, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return g.where(g.gt(x, alpha), x, 0.0)


@imports("Elu")
def elu(g: Graph, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return g.elu(x, alpha=alpha)


@imports("Celu")
def celu(g: Graph, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return g.celu(x, alpha=alpha)


@imports("Selu")
def selu(
    g: Graph, x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return g.mul(g.elu(x, alpha=alpha), gamma)


@imports("Swish")
def swish(g: Graph, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return g.mul(x, g.sigmoid(g.mul(x, alpha)))


@imports("HardSigmoid")
def hard_sigmoid(g: Graph, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return g.clamp(g.add(g.mul(x, alpha), beta), 0.0, 1.0)


@imports("Shrink")
def shrink(g: Graph, x: Tensor, *, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    zero = g.zeros_like(x)
    shrunk = g.where(g.lt(x, -lambd), g.add(x, bias), g.where(g.gt(x, lambd), g.sub(x, bias), zero))
    return g.cast(shrunk, x.dtype)


@imports("Cast")
def cast(g: Graph, x: Tensor, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Tensor:
    kind = dtype(to)
    if kind.is_bool and not x.dtype.is_bool:
        return g.ne(x, 0)
    if kind is f8e8m0fnu and x.dtype is not kind:
        return power_of_two(g, x, bool(saturate), round_mode)
    if kind.is_float and kind.bits == 8 and saturate:  # infinities of the same dtype also saturate
        x = x if x.dtype.is_float and not x.dtype.storage else g.cast(x, "f64" if x.dtype.bits > 16 else "f32")
        x = g.clamp(x, kind.min, kind.max)
    if kind.is_integer and kind.packed and x.dtype.is_float:
        x = g.cast(x, "i32")  # if a value does not fit, ONNX keeps the lowest bits
    return g.cast(x, kind)


@imports("CastLike")
def cast_like(g: Graph, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return cast(g, x, to=like.dtype, saturate=saturate, round_mode=round_mode)
