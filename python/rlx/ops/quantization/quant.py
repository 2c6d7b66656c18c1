"""Quantisation: 8-bit integers from floats and back.

Both ops are composite. Their evaluators do the same arithmetic in the same dtypes, so both round to the same integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS, DType, f32, family, i8, i32, u8
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, TensorLike
from rlx.ir.op.card import Card, OpSample, SampleOperand, sample, wide
from rlx.ir.shape import Shape, as_dtype
from rlx.ops.elementwise.elementwise import convert
from rlx.ops.lift import axis_of, cast, check_axis, tensor_like
from rlx.ops.norm import along, statistics_input
from rlx.support.errors import ShapeError

# --- scales and zero points ---------------------------------------------------------------------------


def scale_dims(x: Shape, axis: int | None) -> tuple[Dim, ...]:
    """Return the dimensions of a scale: a scalar, or with an axis one scale for each of its positions.

    Raises:
        ShapeError: x has no such axis.
    """
    if axis is None:
        return ()
    check_axis(axis, x.rank)
    return (x.dims[axis],)


def check_scales(x: Shape, axis: int | None, **scales: Shape) -> None:
    """Check that scales and zero points are scalars, or with an axis one number for each of its positions.

    Raises:
        ShapeError: A scale has another shape.
    """
    dims = scale_dims(x, axis)
    for name, scale in scales.items():
        if scale.dims != dims:
            expected = "a scalar" if axis is None else f"of shape [{dims[0]}], one for each position of axis {axis}"
            hint = "name the axis along which they differ: axis=…" if axis is None else None
            raise ShapeError(f"'{name}' must be {expected}, to go with {x}; got {scale}", hint=hint)


def along_axis(values: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    """Return scales in a shape that broadcasts against an array of a rank."""
    return values if axis is None else values.reshape(-1, *(1,) * (rank - 1 - axis))


def spread(b: Builder, values: Tensor, axis: int | None, rank: int) -> Tensor:
    """Return scales in a shape that broadcasts against a tensor of a rank."""
    return values if axis is None else along(b, values, axis, rank)


_INTEGERS = ("signed", "unsigned")  # dtype families


def quantization_parameter(
    b: Builder, value: TensorLike | Sequence[float], dims: tuple[Dim, ...], kind: DType, name: str
) -> Tensor:
    """Return a user's scales or zero points as a tensor, from a tensor, a number for all positions, or a list.

    Raises:
        ShapeError: They are something else, or the dtype cannot represent them.
    """
    if isinstance(value, Tensor):
        tensor = tensor_like(b, value, kind)
        if tensor.dtype.is_float != kind.is_float or not (tensor.dtype.is_float or tensor.dtype.is_integer):
            raise ShapeError(f"'{name}' must hold {kind.name}, got {tensor.shape}")
        tensor = cast(b, tensor, kind)
    else:
        array = np.asarray(value)
        if family(array.dtype) not in (*_INTEGERS, *(("float",) if kind.is_float else ())):
            raise ShapeError(f"'{name}' must be {'numbers' if kind.is_float else 'integers'}, got {value!r:.60}")
        if not kind.is_float and not np.all((array >= kind.min) & (array <= kind.max)):
            raise ShapeError(f"'{name}' = {value!r:.60} does not fit {kind.name}")
        tensor = b.constant(as_array_of(array, kind).reshape(() if array.size == 1 else array.shape))
    return b.expand(tensor, dims) if tensor.rank == 0 and dims else tensor


def _check_positive(scale: object) -> None:
    """Check numbers that are used as scales. The values of tensors are not known.

    Raises:
        ShapeError: A scale is 0, negative, infinite or NaN, possibly after rounding to f32.
    """
    if isinstance(scale, Tensor):
        return
    array = np.asarray(scale)
    if family(array.dtype) in (*_INTEGERS, "float"):
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float32)
        if not np.all((rounded > 0) & np.isfinite(rounded)):
            raise ShapeError(f"'scale' must be positive and finite, got {scale!r:.60}")


def _check_zero_point(zero_point: object, kind: DType) -> None:
    """Check that integers used as zero points are in the range of the quantised dtype.

    Raises:
        ShapeError: A zero point is not.
    """
    if isinstance(zero_point, Tensor):
        return
    array = np.asarray(zero_point)
    if family(array.dtype) in _INTEGERS and not np.all((array >= kind.min) & (array <= kind.max)):
        raise ShapeError(f"'zero_point' = {zero_point!r:.60} is outside {kind.name}: {kind.min} to {kind.max}")


def _parameters(
    b: Builder, x: Tensor, scale: TensorLike | Sequence[float], zero_point: TensorLike, axis: int | None, kind: DType
) -> tuple[Tensor, Tensor]:
    """Return scale and zero point as operands of the ops."""
    _check_positive(scale)
    _check_zero_point(zero_point, kind)
    dims = scale_dims(x.shape, axis)
    return quantization_parameter(b, scale, dims, f32, "scale"), quantization_parameter(
        b, zero_point, dims, i32, "zero_point"
    )


# --- quantisation and dequantisation -------------------------------------------------------------------


class Quantize(Card, op="quantize"):
    def infer(self, x: Shape, scale: Shape, zero_point: Shape, *, axis: int | None, dtype: DType) -> Shape:
        if dtype not in (i8, u8):
            raise ShapeError(f"dtype must be i8 or u8, got {dtype.name}")
        check_scales(x, axis, scale=scale, zero_point=zero_point)
        return x.with_dtype(dtype)

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, axis: int | None, dtype: DType
    ) -> np.ndarray:
        kind = wide(x.dtype)
        steps = np.rint(x.astype(kind) / along_axis(scale, axis, x.ndim).astype(kind))
        zero = np.clip(zero_point, int(dtype.min), int(dtype.max))
        steps = np.where(np.isnan(steps), 0, steps) + along_axis(zero, axis, x.ndim).astype(kind)
        return convert(np.asarray(steps), dtype)

    def decompose(
        self, b: Builder, x: Tensor, scale: Tensor, zero_point: Tensor, *, axis: int | None, dtype: DType
    ) -> Tensor:
        wide_x = statistics_input(b, x)
        steps = b.round(wide_x / cast(b, spread(b, scale, axis, x.rank), wide_x.dtype))
        steps = b.where(b.eq(steps, steps), steps, 0.0)  # NaN is unequal to itself
        zero = b.maximum(b.minimum(zero_point, int(dtype.max)), int(dtype.min))
        return b.cast(steps + cast(b, spread(b, zero, axis, x.rank), wide_x.dtype), dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        scale: TensorLike | Sequence[float],
        zero_point: TensorLike = 0,
        axis: int | None = None,
        dtype: DTypeLike = i8,
    ) -> Tensor:
        kind, canonical = as_dtype(dtype), None if axis is None else axis_of(axis, x.rank)
        scale, zero_point = _parameters(b, x, scale, zero_point, canonical, kind)
        return b.emit("quantize", (x, scale, zero_point), axis=canonical, dtype=kind)

    def samples(self) -> Iterable[OpSample]:
        x, scale = SampleOperand((4, 7), low=-20, high=20), SampleOperand((), low=0.05, high=0.2)
        zero = SampleOperand((), "i32", low=-20, high=100)
        yield sample(x, SampleOperand((), "f32", low=0.05, high=0.2), zero, dtype=i8, dtypes=FLOATS)
        yield sample(x, scale, zero, dtype=u8, dtypes=("f32",))
        scales, zeros = SampleOperand((3,), low=0.05, high=0.2), SampleOperand((3,), "i32", low=-20, high=20)
        yield sample(SampleOperand((2, 3, 4), low=-9, high=9), scales, zeros, axis=1, dtype=i8, dtypes=("f32",))
        rows, row_zeros = SampleOperand(("n",), low=0.05, high=0.2), SampleOperand(("n",), "i32", low=0, high=200)
        yield sample(SampleOperand(("n", 4), low=-9, high=9), rows, row_zeros, axis=0, dtype=u8, dtypes=("f32",))
        yield sample((0, 3), scale, zero, dtype=i8, dtypes=("f32",))


class Dequantize(Card, op="dequantize"):
    def infer(self, x: Shape, scale: Shape, zero_point: Shape, *, axis: int | None) -> Shape:
        check_scales(x, axis, scale=scale, zero_point=zero_point)
        return x.with_dtype(f32)

    def evaluate(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, axis: int | None) -> np.ndarray:
        steps = x.astype(np.int32) - along_axis(zero_point, axis, x.ndim)
        return np.asarray(steps.astype(np.float32) * along_axis(scale, axis, x.ndim))

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, zero_point: Tensor, *, axis: int | None) -> Tensor:
        steps = b.cast(x, i32) - spread(b, zero_point, axis, x.rank)
        return b.cast(steps, f32) * spread(b, scale, axis, x.rank)

    def build(
        self,
        b: Builder,
        x: Tensor,
        scale: TensorLike | Sequence[float],
        zero_point: TensorLike = 0,
        axis: int | None = None,
    ) -> Tensor:
        canonical = None if axis is None else axis_of(axis, x.rank)
        return b.emit("dequantize", (x, *_parameters(b, x, scale, zero_point, canonical, x.dtype)), axis=canonical)

    def samples(self) -> Iterable[OpSample]:
        x, scale = SampleOperand((4, 7), low=-128, high=256), SampleOperand((), "f32", low=0.05, high=0.2)
        yield sample(x, scale, SampleOperand((), "i32", low=-20, high=100), dtypes=("i8", "u8"))
        scales, zeros = SampleOperand((3,), "f32", low=0.05, high=0.2), SampleOperand((3,), "i32", low=-20, high=20)
        yield sample(SampleOperand((2, 3, 4), low=-128, high=128), scales, zeros, axis=1, dtypes=("i8",))
        rows, row_zeros = (
            SampleOperand(("n",), "f32", low=0.05, high=0.2),
            SampleOperand(("n",), "i32", low=0, high=200),
        )
        yield sample(SampleOperand(("n", 4), low=0, high=256), rows, row_zeros, axis=0, dtypes=("u8",))
