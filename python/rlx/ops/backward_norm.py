"""Gradients of the normalisations, with respect to their input, scale (gamma) and bias (beta).

With `x̂` the normalised input, `r` one over its deviation and `w = dy·scale`, the gradient of the input is
`r·(w - mean w - x̂·mean(w·x̂))` where the mean was taken off (Ioffe and Szegedy, Batch normalization, section 3), and
`r·(w - x̂·mean(w·x̂))` where it was not. Computed in f32 for f16 and bf16.
"""

from __future__ import annotations

from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops.backward import check_cotangent
from rlx.ops.lift import axis_of, cast
from rlx.ops.norm import (
    along,
    in_groups,
    over_rms,
    over_rms_slope,
    standardised,
    standardised_slope,
    sum_to_weight,
    widened,
)
from rlx.ops.reduce import FLOATS


def _weight(x: Shape, axis: int) -> Shape:
    """The shape of a scale or bias along an axis."""
    return x.with_dims(x.dims[axis : axis + 1])


def _check(op: str, x: Shape, scale: Shape, bias: Shape | None, dy: Shape, **attributes: Any) -> None:
    """The operands are those of the forward op, and `dy` has the shape of its result."""
    check_cotangent(dy, registry.card(op).infer(x, scale, bias, **attributes))


class _NormBackward(Card):
    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(14 * operands[0].num_elements, moved_bytes(operands, results))


class LayerNormBackwardInput(_NormBackward, op="layer_norm_backward_input"):
    def infer(self, x: Shape, scale: Shape, dy: Shape, *, axis: int, eps: float) -> Shape:
        _check("layer_norm", x, scale, scale, dy, axis=axis, eps=eps)
        return x

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, dy: Tensor, *, axis: int, eps: float) -> Tensor:
        w = widened(b, dy) * along(b, widened(b, scale), axis, x.rank)
        normal, inverse = standardised(b, widened(b, x), axis, eps)
        return cast(b, standardised_slope(b, normal, inverse, w, axis), x.dtype)

    def build(self, b: Builder, x: Tensor, scale: Tensor, dy: Tensor, axis: int = -1, eps: float = 1e-5) -> Tensor:
        return b.emit("layer_norm_backward_input", (x, scale, dy), axis=axis_of(axis, x.rank), eps=eps)

    def samples(self) -> Any:
        yield sample((3, 8), (8,), (3, 8), axis=1, dtypes=FLOATS)
        yield sample((2, 6, 3), (6,), (2, 6, 3), axis=1, eps=1e-3, dtypes=("f32",))
        yield sample(("batch", "seq", 8), (8,), ("batch", "seq", 8), axis=2, dtypes=("f32",))


class LayerNormBackwardGamma(_NormBackward, op="layer_norm_backward_gamma"):
    def infer(self, x: Shape, dy: Shape, *, axis: int, eps: float) -> Shape:
        weight = _weight(x, axis)
        _check("layer_norm", x, weight, weight, dy, axis=axis, eps=eps)
        return weight

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, axis: int, eps: float) -> Tensor:
        normal, _ = standardised(b, widened(b, x), axis, eps)
        return cast(b, sum_to_weight(b, normal * widened(b, dy), axis), x.dtype)

    def build(self, b: Builder, x: Tensor, dy: Tensor, axis: int = -1, eps: float = 1e-5) -> Tensor:
        return b.emit("layer_norm_backward_gamma", (x, dy), axis=axis_of(axis, x.rank), eps=eps)

    def samples(self) -> Any:
        yield sample((3, 8), (3, 8), axis=1, dtypes=FLOATS)
        yield sample((2, 6, 3), (2, 6, 3), axis=1, eps=1e-3, dtypes=("f32",))
        yield sample(("n", 8), ("n", 8), axis=1, dtypes=("f32",))


class _RmsNormBackward(_NormBackward):
    """What the three gradients of `rms_norm` share: operands, attributes and their check."""

    def infer(self, x: Shape, scale: Shape, bias: Shape | None, dy: Shape, *, axis: int, eps: float) -> Shape:
        _check("rms_norm", x, scale, bias, dy, axis=axis, eps=eps)
        return _weight(x, axis)

    def build(
        self, b: Builder, x: Tensor, scale: Tensor, bias: Any, dy: Tensor, axis: int = -1, eps: float = 1e-5
    ) -> Tensor:
        return b.emit(self.name, (x, scale, bias, dy), axis=axis_of(axis, x.rank), eps=eps)

    def samples(self) -> Any:
        yield sample((3, 8), (8,), (8,), (3, 8), axis=1, dtypes=FLOATS)
        yield sample((2, 6, 3), (6,), (6,), (2, 6, 3), axis=1, eps=1e-3, dtypes=("f32",))
        yield sample(("n", 8), (8,), (8,), ("n", 8), axis=1, dtypes=("f32",))


class RmsNormBackwardInput(_RmsNormBackward, op="rms_norm_backward_input"):
    def infer(self, x: Shape, scale: Shape, bias: Shape | None, dy: Shape, *, axis: int, eps: float) -> Shape:
        super().infer(x, scale, bias, dy, axis=axis, eps=eps)
        return x

    def decompose(
        self, b: Builder, x: Tensor, scale: Tensor, bias: Any, dy: Tensor, *, axis: int, eps: float
    ) -> Tensor:
        w = widened(b, dy) * along(b, widened(b, scale), axis, x.rank)
        normal, inverse = over_rms(b, widened(b, x), axis, eps)
        return cast(b, over_rms_slope(b, normal, inverse, w, axis), x.dtype)

    def samples(self) -> Any:
        yield from super().samples()
        yield sample((3, 8), (8,), None, (3, 8), axis=1, dtypes=("f32",))


class RmsNormBackwardGamma(_RmsNormBackward, op="rms_norm_backward_gamma"):
    def decompose(
        self, b: Builder, x: Tensor, scale: Tensor, bias: Any, dy: Tensor, *, axis: int, eps: float
    ) -> Tensor:
        normal, _ = over_rms(b, widened(b, x), axis, eps)
        return cast(b, sum_to_weight(b, normal * widened(b, dy), axis), x.dtype)

    def samples(self) -> Any:
        yield from super().samples()
        yield sample((3, 8), (8,), None, (3, 8), axis=1, dtypes=("f32",))


class RmsNormBackwardBeta(_RmsNormBackward, op="rms_norm_backward_beta"):
    def decompose(
        self, b: Builder, x: Tensor, scale: Tensor, bias: Any, dy: Tensor, *, axis: int, eps: float
    ) -> Tensor:
        return sum_to_weight(b, dy, axis)


class GroupNormBackwardInput(_NormBackward, op="group_norm_backward_input"):
    def infer(self, x: Shape, scale: Shape, bias: Shape, dy: Shape, *, num_groups: int, eps: float) -> Shape:
        _check("group_norm", x, scale, bias, dy, num_groups=num_groups, eps=eps)
        return x

    def decompose(
        self, b: Builder, x: Tensor, scale: Tensor, bias: Tensor, dy: Tensor, *, num_groups: int, eps: float
    ) -> Tensor:
        w = widened(b, dy) * along(b, widened(b, scale), 1, x.rank)
        grouped, of_groups = in_groups(b, widened(b, x), num_groups), in_groups(b, w, num_groups)
        axes = range(2, grouped.rank)
        normal, inverse = standardised(b, grouped, axes, eps)
        result = standardised_slope(b, normal, inverse, of_groups, axes)
        return cast(b, b.reshape(result, x.shape.dims), x.dtype)

    def samples(self) -> Any:
        yield sample((2, 6, 4, 3), (6,), (6,), (2, 6, 4, 3), num_groups=3, dtypes=FLOATS)
        yield sample((2, 6), (6,), (6,), (2, 6), num_groups=2, eps=1e-3, dtypes=("f32",))
        yield sample(("n", 4, "h", 3), (4,), (4,), ("n", 4, "h", 3), num_groups=2, dtypes=("f32",))


class _GroupNormBackwardWeight(_NormBackward):
    """What the gradients of the scale and the bias of `group_norm` share."""

    def infer(self, x: Shape, dy: Shape, *, num_groups: int, eps: float) -> Shape:
        weight = _weight(x, 1)
        _check("group_norm", x, weight, weight, dy, num_groups=num_groups, eps=eps)
        return weight

    def samples(self) -> Any:
        yield sample((2, 6, 4, 3), (2, 6, 4, 3), num_groups=3, dtypes=FLOATS)
        yield sample((2, 6), (2, 6), num_groups=2, eps=1e-3, dtypes=("f32",))
        yield sample(("n", 4, "h"), ("n", 4, "h"), num_groups=2, dtypes=("f32",))


class GroupNormBackwardGamma(_GroupNormBackwardWeight, op="group_norm_backward_gamma"):
    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, num_groups: int, eps: float) -> Tensor:
        grouped = in_groups(b, widened(b, x), num_groups)
        normal, _ = standardised(b, grouped, range(2, grouped.rank), eps)
        return cast(b, sum_to_weight(b, b.reshape(normal, x.shape.dims) * widened(b, dy), 1), x.dtype)


class GroupNormBackwardBeta(_GroupNormBackwardWeight, op="group_norm_backward_beta"):
    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, num_groups: int, eps: float) -> Tensor:
        return sum_to_weight(b, dy, 1)
