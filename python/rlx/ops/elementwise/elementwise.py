"""Elementwise ops: activations, casts, binary ops, comparisons, choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.dtype import COMPLEXES, EVERY, FLOATS, INTEGERS, NUMBERS, REAL, DType, dtype, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, sample
from rlx.ir.shape import Shape, as_dtype
from rlx.numerics.arithmetic import COMPARISONS
from rlx.ops import rules
from rlx.ops.elementwise import activation, arithmetic
from rlx.ops.elementwise.bits import SAME_BITS
from rlx.ops.lift import Scalar, broadcast, cast, common, comparable, constant_scalar, inexact, same_dtype, tensor_like
from rlx.support.errors import ShapeError


class Activation(Card, op="activation"):
    kinds = tuple(activation.ACTIVATIONS)

    def infer(self, x: Shape, *, kind: str) -> Shape:
        if x.dtype.is_integer and kind not in activation.INTEGER:
            raise ShapeError(f"{kind} takes floats, not {x.dtype.name}", hint="cast to a float dtype first")
        if x.dtype.is_complex:
            if kind not in activation.COMPLEX:
                hint = (
                    f"of complex numbers it is rlx.complex_function of kind {kind}"
                    if kind in activation.COMPOSED
                    else None
                )
                raise ShapeError(f"{kind} is not defined for {x.dtype.name}", hint=hint)
            return x.with_dtype(x.dtype.part) if kind == "abs" else x
        return x

    def evaluate(self, x: np.ndarray, *, kind: str) -> np.ndarray:
        return activation.ACTIVATIONS[kind](x)

    def build(self, b: Builder, kind: str, x: TensorLike) -> Tensor:
        x = tensor_like(b, x, f32)
        name = getattr(kind, "value", kind)
        if x.dtype.is_bool and name == "neg":
            raise ShapeError("neg is not defined for bool", hint="~x is the logical not; cast it to negate a number")
        if not x.dtype.is_inexact and (name in activation.WHOLE or (x.dtype.is_bool and name == "abs")):
            return x  # returned unchanged
        if (x.dtype.is_integer and name not in activation.INTEGER) or x.dtype.is_bool:
            x = inexact(b, x)
        if x.dtype.is_complex:
            if name in activation.COMPOSED:
                return b.emit("complex_function", (x,), kind=name)
            if name == "silu":
                return x * b.sigmoid(x)
            if name == "gelu_approx":
                return 0.5 * x * (1.0 + b.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)))
            if name == "round":
                return b.complex(b.round(b.real(x)), b.round(b.imag(x)))
        return b.emit("activation", (x,), kind=name)

    def has_derivative(self, *, kind: str) -> bool:
        return kind not in activation.STEPS

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Sequence[Tensor], *, kind: str) -> Tensor:
        (x,), (dx,), (y,) = operands, tangents, results
        if kind == "abs" and x.dtype.is_complex:
            return b.real(dx * b.conjugate(activation.direction(b, x, y)))
        if x.dtype.is_complex or kind in activation.UNIT + activation.STEPS:
            return activation.through(b, kind, x, y, dx, adjoint=False)
        return b.emit("activation_backward", (x, dx), kind=kind)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, kind: str) -> tuple[Tensor]:
        (x,), (dy,), (y,) = operands, cotangents, results
        if kind == "abs" and x.dtype.is_complex:
            return (activation.direction(b, x, y) * b.cast(dy, x.dtype),)
        return (activation.through(b, kind, x, y, dy, adjoint=True),)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        base = super().cost(operands, results, attributes)
        factor = 1 if self.spec.has_trait("cheap", attributes) else activation.TRANSCENDENTAL
        return type(base)(base.flops * factor, base.bytes)

    def samples(self) -> Iterable[OpSample]:
        low = {"log": 0.01, "log2": 0.01, "log10": 0.01, "log1p": -0.9, "sqrt": 0.0, "rsqrt": 0.05, "acosh": 1.05}
        for kind in self.kinds:
            high = {"tan": 1.4, "asin": 0.95, "acos": 0.95, "atanh": 0.95}.get(kind, 4.0)
            dtypes = [*FLOATS, *(INTEGERS if kind in activation.INTEGER else ())]
            dtypes += COMPLEXES if kind in activation.COMPLEX else ()
            bounds: Attributes = {"low": low.get(kind, -high), "high": high}
            # IREE's f32 tanh has an error of up to 4 ulp. All other functions have an error of at most 2 ulp.
            loose = 2.0 if kind == "tanh" else 1.0
            yield sample(SampleOperand((3, 5), **bounds), kind=kind, dtypes=dtypes, tolerance=loose)
            yield sample(SampleOperand(("n", 4), **bounds), kind=kind, dtypes=("f32",), tolerance=loose)
        yield sample((0, 4), kind="gelu", dtypes=("f32",))
        yield sample((), kind="silu", dtypes=("f32",))


class Cast(Card, op="cast"):
    def infer(self, x: Shape, *, dtype: DType) -> Shape:
        return x.with_dtype(dtype)

    def evaluate(self, x: np.ndarray, *, dtype: DType) -> np.ndarray:
        return convert(x, dtype)

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        names = (operands[0].dtype.name, results[0].dtype.name)
        return [(0, 0) if names[0] == names[1] or names in SAME_BITS else None]

    def build(self, b: Builder, x: TensorLike, dtype: DTypeLike) -> Tensor:
        kind = as_dtype(dtype)
        return cast(b, tensor_like(b, x, kind), kind)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, dtype: DType
    ) -> tuple[Tensor]:
        return (cast(b, cotangents[0], operands[0].dtype),)

    def samples(self) -> Iterable[OpSample]:
        for target in EVERY:
            yield sample(SampleOperand((3, 5), low=-3, high=90), dtype=dtype(target), dtypes=EVERY)
        yield sample(SampleOperand((40,), low=-5e3, high=5e3), dtype=dtype("i8"), dtypes=("f32", "f64", "i32", "i64"))
        yield sample(SampleOperand((40,), low=-5e3, high=5e3), dtype=dtype("u8"), dtypes=("f32", "f64", "i32", "i64"))
        yield sample((0, 2), dtype=dtype("i32"), dtypes=("f32",))
        yield sample(("n",), dtype=dtype("f16"), dtypes=("f32",))


def convert(x: np.ndarray, to: DType) -> np.ndarray:
    """Convert an array with the semantics of `rlx.cast`."""
    if to.is_bool:
        return x != 0
    if x.dtype.kind == "c" and not to.is_complex:
        x = np.real(x)
    source = dtype(x.dtype)
    if to.is_integer and source.is_float:
        low, high = to.min, to.max
        wide = np.trunc(x.astype(np.float64))
        inside = np.where((wide >= low) & (wide <= float(high)), wide, 0)
        # float(i64.max) rounds up to 2^63, which does not fit: compare with >= and saturate.
        result = np.where(inside >= float(high) + (to.bits < 64), 0, inside).astype(to.compute.numpy)
        result = np.where(wide >= float(high), to.compute.numpy.type(high), result)
        return np.where(wide <= float(low), to.compute.numpy.type(low), result).astype(to.numpy)
    if to.is_float and not to.is_numpys_own:  # NumPy's own casts round once; those of ml_dtypes go through f32
        if source.is_integer and source.bits > 16:
            x = _with_digits_of_f64(x).astype(np.float64)
        if x.dtype == np.float64:
            x = _rounded_to_odd(x)
    if source.storage:
        x = x.astype(source.compute.numpy)
    return x.astype(to.numpy)


def _with_digits_of_f64(x: np.ndarray) -> np.ndarray:
    """Return integers with at most 53 binary digits. The last digit is 1 if digits are lost (see `_rounded_to_odd`)."""
    if x.dtype.itemsize < 8:
        return x
    last = x.dtype.type(0x7FF)
    shortened = (x & ~last) | ((x & last) != 0) * x.dtype.type(0x800)
    return np.where((x >= (0 if x.dtype.kind == "u" else -(2**53))) & (x <= 2**53), x, shortened)


def _rounded_to_odd(x: np.ndarray) -> np.ndarray:
    """Return f64 as f32 with the last bit set if digits are lost. Rounding the result again equals rounding once."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(x))  # toward zero
    lost = np.isfinite(x) & (near.astype(np.float64) != x)
    return (bits.astype(np.uint32) | lost).view(np.float32)


class Binary(Card, op="binary"):
    kinds = tuple(arithmetic.BINARIES)

    def infer(self, lhs: Shape, rhs: Shape, *, kind: str) -> Shape:
        shared = same_dtype(lhs, rhs)
        if shared.is_bool and kind not in arithmetic.OF_BOOLS:
            raise ShapeError(f"{kind} is not defined for bool")
        if shared.is_complex and kind in ("max", "min", "rem"):
            raise ShapeError(f"{kind} is not defined for {shared.name}: complex numbers have no order")
        if not shared.is_float and kind in arithmetic.OF_FLOATS:
            raise ShapeError(f"{kind} takes floats, not {shared.name}", hint="cast to a float dtype first")
        if not shared.is_integer and kind in arithmetic.OF_INTEGERS:
            raise ShapeError(f"{kind} takes integers, not {shared.name}")
        if shared.is_integer and kind == "div":
            raise ShapeError(f"div takes floats, not {shared.name}", hint="cast to a float dtype first")
        return Shape(broadcast(lhs.dims, rhs.dims), shared)

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray, *, kind: str) -> np.ndarray:
        if lhs.dtype == np.bool_:
            return arithmetic.OF_BOOLS[kind](lhs, rhs)
        return arithmetic.BINARIES[kind](lhs, rhs)

    def build(self, b: Builder, kind: str, lhs: TensorLike, rhs: TensorLike) -> Tensor:
        lhs, rhs = common(b, lhs, rhs)
        name = {"maximum": "max", "minimum": "min"}.get(kind, getattr(kind, "value", kind))
        if name in ("div", *arithmetic.OF_FLOATS):
            lhs, rhs = inexact(b, lhs), inexact(b, rhs)
        return b.emit("binary", (lhs, rhs), kind=name)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Sequence[Tensor], *, kind: str
    ) -> Tensor | None:
        (lhs, rhs), (y,) = operands, results
        terms = [
            None if d is None else _partial(b, kind, side, lhs, rhs, y)(d, False) for side, d in enumerate(tangents)
        ]
        first, second = tangents
        if kind == "sub" and first is not None and second is not None:
            terms = [first - second]
        result = rules.total(b, terms)
        return result if result is None or result.shape == y.shape else b.expand(result, y.shape)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, kind: str
    ) -> rules.Cotangents:
        (lhs, rhs), (y,), (dy,) = operands, results, cotangents

        def cotangent(side: int) -> Tensor:
            return rules.unbroadcast(b, _partial(b, kind, side, lhs, rhs, y)(dy, True), operands[side].shape)

        return [partial(cotangent, side) for side in (0, 1)]

    def samples(self) -> Iterable[OpSample]:
        for kind in self.kinds:
            dtypes = REAL if kind in ("max", "min", "rem") else NUMBERS
            if kind == "div":
                dtypes = (*FLOATS, *COMPLEXES)
            if kind in arithmetic.OF_FLOATS:
                dtypes = FLOATS
            if kind in arithmetic.OF_INTEGERS:
                dtypes = INTEGERS
            if kind in arithmetic.OF_BOOLS:
                dtypes = (*dtypes, "bool")
            base = SampleOperand((3, 5), low=0.1, high=4) if kind == "pow" else SampleOperand((3, 5), low=-4, high=4)
            power = SampleOperand((3, 5), low=0, high=3) if kind == "pow" else SampleOperand((3, 5), low=0.5, high=4)
            yield sample(base, power, kind=kind, dtypes=dtypes)
        yield sample((3, 1, 5), (4, 1), kind="add", dtypes=("f32", "i32"))
        yield sample((), (4, 3), kind="mul", dtypes=("f32",))
        yield sample((1, 1), (4, 3), kind="sub", dtypes=("f32",))
        yield sample((0, 3), (1, 3), kind="add", dtypes=("f32",))
        yield sample(("n", 3), (3,), kind="mul", dtypes=("f32",))
        yield sample(("n", 1, "m"), (4, 1), kind="max", dtypes=("f32",))


def _partial(b: Builder, kind: str, side: int, lhs: Tensor, rhs: Tensor, y: Tensor) -> Callable[[Tensor, bool], Tensor]:
    """Return the map of a tangent (or, if adjoint, of a cotangent) through one side of a binary op.

    If both sides attain the extremum, each side gets half of the derivative, as with a central difference.
    """

    def times(d: Tensor, factor: Tensor, adjoint: bool) -> Tensor:
        return d * (b.conjugate(factor) if adjoint and factor.dtype.is_complex else factor)

    def extremum(d: Tensor, adjoint: bool) -> Tensor:
        this_side, other_side = (lhs, rhs) if side == 0 else (rhs, lhs)
        wins = this_side > other_side if kind == "max" else this_side < other_side
        return b.where(wins, d, b.where(this_side == other_side, d * 0.5, 0.0))

    def power(d: Tensor, adjoint: bool) -> Tensor:
        exponent = rules.known_scalar(rhs)
        if side == 0 and exponent is not None:
            return times(d, (lhs if exponent == 2 else b.pow(lhs, exponent - 1)) * exponent, adjoint)
        if side == 0:
            # For exponent 0 the derivative is 0, but its derivative with respect to the exponent is 1/lhs.
            flat = (rhs == 0.0) & b.bitwise_not(b.abs(lhs) > 1e-30)
            return times(d, b.where(flat, 0.0, rhs * b.pow(lhs, b.where(flat, 1.0, rhs - 1.0))), adjoint)
        zero = lhs == 0.0
        return times(d, b.where(zero, 0.0, b.log(b.where(zero, 1.0, lhs)) * y), adjoint)

    def quotient(d: Tensor, adjoint: bool) -> Tensor:
        divisor = b.conjugate(rhs) if adjoint and rhs.dtype.is_complex else rhs
        return d / divisor if side == 0 else -(times(d, y, adjoint) / divisor)

    through: dict[str, Callable[[Tensor, bool], Tensor]] = {
        "add": lambda d, adjoint: d,
        "sub": lambda d, adjoint: d if side == 0 else -d,
        "mul": lambda d, adjoint: times(d, rhs if side == 0 else lhs, adjoint),
        "div": quotient,
        "max": extremum,
        "min": extremum,
        "pow": power,
        "atan2": lambda d, adjoint: times(d, (rhs if side == 0 else -lhs) / (lhs * lhs + rhs * rhs), adjoint),
        "rem": lambda d, adjoint: d if side == 0 else -times(d, b.trunc(lhs / rhs), adjoint),
    }
    return through[kind]


class Compare(Card, op="compare"):
    kinds = tuple(COMPARISONS)

    def infer(self, lhs: Shape, rhs: Shape, *, kind: str) -> Shape:
        shared = same_dtype(lhs, rhs)
        if shared.is_complex and kind not in ("eq", "ne"):
            raise ShapeError(f"{kind} is not defined for {shared.name}: complex numbers have no order")
        return Shape(broadcast(lhs.dims, rhs.dims), "bool")

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray, *, kind: str) -> np.ndarray:
        return COMPARISONS[kind](lhs, rhs)

    def build(self, b: Builder, kind: str, lhs: TensorLike, rhs: TensorLike) -> Tensor:
        return b.emit("compare", comparable(b, lhs, rhs), kind=getattr(kind, "value", kind))

    def samples(self) -> Iterable[OpSample]:
        real = [*REAL, "bool"]
        for kind in self.kinds:
            dtypes = [*real, *COMPLEXES] if kind in ("eq", "ne") else real
            yield sample(
                SampleOperand((4, 6), low=0, high=3), SampleOperand((4, 6), low=0, high=3), kind=kind, dtypes=dtypes
            )
        yield sample((4, 1), (6,), kind="lt", dtypes=("f32",))
        yield sample(("n", 1), (6,), kind="ge", dtypes=("f32",))


class Where(Card, op="where"):
    def infer(self, condition: Shape, on_true: Shape, on_false: Shape) -> Shape:
        shared = same_dtype(on_true, on_false)
        return Shape(broadcast(condition.dims, on_true.dims, on_false.dims), shared)

    def evaluate(self, condition: np.ndarray, on_true: np.ndarray, on_false: np.ndarray) -> np.ndarray:
        return np.where(condition, on_true, on_false)

    def build(self, b: Builder, condition: TensorLike, on_true: TensorLike, on_false: TensorLike) -> Tensor:
        if isinstance(on_true, Scalar) and isinstance(on_false, Scalar):
            on_true = tensor_like(b, on_true, dtype("bool"))  # bool is the weakest: each number keeps its dtype
        on_true, on_false = common(b, on_true, on_false)
        return b.emit("where", (tensor_like(b, condition, dtype("bool")), on_true, on_false))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tangents, results: Sequence[Tensor]) -> Tensor:
        condition, _, _ = operands
        zero = constant_scalar(b, 0, results[0].dtype)
        sides = [zero if d is None else d for d in tangents[1:]]
        result = b.emit("where", (condition, *sides))
        return result if result.shape == results[0].shape else b.expand(result, results[0].shape)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (condition, on_true, on_false), (dy,) = operands, cotangents

        def cotangent(true: bool) -> Tensor:
            zero = constant_scalar(b, 0, dy.dtype)
            chosen = b.emit("where", (condition, dy, zero) if true else (condition, zero, dy))
            return rules.unbroadcast(b, chosen, (on_true if true else on_false).shape)

        return None, lambda: cotangent(True), lambda: cotangent(False)

    def samples(self) -> Iterable[OpSample]:
        yield sample(SampleOperand((3, 5), "bool"), (3, 5), (3, 5), dtypes=EVERY)
        yield sample(SampleOperand((3, 1), "bool"), (5,), (), dtypes=("f32",))
        yield sample(SampleOperand((), "bool"), (2, 3), (2, 3), dtypes=("f32",))
        yield sample(SampleOperand(("n", 1), "bool"), ("n", 3), (3,), dtypes=("f32",))


class StopGradient(Card, op="stop_gradient"):
    def infer(self, x: Shape) -> Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x

    def decompose(self, b: Builder, x: Tensor) -> Tensor:
        return x

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        return b.emit("stop_gradient", (tensor_like(b, x, f32),))

    def has_derivative(self) -> bool:
        return False

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> None:
        return None

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> tuple[None]:
        return (None,)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), dtypes=EVERY)
        yield sample(("n",), dtypes=("f32",))


def _check_limits(low: Any, high: Any) -> None:
    """Check limits that are numbers. The values of tensors are not known.

    Raises:
        ShapeError: A limit is NaN, or the lower one is greater.
    """
    limits: dict[str, Any] = {
        name: v for name, v in (("low", low), ("high", high)) if isinstance(v, (*Scalar, np.generic))
    }
    for name, value in limits.items():
        if value != value:
            raise ShapeError(f"{name} must be a number, got {value!r:.60}")
    if len(limits) == 2 and not isinstance(low, complex) and not isinstance(high, complex) and low > high:
        raise ShapeError(f"low = {low!r:.60} is greater than high = {high!r:.60}")


class Clamp(Card, op="clamp"):
    def infer(self, x: Shape, low: Shape, high: Shape) -> Shape:
        same_dtype(x, low, high)
        for name, bound in (("low", low), ("high", high)):
            if broadcast(x.dims, bound.dims) != x.dims:
                raise ShapeError(f"{name}, {bound}, does not broadcast to the shape of x, {x}")
        return x

    def evaluate(self, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum(x, low), high)

    def decompose(self, b: Builder, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return b.minimum(b.maximum(x, low), high)

    def build(self, b: Builder, x: TensorLike, low: TensorLike | None = None, high: TensorLike | None = None) -> Tensor:
        _check_limits(low, high)
        if low is None:
            if high is None:
                raise ShapeError("expected low, high, or both")
            return b.minimum(x, high)
        if high is None:
            return b.maximum(x, low)
        return b.emit("clamp", common(b, x, low, high))

    def samples(self) -> Iterable[OpSample]:
        yield sample(SampleOperand((3, 5), low=-4, high=9), (3, 5), (3, 5), dtypes=REAL)
        yield sample((3, 5), (), (), dtypes=("f32",))
        yield sample(("n", 5), (5,), ("n", 1), dtypes=("f32",))
