"""Gradients of fake quantisation, straight-through as `straight_through` has it."""

from __future__ import annotations

from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, moved_bytes, sample, wide
from rlx.ir.dtype import dtype
from rlx.ir.shape import Shape
from rlx.ops.backward import check_cotangent
from rlx.ops.fake_quant import largest_step
from rlx.ops.lift import axis_of, cast, tensor_like
from rlx.ops.norm import widened
from rlx.ops.reduce import FLOATS
from rlx.ops.straight_through import scale_slope, steps_of, straight_through


class FakeQuantizeBackward(Card, op="fake_quantize_backward"):
    def infer(self, x: Shape, dy: Shape, *, bits: int, axis: int | None, ste: str) -> Shape:
        attributes = {"bits": bits, "axis": axis, "ste": ste, "scale_mode": "per_batch", "decay": 0.0}
        result, _ = registry.card("fake_quantize").infer(x, None, **attributes)
        check_cotangent(dy, result)
        return x

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, bits: int, axis: int | None, ste: str) -> Tensor:
        if ste == "identity":
            return dy
        wide_x = widened(b, x)
        # qmax·(max|x|/qmax) without the two roundings, which could leave the largest element outside.
        limit = b.max(b.abs(wide_x), [i for i in range(x.rank) if i != axis], keep_dims=True)
        return cast(b, straight_through(b, ste, widened(b, dy), wide_x, limit), x.dtype)

    def build(
        self, b: Builder, x: Tensor, dy: Tensor, bits: int = 8, axis: int | None = None, ste: Any = "identity"
    ) -> Tensor:
        canonical = None if axis is None else axis_of(axis, x.rank)
        return b.emit("fake_quantize_backward", (x, dy), bits=bits, axis=canonical, ste=ste)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(6 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        yield sample((3, 8), (3, 8), bits=8, ste="tanh", dtypes=FLOATS)
        for ste in ("identity", "clipped_identity", "hard_tanh"):
            yield sample((2, 3, 4), (2, 3, 4), bits=4, axis=1, ste=ste, dtypes=("f32",))
        yield sample(("n", 4), ("n", 4), bits=2, axis=0, ste="hard_tanh", dtypes=("f32",))


class _LsqBackward(Card):
    """What the two gradients of `fake_quantize_lsq` share."""

    def infer(self, x: Shape, scale: Shape, dy: Shape, *, bits: int, axis: int | None) -> Shape:
        check_cotangent(dy, registry.card("fake_quantize_lsq").infer(x, scale, bits=bits, axis=axis))
        return x

    def build(self, b: Builder, x: Tensor, scale: Any, dy: Tensor, bits: int = 8, axis: int | None = None) -> Tensor:
        canonical = None if axis is None else axis_of(axis, x.rank)
        return b.emit(self.name, (x, tensor_like(b, scale, dtype(wide(x.dtype))), dy), bits=bits, axis=canonical)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(6 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        step: Any = {"low": 0.1, "high": 0.6}  # some beyond the range of 2 and 4 bits, some within
        yield sample((3, 8), Operand((), "f32", **step), (3, 8), bits=4, dtypes=("f32", "f16", "bf16"))
        yield sample((3, 8), Operand((8,), **step), (3, 8), bits=2, axis=1, dtypes=("f64",))
        yield sample(("n", 2, 3), Operand((2,), **step), ("n", 2, 3), bits=2, axis=1, dtypes=("f32",))


class FakeQuantizeLsqBackwardX(_LsqBackward, op="fake_quantize_lsq_backward_x"):
    def decompose(self, b: Builder, x: Tensor, scale: Tensor, dy: Tensor, *, bits: int, axis: int | None) -> Tensor:
        return b.where(b.abs(steps_of(b, x, scale, axis)) <= float(largest_step(bits)), dy, 0.0)


class FakeQuantizeLsqBackwardScale(_LsqBackward, op="fake_quantize_lsq_backward_scale"):
    def infer(self, x: Shape, scale: Shape, dy: Shape, *, bits: int, axis: int | None) -> Shape:
        super().infer(x, scale, dy, bits=bits, axis=axis)
        return scale

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, dy: Tensor, *, bits: int, axis: int | None) -> Tensor:
        slope = scale_slope(b, steps_of(b, x, scale, axis), float(largest_step(bits)))
        return b.sum(slope * widened(b, dy), [i for i in range(x.rank) if i != axis])
