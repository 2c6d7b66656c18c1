"""Fourier transforms of complex numbers, of real numbers, and inverse transforms to real numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product, same
from rlx.ir.dtype import dtype, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Size, TensorLike, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops.elementwise.complex import as_complex, as_part
from rlx.ops.lift import axis_of, check_axis, tensor_like
from rlx.ops.signal import fourier
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer

# The norm of a transform -> the norm of its adjoint. Both have the same scale.
_OF_ADJOINT = {"backward": "forward", "ortho": "ortho", "forward": "backward"}

# The power of the length that scales a transform, by norm: forward, inverse.
_POWERS = {"backward": (0.0, -1.0), "ortho": (-0.5, -0.5), "forward": (-1.0, 0.0)}


def _check_length(x: Shape, axis: int) -> None:
    check_axis(axis, x.rank)
    if x.dims[axis] == 0:
        raise ShapeError(f"axis {axis} of {x} is empty: a transform has at least one element")


def resize_axis(b: Builder, x: Tensor, n: Dim | None, axis: int) -> Tensor:
    """Return an axis cut or padded with zeros at its end to `n` elements, as in NumPy; unchanged if `n` is None.

    Raises:
        ShapeError: `n` is not a positive integer, or the size of the axis is not known.
    """
    if n is None:
        return x
    size = x.shape.dims[axis]
    if not is_integer(n) or n < 1:
        raise ShapeError(f"n must be an integer from 1 on, got {n!r:.60}", hint="the axis is given as axis=…")
    if type(size) is not int:
        raise ShapeError(f"n={n} needs a known size of axis {axis}, which is {size}", hint="pad or slice it before")
    if n <= size:
        return b.narrow(x, axis, 0, int(n))
    return b.pad(x, [(0, int(n) - size if i == axis else 0) for i in range(x.rank)])


def _length_requirement(x: Shape, axis: int) -> list[tuple[Dim, str]]:
    return [(x.dims[axis] - 1, f"axis {axis} is empty: a transform has at least one element")]


def _cost(signal: Shape, length: Dim, flops: float, moved: Dim) -> Cost:
    """Return the cost: `flops·N·log2 N` for each transform, the usual count. A symbolic length counts as 1024."""
    bits = max(1, round(log2(length))) if type(length) is int else 10
    return Cost(int(flops * bits) * signal.num_elements, moved)


class _Rows:
    """Conversion of an axis to the last axis of `[batch, n]`, and back."""

    def __init__(self, b: Builder, dims: tuple[Dim, ...], axis: int):
        self.b, self.axis = b, axis
        self.others = tuple(d for i, d in enumerate(dims) if i != axis)
        rank = len(dims)
        self.last = [*(i for i in range(rank) if i != axis), axis]
        self.back = [*range(axis), rank - 1, *range(axis, rank - 1)]

    def of(self, x: Tensor) -> Tensor:
        b = self.b
        return b.reshape(b.transpose(x, self.last), (product(self.others), x.shape.dims[self.axis]))

    def restored(self, x: Tensor) -> Tensor:
        b = self.b
        return b.transpose(b.reshape(x, (*self.others, x.shape.dims[1])), self.back)


def _transformed(b: Builder, x: fourier.Pair, n: Dim, power: float) -> fourier.Pair:
    """Return the transform of `[batch, n]` times `n**power`."""
    return fourier.transform(b, x, n, n**power) if type(n) is int else fourier.unknown_transform(b, x, n, power)


@dataclass(frozen=True)
class FftOptions(ArgumentGroup):
    """The axis of an `fft`, its direction, and where its factor goes."""

    axis: int
    inverse: bool
    norm: str


@dataclass(frozen=True)
class IrfftOptions(ArgumentGroup):
    """The axis of an `irfft`, the length of its result, and where its factor goes."""

    axis: int
    length: tuple[Dim]
    norm: str


class Fft(Card, op="fft"):
    def infer(self, x: Shape, *, axis: int, **_: object) -> Shape:
        _check_length(x, axis)
        return x

    def requires(self, x: Shape, *, axis: int, **_: object) -> list[tuple[Dim, str]]:
        return _length_requirement(x, axis)

    def evaluate(self, x: np.ndarray, *, transform: FftOptions) -> np.ndarray:
        function = np.fft.ifft if transform.inverse else np.fft.fft
        norm: Any = transform.norm
        return function(x.astype(np.complex128), axis=transform.axis, norm=norm).astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, *, transform: FftOptions) -> Tensor:
        axis, inverse, norm = transform.axis, transform.inverse, transform.norm
        n, rows = x.shape.dims[axis], _Rows(b, x.shape.dims, axis)
        parts = rows.of(b.real(x)), rows.of(b.imag(x))
        parts = _transformed(b, fourier.swapped(parts) if inverse else parts, n, _POWERS[norm][inverse])
        parts = fourier.swapped(parts) if inverse else parts
        return b.complex(rows.restored(parts[0]), rows.restored(parts[1]))

    def build(
        self,
        b: Builder,
        x: TensorLike,
        axis: int = -1,
        inverse: bool = False,
        norm: str | None = "backward",
        *,
        n: int | None = None,
    ) -> Tensor:
        x = as_complex(b, x)
        axis = axis_of(axis, x.rank)
        return b.emit("fft", (resize_axis(b, x, n, axis),), axis=axis, inverse=inverse, norm=norm)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, transform: FftOptions
    ) -> tuple[Tensor]:
        inverse, norm = not transform.inverse, _OF_ADJOINT[transform.norm]
        return (b.emit("fft", cotangents, axis=transform.axis, inverse=inverse, norm=norm),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, **attributes: Any) -> Tensor:
        return b.emit("fft", operands, axis=axis + 1, **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _cost(operands[0], operands[0].dims[int(attributes["axis"])], 5, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for n in (1, 2, 7, 12):
            yield sample((3, n), axis=1)
        yield sample((2, 34, 3), axis=1, norm="ortho")  # two factors
        yield sample((12, 2), axis=0, inverse=True)
        yield sample((137,), axis=0)  # a prime too large for a matrix
        yield sample((0, 6), axis=1)
        yield sample(("n", 20), axis=1, norm="forward")
        yield sample((3, "n"), axis=1, inverse=True)


class Rfft(Card, op="rfft"):
    def infer(self, x: Shape, *, axis: int, norm: str) -> Shape:
        _check_length(x, axis)
        return Shape((d // 2 + 1 if i == axis else d for i, d in enumerate(x.dims)), x.dtype.complex)

    def requires(self, x: Shape, *, axis: int, norm: str) -> list[tuple[Dim, str]]:
        return _length_requirement(x, axis)

    def evaluate(self, x: np.ndarray, *, axis: int, norm: str) -> np.ndarray:
        kind: Any = norm
        return np.fft.rfft(x.astype(np.float64), axis=axis, norm=kind).astype(dtype(x.dtype).complex.numpy)

    def decompose(self, b: Builder, x: Tensor, *, axis: int, norm: str) -> Tensor:
        n, rows = x.shape.dims[axis], _Rows(b, x.shape.dims, axis)
        power, signal = _POWERS[norm][0], rows.of(x)
        if type(n) is int:
            parts = fourier.real_transform(b, signal, n, n**power)
        else:
            parts = fourier.unknown_transform(b, (signal, fourier.zeros(b, signal.shape.dims, signal.dtype)), n, power)
            parts = fourier.each(parts, lambda part: b.narrow(part, 1, 0, n // 2 + 1))
        return b.complex(rows.restored(parts[0]), rows.restored(parts[1]))

    def build(
        self, b: Builder, x: TensorLike, axis: int = -1, norm: str | None = "backward", *, n: int | None = None
    ) -> Tensor:
        x = tensor_like(b, x, f32)
        if x.dtype.is_complex:
            raise ShapeError(f"rfft takes real numbers, not {x.dtype.name}", hint="use fft")
        x = as_part(b, x)
        axis = axis_of(axis, x.rank)
        return b.emit("rfft", (resize_axis(b, x, n, axis),), axis=axis, norm=norm)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int, norm: str
    ) -> tuple[Tensor]:
        """Return the cotangent.

        `irfft` counts elements that represent two frequencies twice, but in the cotangent they count once.
        """
        (x,), (dy,) = operands, cotangents
        n = x.shape.dims[axis]
        halved = dy * (1.0 / fourier.multiplicities(b, n, x.rank - 1 - axis, x.dtype))
        return (b.emit("irfft", (halved,), axis=axis, length=(n,), norm=_OF_ADJOINT[norm]),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, norm: str) -> Tensor:
        return b.emit("rfft", operands, axis=axis + 1, norm=norm)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _cost(operands[0], operands[0].dims[int(attributes["axis"])], 2.5, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for n in (1, 2, 9):
            yield sample((3, n), axis=1)
        yield sample((2, 36, 3), axis=1, norm="ortho")
        yield sample((51, 2), axis=0)
        yield sample((137,), axis=0)
        yield sample((0, 6), axis=1)
        yield sample(("n", 20), axis=1, norm="forward")
        yield sample((3, "n"), axis=1)


class Irfft(Card, op="irfft"):
    def infer(self, x: Shape, *, axis: int, length: tuple[Dim, ...], norm: str) -> Shape:
        check_axis(axis, x.rank)
        if len(length) != 1:
            raise ShapeError(f"length is a list of one dimension, got {len(length)}")
        n = length[0]
        if type(n) is int and n < 1:
            raise ShapeError(f"length {n} is not positive")
        if not same(x.dims[axis], n // 2 + 1):
            raise ShapeError(
                f"a real signal of length {n} has a spectrum of {n // 2 + 1} elements, "
                f"but axis {axis} of {x} is {x.dims[axis]}",
                hint="narrow the spectrum, or add zeros to it",
            )
        return Shape((n if i == axis else d for i, d in enumerate(x.dims)), x.dtype.part)

    def requires(self, x: Shape, *, axis: int, length: tuple[Dim, ...], norm: str) -> list[tuple[Dim, str]]:
        return [(length[0] - 1, f"length {length[0]} is not positive")]

    def evaluate(self, x: np.ndarray, *, axis: int, length: tuple[int, ...], norm: str) -> np.ndarray:
        kind: Any = norm
        return np.fft.irfft(x.astype(np.complex128), n=length[0], axis=axis, norm=kind).astype(np.real(x).dtype)

    def decompose(self, b: Builder, x: Tensor, *, transform: IrfftOptions) -> Tensor:
        (n,), rows = transform.length, _Rows(b, x.shape.dims, transform.axis)
        parts, power = (rows.of(b.real(x)), rows.of(b.imag(x))), _POWERS[transform.norm][1]
        if type(n) is int:
            return rows.restored(fourier.real_inverse(b, parts, n, n**power))
        return rows.restored(fourier.unknown_real_inverse(b, parts, n, power))

    def build(
        self, b: Builder, x: TensorLike, length: Size | None = None, axis: int = -1, norm: str | None = "backward"
    ) -> Tensor:
        x = as_complex(b, x)
        axis = axis_of(axis, x.rank)
        if length is None:
            length = 2 * (x.shape.dims[axis] - 1)
        return b.emit("irfft", (x,), axis=axis, length=(length,), norm=norm)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, transform: IrfftOptions
    ) -> tuple[Tensor]:
        axis, (length,) = transform.axis, transform.length
        spectrum = b.emit("rfft", cotangents, axis=axis, norm=_OF_ADJOINT[transform.norm])
        return (spectrum * fourier.multiplicities(b, length, spectrum.rank - 1 - axis, spectrum.dtype.part),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, **attributes: Any) -> Tensor:
        return b.emit("irfft", operands, axis=axis + 1, **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _cost(results[0], attributes["length"][0], 2.5, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for n in (1, 2, 3, 9):
            yield sample((3, n // 2 + 1), axis=1, length=(n,))
        yield sample((2, 19, 3), axis=1, length=(36,), norm="ortho")
        yield sample((26, 2), axis=0, length=(51,))
        yield sample((69,), axis=0, length=(137,))
        yield sample((0, 4), axis=1, length=(6,))
        yield sample(("n", 11), axis=1, length=(20,), norm="forward")
        yield sample((3, "n+1"), axis=1, length=("2*n+1",))
