"""Helpers of integer patterns: the i8 tensor that a float is dequantised from, and the rounding of an i32 sum to i8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import i8, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import evaluate_op
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.ops.quantization.requantize import fixed_point
from rlx.passes.integer.quantize_values import bounds_of, maker_of
from rlx.passes.pattern import Rewriter, ViewT, has_one_use, producer


def constant(value: mlir.Value) -> np.ndarray | None:
    """Return the array of a value that depends only on constants; None for other values."""
    return _EvaluatedValues().read(value)


def finite_constant(value: mlir.Value) -> np.ndarray | None:
    """Return the array of a constant value if all of its numbers are finite, else None."""
    known = constant(value)
    return known if known is not None and np.isfinite(known).all() else None


class _EvaluatedValues:
    """Lazily evaluated constant values."""

    def __init__(self) -> None:
        self.known: dict[mlir.Value, np.ndarray | None] = {}

    def read(self, value: mlir.Value) -> np.ndarray | None:
        if value not in self.known:
            self.known[value] = None
            op = maker_of(value)
            if op is not None and op.name == "rlx.constant":
                self.known[value] = views.Constant(op).value
            elif op is not None and not len(op.regions) and len(op.operands):
                self._evaluate(op)
        return self.known[value]

    def _evaluate(self, op: mlir.Operation) -> None:
        arrays: list[np.ndarray] = []
        for operand in op.operands:
            array = self.read(operand)
            if array is None:
                return
            arrays.append(array)
        self.known |= zip(op.results, evaluate_op(op, arrays, {}), strict=True)


@dataclass(frozen=True)
class Integers:
    """A tensor of i8 that represents floats: `(value - zero)·scale`.

    Attributes:
        value: The tensor.
        scale: f64, a scalar, or one for each position of `axis`.
        zero: The zero point.
        axis: None for one scale.
    """

    value: mlir.Value
    scale: np.ndarray
    zero: int
    axis: int | None

    @staticmethod
    def of(value: mlir.Value, *, scales: bool = False) -> Integers | None:
        """Return the integers from which a value is dequantised, if their scales are constants.

        Args:
            value: Floats.
            scales: Whether there may be a scale for each position of an axis.
        """
        op = producer(value, views.Dequantize)
        if op is None or shape_of(op.x).dtype is not i8 or (op.axis is not None and not scales):
            return None
        scale, zero = constant(op.scale), constant(op.zero_point)
        if scale is None or zero is None or len(set(zero.ravel().tolist())) > 1:
            return None
        return Integers(op.x, scale.astype(np.float64), int(zero.ravel()[0]) if zero.size else 0, op.axis)

    def centred(self, b: Builder) -> Tensor:
        """Return `value - zero` in i32."""
        whole = b.cast(b.tensor(self.value), i32)
        return whole - self.zero if self.zero else whole


@dataclass(frozen=True)
class Goal:
    """A rounding to i8: the value that `rlx.quantize` reads, without preceding bounds, and the parameters of the rounding.

    Attributes:
        core: The value.
        scale: The scale of the result.
        zero: The zero point of the result.
        low: The smallest result, as i8.
        high: The largest result, as i8.
    """

    core: mlir.Value
    scale: float
    zero: int
    low: int
    high: int

    @staticmethod
    def of(op: views.Quantize) -> Goal | None:
        """Return the goal of an op that rounds to i8 with one constant scale, else None."""
        scale, zero = constant(op.scale), constant(op.zero_point)
        if op.dtype is not i8 or op.axis is not None or scale is None or zero is None:
            return None
        core, low, high = op.x, -128, 127
        by, middle = float(scale), int(zero)
        while isinstance(core, mlir.ir.OpResult) and has_one_use(core):
            maker = core.owner.operation
            inner = next((v for v in maker.operands if bounds_of(maker, v) is not None and constant(v) is None), None)
            ends = None if inner is None else [_number(e) for e in bounds_of(maker, inner) or ()]
            if inner is None or ends is None or any(e is not None and np.isnan(e) for e in ends):
                break
            least, most = (None if e is None else int(np.clip(np.rint(e / by) + middle, -128, 127)) for e in ends)
            low = low if least is None else min(max(least, low), high)  # the outer bounds take precedence
            high = high if most is None else max(min(most, high), low)
            core = inner
        return Goal(core, by, middle, low, high)

    def is_multiple(self, x: Integers, factor: np.ndarray) -> bool:
        """Whether a multiple of a tensor is represented by the same integers as the tensor. Scales are rounded to f32."""
        return x.zero == self.zero and factor.size > 0 and np.allclose(x.scale * factor, self.scale, 1e-6, 0.0)

    @classmethod
    def behind(cls, op: views.Quantize, view: type[ViewT]) -> tuple[Goal, ViewT] | None:
        """Return the goal of an op together with the producer of the rounded value, if that is an op of the given class."""
        goal = cls.of(op)
        maker = None if goal is None else producer(goal.core, view)
        return None if goal is None or maker is None else (goal, maker)

    def reached(self, rewriter: Rewriter, total: Tensor, real: Any) -> mlir.Value:
        """Requantise sums in i32 that represent `total·real`.

        Args:
            rewriter: The rewriter to emit with.
            total: i32.
            real: Positive numbers that broadcast against the total.
        """
        b = rewriter.builder
        multiplier, shift = fixed_point(np.asarray(real, np.float64) / self.scale)
        return self.bounded(b, b.requantize(total, multiplier, shift, zero_point=self.zero, dtype=i8)).value

    def bounded(self, b: Builder, x: Tensor) -> Tensor:
        """Return i8 values clamped to the bounds."""
        x = b.maximum(x, self.low) if self.low > -128 else x
        return b.minimum(x, self.high) if self.high < 127 else x


def _number(bound: Any) -> float | None:
    """Return a bound as a number; NaN if it is not known."""
    if bound is None or isinstance(bound, float):
        return bound
    known = constant(bound)
    return float("nan") if known is None else float(known.ravel()[0])


def spread(values: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    """Reshape numbers for the positions of an axis so that they broadcast against a tensor of a rank."""
    return values if axis is None or values.ndim == 0 else values.reshape(-1, *(1,) * (rank - 1 - axis))


def in_range(values: np.ndarray) -> np.ndarray:
    """Round to i32 with saturation."""
    return np.clip(np.rint(values), i32.min, i32.max).astype(np.int32)
