"""Functions of one, two or three numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.peers.vocabulary import cast_all, constant_of, is_tensor, needs, rlx_dtype, says, to_float

_SAME = ["abs", "neg", "exp", "log", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "tanh", "atan"]


def _activation(kind: str) -> Any:
    return lambda g, x: g.activation(kind, x)


for _name in _SAME:
    says(_name)(_activation(_name))
says("nn.functional.relu")(lambda g, x, inplace=False: g.relu(x))
says("nn.functional.silu", "nn.functional.silu.complex")(lambda g, x, inplace=False: g.silu(x))
says("nn.functional.gelu")(lambda g, x, approximate="none": g.gelu(x) if approximate == "none" else g.gelu_approx(x))
says("positive", "clone", "contiguous", "resolve_conj", "resolve_neg", "alias_copy")(lambda g, x, **_: x)
says("square")(lambda g, x: x * x)
says("reciprocal")(lambda g, x: 1.0 / x)
says("exp2")(lambda g, x: g.pow(2.0, to_float(g, x)))
says("log2")(lambda g, x: g.log(x) * (1 / math.log(2)))
says("log10")(lambda g, x: g.log(x) * (1 / math.log(10)))
says("sinh", finite=True)(lambda g, x: (g.exp(x) - g.exp(-to_float(g, x))) * 0.5)
says("cosh", finite=True)(lambda g, x: (g.exp(x) + g.exp(-to_float(g, x))) * 0.5)
says("expm1", finite=True)(lambda g, x: g.exp(x) - 1.0)
says("log1p", finite=True)(lambda g, x: g.log(x + 1.0))
says("deg2rad")(lambda g, x: x * (math.pi / 180))
says("rad2deg")(lambda g, x: x * (180 / math.pi))
says("isnan")(lambda g, x: x != x)
says("isinf")(lambda g, x: _infinite(g, x))
says("isfinite")(lambda g, x: ~(_infinite(g, x) | (x != x)))
says("isposinf")(lambda g, x: to_float(g, x) == np.inf)
says("isneginf")(lambda g, x: to_float(g, x) == -np.inf)
says("isreal")(lambda g, x: g.imag(x) == 0.0 if x.dtype.is_complex else x == x)
says("logical_not")(lambda g, x: x == 0)
says("angle", differentiable=False)(lambda g, x: _angle(g, x))
says("real")(lambda g, x: g.real(x) if x.dtype.is_complex else x)
says("imag")(lambda g, x: g.imag(x))
says("conj", "conj_physical")(lambda g, x: g.conjugate(x) if x.dtype.is_complex else x)
says("complex")(lambda g, x, y: g.complex(x, y))
says("polar")(lambda g, x, angle: g.complex(x * g.cos(angle), x * g.sin(angle)))
says("sgn")(lambda g, x: _sgn(g, x))
says("sign")(lambda g, x: _sgn(g, x))
says("add")(lambda g, x, y, alpha=1: x + (y if alpha == 1 else _typed(y, alpha) * y))
says("sub")(lambda g, x, y, alpha=1: x - (y if alpha == 1 else _typed(y, alpha) * y))
says("rsub")(lambda g, x, y, alpha=1: y - (x if alpha == 1 else x * alpha))
says("mul")(lambda g, x, y: x * y)
says("true_divide", "div.no_rounding_mode")(lambda g, x, y, rounding_mode=None: x / y)
says("pow")(lambda g, x, y: g.pow(x, y))
says("float_power")(lambda g, x, y: _float_power(g, x, y))
says("__radd__")(lambda g, x, y: y + x)
says("__rsub__")(lambda g, x, y: y - x)
says("__rmul__")(lambda g, x, y: y * x)
says("__rdiv__")(lambda g, x, y: y / x)
says("__rpow__")(lambda g, x, y: y**x)
says("maximum", "max.binary")(lambda g, x, y: g.maximum(x, y))
says("minimum", "min.binary")(lambda g, x, y: g.minimum(x, y))
says("fmax")(lambda g, x, y: _ignoring_nan(g, g.maximum, x, y))
says("fmin")(lambda g, x, y: _ignoring_nan(g, g.minimum, x, y))
for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    says(_kind)(lambda g, x, y, kind=_kind: g.compare(kind, x, y))
says("logical_and")(lambda g, x, y: (x != 0) & (y != 0))
says("logical_or")(lambda g, x, y: (x != 0) | (y != 0))
says("logical_xor")(lambda g, x, y: (x != 0) != (y != 0))
says("bitwise_not")(lambda g, x: ~_bool(x) if x.dtype.is_bool else -x - 1)
says("bitwise_and", "__rand__")(lambda g, x, y: _bool(x) & _bool(y))
says("bitwise_or", "__ror__")(lambda g, x, y: _bool(x) | _bool(y))
says("bitwise_xor", "__rxor__")(lambda g, x, y: _bool(x) ^ _bool(y))
says("where")(lambda g, x, condition, y: g.where(condition, x, y))
says("masked_fill")(lambda g, x, mask, value: g.where(mask, _full(g, x, value), x))
says("lerp")(lambda g, x, end, weight: x + (end - x) * weight)
says("addcmul")(lambda g, x, a, b, value=1: x + a * b * value)
says("addcdiv")(lambda g, x, a, b, value=1: x + a / b * value)
says("heaviside")(lambda g, x, values: g.where(x == 0, values, g.cast(x > 0, x.dtype)))
says("hypot", finite=True)(lambda g, x, y: g.sqrt(x * x + y * y))
says("special.xlog1py", finite=True, differentiable=False)(
    lambda g, x, y: g.where(_same_nan(g, x, y), 0.0, x * g.log(y + 1.0))
)
says("xlogy", differentiable=False)(lambda g, x, y: g.where(_same_nan(g, x, y), 0.0, x * g.log(y)))
says("logaddexp", finite=True)(lambda g, x, y: g.maximum(x, y) + g.log(1.0 + g.exp(-g.abs(x - y))))
says("logaddexp2", finite=True)(
    lambda g, x, y: g.maximum(x, y) + g.log(1.0 + g.pow(2.0, -g.abs(x - y))) * (1 / math.log(2))
)
says("atan2", differentiable=False, finite=True)(
    lambda g, y, x: _atan2(g, *cast_all(g, to_float(g, y), to_float(g, x)))
)
says("ldexp")(lambda g, x, y: to_float(g, x) * g.pow(2.0, to_float(g, y)))
says("sinc", differentiable=False)(lambda g, x: _sinc(g, to_float(g, x)))
says("special.entr", differentiable=False)(lambda g, x: _entr(g, to_float(g, x)))
says("nan_to_num")(lambda g, x, nan=None, posinf=None, neginf=None: _nan_to_num(g, x, nan, posinf, neginf))
says("clamp", differentiable=False)(lambda g, x, min=None, max=None: _clamp(g, x, min, max))
says("clamp_min", differentiable=False)(lambda g, x, min: g.clamp(x, low=min))
says("clamp_max", differentiable=False)(lambda g, x, max: g.clamp(x, high=max))
says("fill", "full_like")(lambda g, x, value, **kw: g.expand(_full(g, x, value, **kw), x.shape.dims))
says("zeros_like", "zero_")(lambda g, x, **kw: g.expand(_full(g, x, 0, **kw), x.shape.dims))
says("ones_like")(lambda g, x, **kw: g.expand(_full(g, x, 1, **kw), x.shape.dims))


def _bool(x: Any) -> Any:
    if is_tensor(x):
        needs(x.dtype.is_bool, "RLX has no bit operations on integers")
        return x
    needs(isinstance(x, bool), "RLX has no bit operations on integers")
    return x


def _clamp(g: Any, x: Any, *limits: Any) -> Any:
    """Return g.clamp. Integer limits of floats have the dtype of x, as in PyTorch: in RLX f16 and i32 make f32."""
    narrow = [is_tensor(v) and x.dtype.is_float and v.dtype.is_integer for v in limits]
    return g.clamp(x, *(g.cast(v, x.dtype) if cast else v for v, cast in zip(limits, narrow, strict=True)))


def _typed(y: Any, alpha: Any) -> Any:
    """Return PyTorch's alpha, in the dtype of its factor."""
    return alpha


def _infinite(g: Any, x: Any) -> Any:
    if x.dtype.is_complex:
        return _infinite(g, g.real(x)) | _infinite(g, g.imag(x))
    return (g.abs(x) == np.inf) if x.dtype.is_float else (x != x)


def _sgn(g: Any, x: Any) -> Any:
    if x.dtype.is_bool:
        return x
    if x.dtype.is_complex:
        size = g.abs(x)
        return g.where(size == 0.0, 0.0, x / g.where(size == 0.0, 1.0, size))
    sign = g.cast(x > 0, x.dtype) - g.cast(x < 0, x.dtype)
    return g.where(x != x, 0.0, sign) if x.dtype.is_float else sign


def _angle(g: Any, x: Any) -> Any:
    if not x.dtype.is_complex:
        x = to_float(g, x)
        return g.where(x != x, x, g.cast(x < 0, x.dtype) * math.pi)
    return _atan2(g, g.imag(x), g.real(x))


def _atan2(g: Any, y: Any, x: Any) -> Any:
    """Return the angle of a point by its quadrant. -0 is treated as 0."""
    basic = g.atan(y / x)
    turned = g.where(x < 0, g.where(y < 0, basic - math.pi, basic + math.pi), basic)
    return g.where((x == 0) & (y == 0), 0.0, turned)


def _float_power(g: Any, x: Any, y: Any) -> Any:
    kind = "c128" if any(v.dtype.is_complex if is_tensor(v) else isinstance(v, complex) for v in (x, y)) else "f64"
    return g.pow(*(g.cast(v, kind) if is_tensor(v) else constant_of(g, v, rlx_dtype(kind)) for v in (x, y)))


def _ignoring_nan(g: Any, function: Any, x: Any, y: Any) -> Any:
    x, y = cast_all(g, x, y)
    return g.where(x != x, y, g.where(y != y, x, function(x, y)))


def _same_nan(g: Any, x: Any, y: Any) -> Any:
    """Whether x is 0 and y is not NaN."""
    return (x == 0) & (y == y) if is_tensor(x) and is_tensor(y) else (x == 0 if is_tensor(x) else (y == y) & (x == 0))


def _sinc(g: Any, x: Any) -> Any:
    turned = g.where(x == 0, 1.0, x * math.pi)
    return g.where(x == 0, 1.0, g.sin(turned) / turned)


def _entr(g: Any, x: Any) -> Any:
    inside = -x * g.log(g.where(x == 0, 1.0, x))
    return g.where(x != x, x, g.where(x < 0, -np.inf, g.where(x == 0, 0.0, inside)))


def _nan_to_num(g: Any, x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    if not x.dtype.is_inexact:
        return x
    if x.dtype.is_complex:
        return g.complex(*(_nan_to_num(g, part, nan, posinf, neginf) for part in (g.real(x), g.imag(x))))
    top, bottom = (x.dtype.max if posinf is None else posinf), (x.dtype.min if neginf is None else neginf)
    x = g.where(x == np.inf, top, g.where(x == -np.inf, bottom, x))
    return g.where(x != x, 0.0 if nan is None else nan, x)


def _full(g: Any, x: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    if is_tensor(value):
        return g.cast(value, x.dtype)
    return constant_of(g, value, x.dtype if dtype is None else rlx_dtype(dtype))


@says("floor", differentiable=False)
def _floor(g: Any, x: Any) -> Any:
    if not x.dtype.is_float:
        return x
    near = g.round(x)
    return g.where(near > x, near - 1.0, near)


@says("ceil", differentiable=False)
def _ceil(g: Any, x: Any) -> Any:
    return -_floor(g, -x) if x.dtype.is_float else x


@says("trunc", differentiable=False)
def _trunc(g: Any, x: Any) -> Any:
    return g.where(x < 0, _ceil(g, x), _floor(g, x)) if x.dtype.is_float else x


def _whole_quotient(g: Any, x: Any, y: Any, toward: Any) -> Any:
    needs(all(v.dtype.is_float for v in (x, y) if is_tensor(v)), "RLX has no division of integers")
    return toward(g, x / y)


says("frac", differentiable=False, finite=True)(lambda g, x: x - _trunc(g, x))
says("round", "round.decimals_0", differentiable=False)(lambda g, x, decimals=0: _round(g, x, decimals))
says("div.floor_rounding", "floor_divide", differentiable=False, finite=True)(
    lambda g, x, y, rounding_mode="floor": _whole_quotient(g, x, y, _floor)
)
says("div.trunc_rounding", differentiable=False, finite=True)(
    lambda g, x, y, rounding_mode="trunc": _whole_quotient(g, x, y, _trunc)
)


def _round(g: Any, x: Any, decimals: int) -> Any:
    needs(decimals == 0, "RLX rounds to whole numbers")
    return g.round(x) if x.dtype.is_float else x


@says("isclose", finite=True, differentiable=False)
def _isclose(g: Any, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    needs(x.dtype.is_inexact, "the difference of integers wraps")
    near = g.abs(x - y) <= g.abs(y) * rtol + atol
    return near | (x == y) | ((x != x) & (y != y)) if equal_nan else near | (x == y)


for _name, _target in {
    "bfloat16": "bf16",
    "bool": "bool",
    "byte": "u8",
    "char": "i8",
    "double": "f64",
    "float": "f32",
    "half": "f16",
    "int": "i32",
    "long": "i64",
    "short": "i16",
    "cfloat": "c64",
}.items():
    says(_name)(lambda g, x, to=_target, **_: g.cast(x, to))


@says("to")
def _to(g: Any, x: Any, *args: Any, dtype: Any = None, **_: Any) -> Any:
    import torch

    for value in (*args, dtype):
        if isinstance(value, torch.dtype):
            return g.cast(x, rlx_dtype(value))
        if is_tensor(value):
            return g.cast(x, value.dtype)
    return x


@says("view_as_real")
def _view_as_real(g: Any, x: Any) -> Any:
    return g.concat([g.reshape(p, (*x.shape.dims, 1)) for p in (g.real(x), g.imag(x))], axis=-1)


@says("view_as_complex")
def _view_as_complex(g: Any, x: Any) -> Any:
    needs(x.dtype.name in ("f32", "f64"), "the parts of complex numbers are f32 or f64")
    return g.complex(x[..., 0], x[..., 1])
