"""Complex numbers: construction from parts, real and imaginary part, conjugate, squared modulus, elementary functions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dtype import c64, dtype, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.elementwise.activation import TRANSCENDENTAL
from rlx.ops.elementwise.complex_functions import COMPOSITIONS, DERIVATIVES, evaluated
from rlx.ops.lift import Scalar, broadcast, cast, common, constant_scalar, same_dtype, tensor_like
from rlx.support.errors import ShapeError


def as_part(b: Builder, value: TensorLike) -> Tensor:
    """Return a real number or tensor in the dtype of a part of a complex number that can hold it: f32 or f64.

    Raises:
        ShapeError: The value is complex.
    """
    x = tensor_like(b, value, f32)
    if x.dtype.is_complex:
        hint = "take real(x) or imag(x) first"
        raise ShapeError(f"a part of a complex number is real, not {x.dtype.name}", hint=hint)
    return cast(b, x, x.dtype.complex.part)


def as_complex(b: Builder, value: TensorLike) -> Tensor:
    """Return a number or tensor as c64 or c128; a real value has zeros as imaginary parts."""
    x = tensor_like(b, value, c64)
    return cast(b, x, x.dtype.complex)


class Complex(Card, op="complex"):
    def infer(self, real: Shape, imag: Shape) -> Shape:
        return Shape(broadcast(real.dims, imag.dims), same_dtype(real, imag).complex)

    def evaluate(self, real: np.ndarray, imag: np.ndarray) -> np.ndarray:
        result = np.empty(np.broadcast_shapes(real.shape, imag.shape), dtype(real.dtype).complex.numpy)
        result.real, result.imag = real, imag  # a sum would turn an infinite imaginary part into NaN
        return result

    def build(self, b: Builder, real: TensorLike, imag: TensorLike) -> Tensor:
        lhs, rhs = (
            common(b, real, imag) if not isinstance(real, Scalar) or not isinstance(imag, Scalar) else (real, imag)
        )
        return b.emit("complex", (as_part(b, lhs), as_part(b, rhs)))

    linear = ("real imag",)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (real, imag), (dy,) = operands, cotangents
        return (
            lambda: rules.unbroadcast(b, b.real(dy), real.shape),
            lambda: rules.unbroadcast(b, b.imag(dy), imag.shape),
        )

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), (3, 5), dtypes=("f32", "f64"))
        yield sample((3, 1, 2), (4, 1), dtypes=("f32", "f64"))
        yield sample((), (), dtypes=("f32", "f64"))
        yield sample((0, 3), (3,), dtypes=("f32", "f64"))
        yield sample(("n", 3), (1, 3), dtypes=("f32", "f64"))


class Real(Card, op="real"):
    def infer(self, x: Shape) -> Shape:
        return x.with_dtype(x.dtype.part)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(np.real(x))

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        x = tensor_like(b, x, f32)
        return b.emit("real", (x,)) if x.dtype.is_complex else x

    linear = ("x",)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> tuple[Tensor]:
        return (b.complex(cotangents[0], 0.0),)

    def samples(self) -> Iterable[OpSample]:
        return _samples_of_one()


class Imag(Card, op="imag"):
    def infer(self, x: Shape) -> Shape:
        return x.with_dtype(x.dtype.part)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(np.imag(x))

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        x = tensor_like(b, x, f32)
        if x.dtype.is_complex:
            return b.emit("imag", (x,))
        return b.emit("expand", (constant_scalar(b, 0, x.dtype),), shape=x.shape.dims)

    linear = ("x",)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> tuple[Tensor]:
        return (b.complex(0.0, cotangents[0]),)

    def samples(self) -> Iterable[OpSample]:
        return _samples_of_one()


class Conjugate(Card, op="conjugate"):
    def infer(self, x: Shape) -> Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.conjugate(x)

    def decompose(self, b: Builder, x: Tensor) -> Tensor:
        return b.complex(b.real(x), -b.imag(x))

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        x = tensor_like(b, x, f32)
        return b.emit("conjugate", (x,)) if x.dtype.is_complex else x

    linear = ("x",)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> tuple[Tensor]:
        return (b.conjugate(cotangents[0]),)

    def samples(self) -> Iterable[OpSample]:
        return _samples_of_one()


class ComplexNormSq(Card, op="complex_norm_sq"):
    def infer(self, x: Shape) -> Shape:
        return x.with_dtype(x.dtype.part)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        real, imaginary = np.real(x).astype(np.float64), np.imag(x).astype(np.float64)
        return (real * real + imaginary * imaginary).astype(np.real(x).dtype)

    def decompose(self, b: Builder, x: Tensor) -> Tensor:
        real, imaginary = b.real(x), b.imag(x)
        return real * real + imaginary * imaginary

    def build(self, b: Builder, x: TensorLike) -> Tensor:
        return b.emit("complex_norm_sq", (as_complex(b, x),))

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> tuple[Tensor]:
        (x,), double = operands, cotangents[0] * 2.0
        return (b.complex(b.real(x) * double, b.imag(x) * double),)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(3 * results[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        return _samples_of_one()


class ComplexFunction(Card, op="complex_function"):
    def infer(self, x: Shape, *, kind: str) -> Shape:
        return x

    def evaluate(self, x: np.ndarray, *, kind: str) -> np.ndarray:
        return evaluated(kind, x)

    def decompose(self, b: Builder, x: Tensor, *, kind: str) -> Tensor:
        return COMPOSITIONS[kind](b, x)

    def build(self, b: Builder, kind: str, x: TensorLike) -> Tensor:
        return b.emit("complex_function", (as_complex(b, x),), kind=getattr(kind, "value", kind))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, kind: str) -> Tensor:
        return tangents[0] * DERIVATIVES[kind](b, operands[0])

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, kind: str) -> tuple[Tensor]:
        return (cotangents[0] * b.conjugate(DERIVATIVES[kind](b, operands[0])),)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(4 * TRANSCENDENTAL * results[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for kind in COMPOSITIONS:
            yield sample(SampleOperand((3, 5), low=-4, high=4), kind=kind)
            yield sample(SampleOperand(("n", 4), low=-0.5, high=0.5), kind=kind)
        yield sample((), kind="asin")
        yield sample((0, 4), kind="log1p")


def _samples_of_one() -> Iterable[OpSample]:
    yield sample(SampleOperand((3, 5), low=-4, high=4))
    yield sample(())
    yield sample((0, 2))
    yield sample(("n", 4))
