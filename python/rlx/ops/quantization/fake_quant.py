"""Fake quantisation for training: floats are rounded to small multiples of a scale.

Both ops are composite. Their evaluators do the same arithmetic in the same dtypes, so both round to the same integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS, dtype
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, Groups, OpSample, SampleOperand, Shapes, sample, wide
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import axis_of, cast
from rlx.ops.norm import statistics_input
from rlx.ops.quantization.quant import along_axis, check_scales, quantization_parameter, scale_dims, spread
from rlx.ops.quantization.straight_through import scale_slope, steps_of, straight_through
from rlx.support.errors import ShapeError


def largest_step(bits: int) -> int:
    """Return the largest multiple of the scale that a symmetric quantisation to `bits` bits represents."""
    return 2 ** (bits - 1) - 1


def _check_scale_dtype(x: Shape, name: str, scale: Shape) -> None:
    kind = dtype(wide(x.dtype))
    if scale.dtype is not kind:
        raise ShapeError(f"'{name}' must be {kind.name} beside {x}, got {scale}", hint=f"cast it to {kind.name}")


def _rounded(x: np.ndarray, scale: np.ndarray, bits: int, axis: int | None) -> np.ndarray:
    """Return `clamp(round(x/scale), -qmax, qmax)·scale`, and 0 where the scale is 0."""
    most, scales = largest_step(bits), along_axis(scale, axis, x.ndim)
    steps = np.clip(np.rint(x.astype(scales.dtype) / scales), -most, most)
    return np.asarray(np.where(scales == 0, 0, steps * scales)).astype(x.dtype)


def _rounded_tensor(b: Builder, x: Tensor, scale: Tensor, bits: int, axis: int | None) -> Tensor:
    """`_rounded` as ops."""
    most, scales = float(largest_step(bits)), spread(b, scale, axis, x.rank)
    steps = b.minimum(b.maximum(b.round(statistics_input(b, x) / scales), -most), most)
    return cast(b, b.where(b.eq(scales, 0.0), 0.0, steps * scales), x.dtype)


def _scale_operand(b: Builder, x: Tensor, scale: TensorLike | Sequence[float], axis: int | None, name: str) -> Tensor:
    """Return a user's scale in the compute dtype of x."""
    return quantization_parameter(b, scale, scale_dims(x.shape, axis), dtype(wide(x.dtype)), name)


@dataclass(frozen=True)
class FakeQuantization(ArgumentGroup):
    """The attributes of a `fake_quantize`: the steps, the axis of the scales, where these come from, and the derivative."""

    bits: int
    axis: int | None
    ste: str
    scale_mode: str
    decay: float

    def other_axes(self, rank: int) -> list[int]:
        """The axes of a tensor of a rank that share a scale."""
        return [i for i in range(rank) if i != self.axis]


class FakeQuantize(Card, op="fake_quantize"):
    def infer(
        self, x: Shape, state: Shape | None, *, axis: int | None, scale_mode: str, **_: object
    ) -> tuple[Shape, Shape]:
        if (state is not None) != (scale_mode != "per_batch"):
            requirement = "takes no" if scale_mode == "per_batch" else "needs a"
            raise ShapeError(f"scale_mode '{scale_mode}' {requirement} state operand")
        if state is not None:
            check_scales(x, axis, state=state)
            _check_scale_dtype(x, "state", state)
        return x, Shape(scale_dims(x, axis), wide(x.dtype))

    def evaluate(
        self, x: np.ndarray, state: np.ndarray | None, *, quantization: FakeQuantization
    ) -> tuple[np.ndarray, np.ndarray]:
        bits, axis = quantization.bits, quantization.axis
        if quantization.scale_mode == "fixed":
            assert state is not None
            return _rounded(x, state, bits, axis), state.copy()
        kind, decay = wide(x.dtype), quantization.decay
        other_axes = tuple(quantization.other_axes(x.ndim))
        scale = np.max(np.abs(x.astype(kind)), axis=other_axes, initial=0) / kind.type(largest_step(bits))
        if quantization.scale_mode == "ema":
            scale = kind.type(decay) * state + kind.type(1 - decay) * scale
        return _rounded(x, np.asarray(scale), bits, axis), np.asarray(scale)

    def decompose(
        self, b: Builder, x: Tensor, state: Tensor | None, *, quantization: FakeQuantization
    ) -> tuple[Tensor, Tensor]:
        bits, axis, decay = quantization.bits, quantization.axis, quantization.decay
        if quantization.scale_mode == "fixed":
            assert state is not None
            return _rounded_tensor(b, x, state, bits, axis), state
        other_axes = quantization.other_axes(x.rank)
        largest = b.maximum(b.max(b.abs(statistics_input(b, x)), other_axes), 0.0)  # of an empty tensor it is -inf
        scale = largest / float(largest_step(bits))
        if quantization.scale_mode == "ema":
            assert state is not None
            scale = state * decay + scale * (1 - decay)
        return _rounded_tensor(b, x, scale, bits, axis), scale

    def build(
        self,
        b: Builder,
        x: Tensor,
        state: TensorLike | Sequence[float] | None = None,
        bits: int = 8,
        axis: int | None = None,
        ste: str = "identity",
        scale_mode: str = "per_batch",
        decay: float = 0.99,
    ) -> Any:
        canonical = None if axis is None else axis_of(axis, x.rank)
        if state is not None:
            state = _scale_operand(b, x, state, canonical, "state")
        attributes: Attributes = {"bits": bits, "axis": canonical, "ste": ste, "scale_mode": scale_mode, "decay": decay}
        result, scale = b.emit("fake_quantize", (x, state), **attributes)
        return (result, scale) if getattr(scale_mode, "value", scale_mode) == "ema" else result

    # The scale is always treated as a constant: no derivative propagates into or through it.

    def jvp(
        self, b: Builder, operands: Groups, tangents: Groups, results: Tensors, *, quantization: FakeQuantization
    ) -> tuple[Tensor | None, None]:
        (x, _), (dx, _) = operands, tangents
        return _through(b, x, dx, results, quantization), None

    def vjp(
        self, b: Builder, operands: Groups, results: Tensors, cotangents: Tangents, *, quantization: FakeQuantization
    ) -> tuple[Tensor | None, None]:
        x, dy = operands[0], cotangents[0]
        return _through(b, x, dy, results, quantization), None

    def vmap(
        self, b: Builder, operands: Groups, batched: Groups, *, size: Dim, axis: int | None, **attributes: Any
    ) -> tuple[Tensor, Tensor]:
        (x, _), (x_batched, state_batched) = operands, batched
        if attributes["scale_mode"] == "fixed" and not state_batched:
            result, scale = b.emit("fake_quantize", operands, axis=_shifted(axis), **attributes)
            return result, rules.batch(b, scale, False, size)
        joined, states, place = _joined(b, operands, batched, size, axis)
        result, scale = b.emit("fake_quantize", (joined, states), axis=place, **attributes)
        if axis is None:
            return result, scale
        count = x.shape.dims[axis + bool(x_batched)]
        return rules.unfolded(b, result, axis, size, count), rules.unfolded(b, scale, 0, size, count)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        base = super().cost(operands, results, attributes)
        return Cost(6 * operands[0].num_elements, base.bytes)

    def samples(self) -> Iterable[OpSample]:
        scale = SampleOperand((), "f32", low=0.1, high=0.3)
        yield sample((3, 8), None, bits=8, dtypes=FLOATS)
        yield sample((3, 8), scale, bits=4, scale_mode="ema", decay=0.9, ste="clipped_identity", dtypes=("f32", "f16"))
        yield sample(
            (3, 8), SampleOperand((8,), low=0.1, high=0.3), bits=4, axis=1, scale_mode="fixed", dtypes=("f64",)
        )
        yield sample((2, 3, 4), scale, bits=2, scale_mode="fixed", ste="tanh", dtypes=("f32",))
        yield sample(
            (2, 3, 4), SampleOperand((3,), "f32", low=0.1, high=0.3), bits=4, axis=1, scale_mode="ema", dtypes=("f32",)
        )
        yield sample(("n", 4), None, bits=2, axis=0, ste="hard_tanh", dtypes=("f32",))
        for ste in ("clipped_identity", "tanh"):
            yield sample((2, 3, 4), None, bits=4, axis=1, ste=ste, dtypes=("f32",))
        yield sample((0, 4), None, bits=8, dtypes=("f32",))


def _through(
    b: Builder, x: Tensor, d: Tensor | None, results: Tensors, quantization: FakeQuantization
) -> Tensor | None:
    """Propagate a tangent or cotangent through `fake_quantize`, whose Jacobian is diagonal."""
    axis, ste = quantization.axis, quantization.ste
    if d is None or ste == "identity":
        return d
    wide_x = statistics_input(b, x)
    if quantization.scale_mode == "per_batch":
        # qmax·(max|x|/qmax) without the two roundings, which could leave the largest element outside.
        limit = b.max(b.abs(wide_x), quantization.other_axes(x.rank), keep_dims=True)
    else:
        limit = spread(b, results[1], axis, x.rank) * float(largest_step(quantization.bits))
    return cast(b, straight_through(b, ste, statistics_input(b, d), wide_x, limit), x.dtype)


class FakeQuantizeLsq(Card, op="fake_quantize_lsq"):
    def infer(self, x: Shape, scale: Shape, *, bits: int, axis: int | None) -> Shape:
        check_scales(x, axis, scale=scale)
        _check_scale_dtype(x, "scale", scale)
        return x

    def evaluate(self, x: np.ndarray, scale: np.ndarray, *, bits: int, axis: int | None) -> np.ndarray:
        return _rounded(x, scale, bits, axis)

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, *, bits: int, axis: int | None) -> Tensor:
        return _rounded_tensor(b, x, scale, bits, axis)

    def build(
        self, b: Builder, x: Tensor, scale: TensorLike | Sequence[float], bits: int = 8, axis: int | None = None
    ) -> Tensor:
        canonical = None if axis is None else axis_of(axis, x.rank)
        return b.emit(
            "fake_quantize_lsq", (x, _scale_operand(b, x, scale, canonical, "scale")), bits=bits, axis=canonical
        )

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, bits: int, axis: int | None
    ) -> Tensor | None:
        (x, scale), (dx, dscale) = operands, tangents
        moved = None if dx is None else b.fake_quantize_lsq_backward_x(x, scale, dx, bits=bits, axis=axis)
        if dscale is None:
            return moved
        slope = scale_slope(b, steps_of(b, x, scale, axis), float(largest_step(bits)))
        stretched = cast(b, slope * spread(b, dscale, axis, x.rank), x.dtype)
        return rules.total(b, (moved, stretched))

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, bits: int, axis: int | None
    ) -> rules.Cotangents:
        (x, scale), (dy,) = operands, cotangents
        most = float(largest_step(bits))

        def of_x() -> Tensor:
            return b.where(b.abs(steps_of(b, x, scale, axis)) <= most, dy, 0.0)

        def of_scale() -> Tensor:
            slope = scale_slope(b, steps_of(b, x, scale, axis), most)
            return b.sum(slope * statistics_input(b, dy), [i for i in range(x.rank) if i != axis])

        return of_x, of_scale

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, bits: int, axis: int | None) -> Tensor:
        (x, _), (x_batched, scale_batched) = operands, batched
        if not scale_batched:
            return b.emit("fake_quantize_lsq", operands, bits=bits, axis=_shifted(axis))
        joined, scales, place = _joined(b, operands, batched, size, axis)
        result = b.emit("fake_quantize_lsq", (joined, scales), bits=bits, axis=place)
        return result if axis is None else rules.unfolded(b, result, axis, size, x.shape.dims[axis + bool(x_batched)])

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        base = super().cost(operands, results, attributes)
        return Cost(5 * base.flops, base.bytes)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 8), SampleOperand((), "f32", low=0.1, high=0.3), bits=4, dtypes=("f32", "f16", "bf16"))
        yield sample((3, 8), SampleOperand((8,), low=0.1, high=0.3), bits=8, axis=1, dtypes=("f64",))
        yield sample(("n", 4), SampleOperand(("n",), low=0.1, high=0.9), bits=2, axis=0, dtypes=("f32",))


# --- batches with separate scales for every entry --------------------------------------------------


def _shifted(axis: int | None) -> int | None:
    """Return an axis with the batch axis counted."""
    return None if axis is None else axis + 1


def _joined(
    b: Builder, operands: Groups, batched: Groups, size: Dim, axis: int | None
) -> tuple[Tensor, Tensor | None, int]:
    """Return a batch as one tensor with a scale for each position of an axis: x, the scales, and that axis."""
    (x, scale), (x_batched, scale_batched) = operands, batched
    x = rules.batch(b, x, x_batched, size)
    scale = None if scale is None else rules.batch(b, scale, scale_batched, size)
    if axis is None:
        return x, scale, 0
    return rules.folded(b, x, axis), None if scale is None else rules.folded(b, scale, 0), axis
