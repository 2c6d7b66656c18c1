"""Requantisation in integers: accumulators times fixed-point multipliers, as in TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from rlx.ir.dtype import DType, i8, i16, i32, u8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, TensorLike
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Card, OpSample, SampleOperand, sample
from rlx.ir.shape import DimLike, Shape, as_dtype
from rlx.ops.lift import broadcast, tensor_like
from rlx.ops.quantization.quant import quantization_parameter
from rlx.support.errors import ShapeError

# The fractional bits of a multiplier, and the largest left shift. The smallest shift is -31.
BITS = {"double": 31, "single": 31, "short": 15}
RIGHTMOST = -31
_RESULTS = (i8, u8, i16, i32)

V = TypeVar("V")


@dataclass(frozen=True)
class FixedPoint(ArgumentGroup, Generic[V]):
    """The factors of a `requantize`, `multiplier·2^(shift - 31)`: shapes, arrays, tensors or lowered values."""

    multiplier: V
    shift: V


@dataclass(frozen=True)
class Requantization(ArgumentGroup):
    """The attributes of a `requantize`: the rounding of the product, and the zero point and dtype of the result."""

    zero_point: int
    mode: str
    dtype: DType


def fixed_point(scales: npt.ArrayLike, mode: str = "double") -> tuple[np.ndarray, np.ndarray]:
    """Convert real numbers to the multipliers and shifts of `requantize`: `scales ≈ multiplier·2^(shift - 31)`.

    A multiplier has its highest bit set: 2^30 to 2^31 - 1. For `mode` `short` it is 2^14 to 2^15 - 1, with
    `2^(shift - 15)`. Scales below 2^-32 become 0. (`QuantizeMultiplier` of TensorFlow Lite.)

    Args:
        scales: Positive numbers below 2^30, or 2^14 for `short`.
        mode: As in `requantize`.

    Returns:
        Multipliers and shifts, i32, in the shape of the scales.

    Raises:
        ShapeError: A scale is negative, not finite or too large.
    """
    given = np.asarray(scales, np.float64)
    bits = BITS[mode]
    if not np.all((given >= 0) & (given < 2.0 ** (bits - 1))):
        raise ShapeError(f"scales must lie in [0, 2^{bits - 1}), got {scales!r:.60}")
    fractions, exponents = np.frexp(given)
    multiplier = np.floor(fractions * 2.0**31 + 0.5).astype(np.int64)  # halves up, as std::round of positive numbers
    full = multiplier == 1 << 31
    multiplier, shift = np.where(full, 1 << 30, multiplier), exponents.astype(np.int64) + full
    if mode == "short":
        multiplier = np.minimum((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)
    beyond = shift >= bits  # rounding up gave a number that is too large
    multiplier, shift = np.where(beyond, (1 << bits) - 1, multiplier), np.where(beyond, bits - 1, shift)
    lost = shift < RIGHTMOST
    return np.where(lost, 0, multiplier).astype(np.int32), np.where(lost, 0, shift).astype(np.int32)


def _doubly(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return `x·multiplier·2^(shift - 31)`, rounded after the product and after the right shift."""
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    moved = (x << left).astype(np.int32).astype(np.int64)
    high = np.minimum((moved * multiplier + (1 << 30)) >> 31, i32.max)
    half = (np.int64(1) << right) >> 1
    return (high + half - ((high < 0) & (half > 0))) >> right


def requantized(x: np.ndarray, factor: FixedPoint[np.ndarray], requantization: Requantization) -> np.ndarray:
    """`requantize` of arrays."""
    mode, dtype = requantization.mode, requantization.dtype
    bits = BITS[mode]
    x, multiplier, shift = (np.asarray(v, np.int64) for v in (x, factor.multiplier, factor.shift))
    shift = np.clip(shift, RIGHTMOST, bits - 1)
    if mode == "double":
        scaled = _doubly(x, multiplier, shift)
    else:
        if mode == "short":
            multiplier = multiplier.astype(np.int16).astype(np.int64)
        scaled = (x * multiplier + (np.int64(1) << (bits - 1 - shift))) >> (bits - shift)
    return np.asarray(np.clip(scaled + requantization.zero_point, int(dtype.min), int(dtype.max)).astype(dtype.numpy))


class Requantize(Card, op="requantize"):
    def infer(self, x: Shape, factor: FixedPoint[Shape], *, requantization: Requantization) -> Shape:
        dtype, zero_point = requantization.dtype, requantization.zero_point
        if dtype not in _RESULTS:
            raise ShapeError(f"dtype must be one of {', '.join(d.name for d in _RESULTS)}, got {dtype.name}")
        if not dtype.min <= zero_point <= dtype.max:
            raise ShapeError(f"zero_point = {zero_point} is outside {dtype.name}: {dtype.min} to {dtype.max}")
        return Shape(broadcast(x.dims, factor.multiplier.dims, factor.shift.dims), dtype)

    def evaluate(self, x: np.ndarray, factor: FixedPoint[np.ndarray], *, requantization: Requantization) -> np.ndarray:
        return requantized(x, factor, requantization)

    def build(
        self,
        b: Builder,
        x: Tensor,
        multiplier: TensorLike,
        shift: TensorLike,
        zero_point: int = 0,
        mode: str = "double",
        dtype: DTypeLike = i8,
    ) -> Tensor:
        factors = [
            quantization_parameter(
                b, value, value.shape.dims if isinstance(value, Tensor) else np.shape(value), i32, name
            )
            for name, value in (("multiplier", multiplier), ("shift", shift))
        ]
        return b.emit(
            "requantize", (tensor_like(b, x, i32), *factors), zero_point=zero_point, mode=mode, dtype=as_dtype(dtype)
        )

    def samples(self) -> Iterable[OpSample]:
        def case(
            dims: tuple[DimLike, ...],
            factors: tuple[DimLike, ...],
            dtype: DType,
            mode: str = "double",
            zero_point: int = 0,
        ) -> OpSample:
            least = 1 << (BITS[mode] - 1)
            x = SampleOperand(dims, low=-(1 << 20), high=1 << 20)
            multiplier, shift = (
                SampleOperand(factors, low=least, high=2 * least - 1),
                SampleOperand(factors, low=-16, high=-8),
            )
            return sample(x, multiplier, shift, dtype=dtype, mode=mode, zero_point=zero_point, dtypes=("i32",))

        for mode in BITS:
            yield case((3, 7), (), i8, mode)
            yield case((2, 4, 3, 5), (4, 1, 1), i8, mode, -128)
            yield case(("n", 5), (5,), i16, mode, 3)
        yield case((4, 6), (6,), u8, "double", 255)
        yield case((4, 6), (), i32, "single", -5)
        yield case((0, 3), (3,), i8)
