"""Elementwise functions of one, two and three operands. They are computed in the result dtype from PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx.importers import closed_forms
from rlx.importers.torch.rules import Operand, Results, as_tensor, as_tensors, aten, common_dtype
from rlx.ir.dtype import bool_ as BOOL
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph

# One operand, computed in the dtype of the result. PyTorch converts integers to floats for float functions.
_UNARY = {
    **{name: name for name in ("neg", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh")},
    **{
        name: name
        for name in ("atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma", "reciprocal", "square")
    },
    **{name: name for name in ("frac", "sinc", "deg2rad", "rad2deg")},
    **{name: name for name in ("relu", "silu", "mish", "selu")},
    "logical_not": "logical_not",
    "bitwise_not": "bitwise_not",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "log_sigmoid": "log_sigmoid",
}
# Two operands in the dtype of the result.
_BINARY = {
    **{name: name for name in ("maximum", "minimum", "hypot", "copysign", "nextafter", "logaddexp")},
    **{name: name for name in ("remainder", "fmod", "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor")},
    "xlogy": "xlogy",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "__lshift__": "left_shift",
    "__rshift__": "right_shift",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
}


def _unary(method: str) -> Callable[..., Any]:
    return lambda g, x, *, results: getattr(g, method)(as_tensor(g, x, results[0].dtype))


def _binary(method: str) -> Callable[..., Any]:
    return lambda g, x, y, *, results: getattr(g, method)(*as_tensors(g, results[0].dtype, x, y))


for _op, _method in _UNARY.items():
    aten(_op)(_unary(_method))
for _op, _method in _BINARY.items():
    aten(_op)(_binary(_method))
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    aten(_op)(lambda g, x, y, kind=_op: g.compare(kind, *as_tensors(g, common_dtype(x, y), x, y)))
for _op in ("isnan", "isinf", "isfinite", "signbit"):
    aten(_op)(lambda g, x, method=_op: getattr(g, method)(x))
for _op in ("logical_and", "logical_or", "logical_xor"):
    aten(_op)(lambda g, x, y, method=_op: getattr(g, method)(x, y))
for _op in ("floor", "ceil", "trunc"):
    aten(_op)(lambda g, x, method=_op: getattr(g, method)(x) if x.dtype.is_float else x)
# Tensors of the graph are immutable, so a copy is the tensor itself.
aten("clone", "alias", "alias_copy", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")(lambda g, x: x)
aten("resolve_conj", "resolve_neg")(lambda g, x, *rest: x)


@aten("atan2")
def atan2(g: Graph, y: Any, x: Any, *, results: Results) -> Tensor:
    return closed_forms.atan2(g, *as_tensors(g, results[0].dtype, y, x))


@aten("detach")
def detach(g: Graph, x: Tensor) -> Tensor:
    return g.stop_gradient(x) if x.dtype.is_inexact else x


@aten("_to_copy", "to", "type_as")
def to(g: Graph, x: Tensor, *rest: Any, dtype: object = None, results: Results) -> Tensor:
    """Convert to the result dtype from PyTorch."""
    return as_tensor(g, x, results[0].dtype)


@aten("copy")
def copy(g: Graph, x: Tensor, source: Tensor, non_blocking: bool = False, *, results: Results) -> Tensor:
    """Return the value of `x` after `x.copy_(source)`."""
    return g.expand(as_tensor(g, source, results[0].dtype), results[0].dims)


@aten("ldexp")
def ldexp(g: Graph, x: Operand, y: Operand, *, results: Results) -> Tensor:
    x, y = as_tensors(g, results[0].dtype, x, y)
    return g.mul(x, g.exp2(y))


@aten("add")
def add(g: Graph, x: Operand, y: Operand, *, alpha: Any = 1, results: Results) -> Tensor:
    kind = results[0].dtype
    x, y = as_tensors(g, kind, x, y)
    if kind.is_bool:
        return g.logical_or(x, y) if alpha else x
    return g.add(x, _times(g, y, alpha))


@aten("sub")
def sub(g: Graph, x: Operand, y: Operand, *, alpha: Any = 1, results: Results) -> Tensor:
    x, y = as_tensors(g, results[0].dtype, x, y)
    return g.sub(x, _times(g, y, alpha))


@aten("rsub")
def rsub(g: Graph, x: Operand, y: Operand, alpha: Any = 1, *, results: Results) -> Tensor:
    return sub(g, y, x, alpha=alpha, results=results)


def _times(g: Graph, x: Tensor, factor: Any) -> Tensor:
    return x if isinstance(factor, (int, float)) and factor == 1 else g.mul(x, as_tensor(g, factor, x.dtype))


@aten("mul")
def mul(g: Graph, x: Operand, y: Operand, *, results: Results) -> Tensor:
    x, y = as_tensors(g, results[0].dtype, x, y)
    return g.logical_and(x, y) if results[0].dtype.is_bool else g.mul(x, y)


@aten("div", "true_divide")
def div(g: Graph, x: Operand, y: Operand, *, rounding_mode: str | None = None, results: Results) -> Tensor:
    kind = results[0].dtype
    x, y = as_tensors(g, kind, x, y)
    if rounding_mode == "floor":
        return g.floor_divide(x, y)
    if rounding_mode == "trunc":
        return g.trunc(g.div(x, y)) if kind.is_float else g.floor_divide(g.sub(x, g.fmod(x, y)), y)
    return g.div(x, y)


# Powers that are computed by a simpler function.
_POWERS = {
    0.5: lambda g, x: g.sqrt(x),
    -0.5: lambda g, x: g.rsqrt(x),
    -1: lambda g, x: g.reciprocal(x),
    1: lambda g, x: x,
    2: lambda g, x: g.square(x),
    3: lambda g, x: g.mul(g.square(x), x),
}


@aten("pow")
def pow(g: Graph, x: Operand, y: Operand, *, results: Results) -> Tensor:
    kind = results[0].dtype
    base = as_tensor(g, x, kind)
    if isinstance(y, (int, float)) and y in _POWERS and (kind.is_float or (kind.is_integer and y >= 1)):
        return _POWERS[y](g, base)
    return g.pow(base, as_tensor(g, y, kind))


@aten("abs")
def absolute(g: Graph, x: Tensor) -> Tensor:
    return g.abs(x)


@aten("heaviside")
def heaviside(g: Graph, x: Tensor, values: Tensor, *, results: Results) -> Tensor:
    """Return the Heaviside function. It is 0 for NaN, like PyTorch's `sign`."""
    return g.where(g.eq(x, as_tensor(g, 0, x.dtype)), values, as_tensor(g, g.gt(x, as_tensor(g, 0, x.dtype)), x.dtype))


@aten("sgn", "sign")
def sgn(g: Graph, x: Tensor) -> Tensor:
    if x.dtype.is_bool:
        return x
    if x.dtype.is_float:
        return g.where(g.isnan(x), as_tensor(g, 0, x.dtype), g.sign(x))
    if not x.dtype.is_complex:
        return g.sign(x)
    size = g.abs(x)
    none = g.eq(size, 0.0)
    return g.where(none, g.cast(0.0, x.dtype), g.div(x, g.cast(g.where(none, 1.0, size), x.dtype)))


@aten("round")
def round_(g: Graph, x: Tensor, *, decimals: int = 0) -> Tensor:
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return g.round(x)
    factor = 10.0 ** abs(decimals)
    return g.div(g.round(g.mul(x, factor)), factor) if decimals > 0 else g.mul(g.round(g.div(x, factor)), factor)


@aten("logit")
def logit(g: Graph, x: Operand, eps: float | None = None, *, results: Results) -> Tensor:
    x = as_tensor(g, x, results[0].dtype)
    return g.logit(x if eps is None else g.clamp(x, eps, 1 - eps))


@aten("nan_to_num")
def nan_to_num(
    g: Graph, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    return g.nan_to_num(x, 0.0 if nan is None else nan, posinf, neginf) if x.dtype.is_float else x


@aten("where")
def where(g: Graph, condition: Tensor, x: Operand, y: Operand, *, results: Results) -> Tensor:
    return g.where(as_tensor(g, condition, BOOL), *as_tensors(g, results[0].dtype, x, y))


@aten("masked_fill")
def masked_fill(g: Graph, x: Tensor, mask: Tensor, value: Operand, *, results: Results) -> Tensor:
    return g.where(as_tensor(g, mask, BOOL), as_tensor(g, value, x.dtype), x)


@aten("clamp", "clip")
def clamp(g: Graph, x: Tensor, low: Operand | None = None, high: Operand | None = None, *, results: Results) -> Tensor:
    kind = results[0].dtype
    low, high = (None if bound is None else as_tensor(g, bound, kind) for bound in (low, high))
    return g.clamp(as_tensor(g, x, kind), low, high)


@aten("clamp_min")
def clamp_min(g: Graph, x: Tensor, low: Operand, *, results: Results) -> Tensor:
    return clamp(g, x, low, results=results)


@aten("clamp_max")
def clamp_max(g: Graph, x: Tensor, high: Operand, *, results: Results) -> Tensor:
    return clamp(g, x, None, high, results=results)


def _ignoring_nan(method: str) -> Any:
    def chosen(g: Graph, x: Operand, y: Operand, *, results: Results) -> Tensor:
        x, y = as_tensors(g, results[0].dtype, x, y)
        if not results[0].dtype.is_float:
            return getattr(g, method)(x, y)
        return g.where(g.isnan(x), y, g.where(g.isnan(y), x, getattr(g, method)(x, y)))

    return chosen


aten("fmax")(_ignoring_nan("maximum"))
aten("fmin")(_ignoring_nan("minimum"))


@aten("logaddexp2")
def logaddexp2(g: Graph, x: Tensor, y: Tensor, *, results: Results) -> Tensor:
    x, y = (g.mul(t, math.log(2)) for t in as_tensors(g, results[0].dtype, x, y))
    return g.mul(g.logaddexp(x, y), 1 / math.log(2))


@aten("lerp")
def lerp(g: Graph, start: Tensor, end: Tensor, weight: Operand, *, results: Results) -> Tensor:
    """Interpolate from the nearer end, as in PyTorch, so that both ends are exact."""
    start, end, weight_ = as_tensors(g, results[0].dtype, start, end, weight)
    span = g.sub(end, start)
    near = g.add(start, g.mul(weight_, span))
    far = g.sub(end, g.mul(span, g.sub(1.0, weight_)))
    if isinstance(weight, (int, float)):
        return near if abs(weight) < 0.5 else far
    return g.where(g.lt(g.abs(weight_), 0.5), near, far)


@aten("addcmul")
def addcmul(g: Graph, x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1, results: Results) -> Tensor:
    x, a, b = as_tensors(g, results[0].dtype, x, a, b)
    return g.add(x, g.mul(_times(g, a, value), b))


@aten("addcdiv")
def addcdiv(g: Graph, x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1, results: Results) -> Tensor:
    x, a, b = as_tensors(g, results[0].dtype, x, a, b)
    return g.add(x, g.div(_times(g, a, value), b))
