"""Lowering rules for elementwise ops, constants and iota."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, f64
from rlx.ir.dtype import i64 as i64_dtype
from rlx.ir.op.attributes import elements_to_mlir
from rlx.ir.shape import Shape
from rlx.numerics import complex_functions, functions, trigonometry
from rlx.numerics.coefficients import NORMAL, NORMAL_LIMIT
from rlx.numerics.scalars import Scalars, signless, storage_type
from rlx.numerics.series import horner
from rlx.numerics.words import nearest_even, with_sign_of
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, tensor_type
from rlx.targets.linalg.packing import packed_constant
from rlx.targets.linalg.rules import Lowered, lowers


@lowers("constant")
def constant(low: LoopEmitter, results: list[Shape], *, value: np.ndarray) -> mlir.Value:
    if value.size == 0:
        return low.empty(results[0].dims, storage_type(results[0].dtype))
    found = packed_constant(low, value, results[0])
    if found is not None:
        return found
    return low.arith.constant(tensor_type(results[0]), elements_to_mlir(signless(value, results[0].dtype)))


@lowers("iota")
def iota(low: LoopEmitter, results: list[Shape], *, shape: tuple[Dim, ...], axis: int, dtype: DType) -> mlir.Value:
    rank = len(shape)
    scalars = Scalars(dtype)
    i64 = low.ir.IntegerType.get_signless(64)

    def body(_: mlir.Value) -> mlir.Value:
        position = low.arith.index_cast(i64, low.scalar_index(axis))
        return scalars.convert(position, i64_dtype)

    out = (low.empty(shape, storage_type(dtype)), tuple(range(rank)))
    return low.generic([], [out], [PARALLEL] * rank, body)


@lowers("dim_size")
def dim_size(low: LoopEmitter, results: list[Shape], *, size: Any) -> mlir.Value:
    i32 = low.ir.IntegerType.get_signless(32)
    scalar = low.arith.index_cast(i32, low.size(size[0]))
    return low.tensor.from_elements(tensor_type(results[0]), [scalar])


@lowers("cast")
def cast(low: LoopEmitter, results: list[Shape], x: Lowered, *, dtype: DType) -> mlir.Value:
    if storage_type(dtype) == storage_type(x.dtype) and not (dtype.storage or x.dtype.storage):
        return x.value
    scalars = Scalars(dtype)
    return low.map(results[0].dims, storage_type(dtype), [x], lambda value: scalars.convert(value, x.shape.dtype))


@lowers("bitcast")
def bitcast(low: LoopEmitter, results: list[Shape], x: Lowered, *, dtype: DType) -> mlir.Value:
    element = storage_type(dtype)
    if element == storage_type(x.shape.dtype):
        return x.value
    return low.map(results[0].dims, element, [x], lambda value: mlir.dialect("arith").bitcast(element, value))


@lowers("binary")
def binary(low: LoopEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, kind: str) -> mlir.Value:
    s = Scalars(lhs.shape.dtype)

    def body(a: mlir.Value, b: mlir.Value) -> mlir.Value:
        a, b = s.enter(a), s.enter(b)
        return s.leave(_combined(s, kind, a, b))

    return low.map(results[0].dims, storage_type(results[0].dtype), [lhs, rhs], body)


def _combined(s: Scalars, kind: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """A binary function of computed scalars."""
    if kind == "pow":
        return power(s, a, b)
    if kind == "atan2":
        return trigonometry.atan2(s, a, b)
    return getattr(s.arith, f"{kind}i")(a, b) if kind in ("and", "or", "xor") else getattr(s, kind)(a, b)


def power(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """`a**b` on computed scalars."""
    if s.dtype.is_complex:
        return complex_functions.power(s, a, b)
    if s.dtype.is_float:
        return functions.power(s, a, b)
    return _integer_power(s, a, b)


def _integer_power(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """Square and multiply over all bits of the exponent, without branches. Negative exponents truncate."""
    bits = s.dtype.bits
    one, zero = s.constant(1), s.constant(0)
    result, base = one, a
    for bit in range(bits - 1 if s.dtype.is_signed else bits):
        taken = s.compare("ne", s.arith.andi(s.arith.shrui(b, s.constant(bit)), one), zero)
        result = s.mul(result, s.select(taken, base, one))
        base = s.mul(base, base)
    if not s.dtype.is_signed:
        return result
    odd = s.compare("ne", s.arith.andi(b, one), zero)
    minus = s.constant(-1)
    quotient = s.select(s.compare("eq", a, minus), s.select(odd, minus, one), zero)
    quotient = s.select(s.compare("eq", a, one), one, quotient)
    return s.select(s.compare("lt", b, zero), quotient, result)


@lowers("compare")
def compare(low: LoopEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, kind: str) -> mlir.Value:
    s = Scalars(lhs.shape.dtype)
    element = storage_type(results[0].dtype)
    return low.map(results[0].dims, element, [lhs, rhs], lambda a, b: s.compare(kind, s.enter(a), s.enter(b)))


@lowers("where")
def where(
    low: LoopEmitter, results: list[Shape], condition: Lowered, on_true: Lowered, on_false: Lowered
) -> mlir.Value:
    element = storage_type(results[0].dtype)
    return low.map(results[0].dims, element, [condition, on_true, on_false], low.arith.select)


@lowers("activation")
def activation(low: LoopEmitter, results: list[Shape], x: Lowered, *, kind: str) -> mlir.Value:
    s = Scalars(x.shape.dtype)

    def body(value: mlir.Value) -> mlir.Value:
        if x.shape.dtype.is_complex:
            return complex_functions.activation(s, kind, value)
        return s.leave(activate(s, kind, s.enter(value)))

    return low.map(results[0].dims, storage_type(results[0].dtype), [x], body)


@lowers("popcount")
def popcount(low: LoopEmitter, results: list[Shape], x: Lowered) -> mlir.Value:
    return low.map(results[0].dims, storage_type(results[0].dtype), [x], mlir.dialect("math").ctpop)


def activate(s: Scalars, kind: str, x: mlir.Value) -> mlir.Value:
    """An activation on a computed real scalar."""
    if kind in _STRUCTURAL:
        return _STRUCTURAL[kind](s, x)
    if kind in functions.FUNCTIONS:
        return functions.FUNCTIONS[kind](s, x)
    if kind in _COMPOSED:
        return _COMPOSED[kind](s, x)
    return getattr(s.math, kind)(x)


def _absolute(s: Scalars, x: mlir.Value) -> mlir.Value:
    if s.dtype.is_float:
        return s.math.absf(x)
    return s.max(x, s.neg(x)) if s.dtype.is_signed else x


def _sigmoid(s: Scalars, x: mlir.Value) -> mlir.Value:
    one = s.constant(1.0)
    return s.div(one, s.add(one, activate(s, "exp", s.neg(x))))


def _zero_at_minus_infinity(s: Scalars, x: mlir.Value, value: mlir.Value) -> mlir.Value:
    """Replace a value at -inf by -0, the limit of x·sigmoid(x) and similar functions. x·0 would be NaN there."""
    at_limit = s.compare("eq", x, s.constant(-math.inf))
    return s.select(at_limit, s.constant(-0.0), value)


def _silu(s: Scalars, x: mlir.Value) -> mlir.Value:
    # One division: x·sigmoid(x) would lose small results where sigmoid(x) alone is subnormal. Where exp(-x) is near
    # infinity, the result x·exp(x) is still a normal number.
    near = s.div(x, s.add(s.constant(1.0), activate(s, "exp", s.neg(x))))
    root = activate(s, "exp", s.mul(x, s.constant(0.5)))
    far = s.compare("lt", x, s.constant(-700.0 if s.dtype is f64 else -80.0))
    return _zero_at_minus_infinity(s, x, s.select(far, s.mul(s.mul(x, root), root), near))


def _gelu(s: Scalars, x: mlir.Value) -> mlir.Value:
    if s.dtype.name == "f32":
        return _gelu_by_polynomial(s, x)
    inner = s.add(s.constant(1.0), functions.erf(s, s.mul(x, s.constant(math.sqrt(0.5)))))
    return _zero_at_minus_infinity(s, x, s.mul(s.mul(s.constant(0.5), x), inner))


def _gelu_by_polynomial(s: Scalars, x: mlir.Value) -> mlir.Value:
    """x·Φ(x), with Φ the normal distribution; -0 at minus infinity. The error is at most 2e-7 of |x|."""
    place = s.math.fma(s.mul(x, x), s.constant(2 / NORMAL_LIMIT**2), s.constant(-1.0))
    near = s.mul(x, s.math.fma(x, horner(s, place, NORMAL), s.constant(0.5)))
    far = s.select(s.compare("gt", x, s.constant(0.0)), x, s.constant(-0.0))
    return s.select(s.compare("gt", s.math.absf(x), s.constant(NORMAL_LIMIT)), far, near)


def _gelu_approx(s: Scalars, x: mlir.Value) -> mlir.Value:
    cube = s.mul(s.mul(x, x), x)
    inner = s.mul(s.constant(math.sqrt(2 / math.pi)), s.add(x, s.mul(s.constant(0.044715), cube)))
    bracket = s.add(s.constant(1.0), activate(s, "tanh", inner))
    return _zero_at_minus_infinity(s, x, s.mul(s.mul(s.constant(0.5), x), bracket))


def _ceil(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The ceiling; for f64 by `math.floor` (`library-functions`)."""
    return s.neg(s.math.floor(s.neg(x))) if s.dtype.name == "f64" else s.math.ceil(x)


def _round(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The nearest integer, with ties to even (`slow-rounding`)."""
    return with_sign_of(s, nearest_even(s, s.math.absf(x)), x)


_STRUCTURAL: dict[str, Callable[[Scalars, mlir.Value], mlir.Value]] = {
    "neg": lambda s, x: s.neg(x),
    "abs": _absolute,
    "relu": lambda s, x: s.max(x, s.constant(0)),
    "round": _round,
    "ceil": _ceil,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_approx": _gelu_approx,
}
_COMPOSED: dict[str, Callable[[Scalars, mlir.Value], mlir.Value]] = {
    "sqrt": lambda s, x: s.math.sqrt(x),
    "rsqrt": lambda s, x: s.div(s.constant(1.0), s.math.sqrt(x)),
}


__all__ = ["activate", "power"]
