"""Normalisations.

They are composite: the decomposition is the definition, evaluated in f32 or f64. Their gradients compute the statistics
in the same way as the decompositions, so equal ops are merged once both are decomposed. Let `x̂` be the normalised
input, `r` one over its deviation and `w = dy·scale`. The gradient of the input is `r·(w - mean w - x̂·mean(w·x̂))` if
the mean was subtracted (Ioffe and Szegedy, Batch normalization, section 3), and `r·(w - x̂·mean(w·x̂))` otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, Groups, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import DimLike, Shape
from rlx.ops import rules
from rlx.ops.lift import axes_of, cast, check_axis, same_dtype
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence


def statistics_input(b: Builder, x: Tensor) -> Tensor:
    """Return f16 and bf16 as f32, other dtypes unchanged: the precision of statistics."""
    return cast(b, x, x.dtype.compute)


def along(b: Builder, weight: Tensor, axis: int, rank: int) -> Tensor:
    """Return a vector as a tensor that varies along one axis only."""
    if axis == rank - 1:
        return weight
    return b.reshape(weight, (weight.shape.dims[0],) + (1,) * (rank - 1 - axis))


def check_weights(x: Shape, size: Dim, **weights: Shape | None) -> None:
    """Check that weights are vectors of the normalised size, in the dtype of x.

    Raises:
        ShapeError: A weight is not.
    """
    for name, weight in weights.items():
        if weight is None:
            continue
        if weight.dims != (size,):
            raise ShapeError(f"'{name}' must have shape [{size}] to go with {x}, got {weight}")
        same_dtype(x, weight)


def standardised(b: Builder, wide: Tensor, axes: int | Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """Return values minus their mean over `axes`, divided by their standard deviation, and the inverse of this deviation."""
    centred = wide - b.mean(wide, axes, keep_dims=True)
    inverse = b.rsqrt(b.mean(centred * centred, axes, keep_dims=True) + eps)
    return centred * inverse, inverse


def over_rms(b: Builder, wide: Tensor, axis: int, eps: float) -> tuple[Tensor, Tensor]:
    """Return values divided by their root mean square along `axis`, and the inverse of this root mean square."""
    inverse = b.rsqrt(b.mean(wide * wide, axis, keep_dims=True) + eps)
    return wide * inverse, inverse


def standardised_slope(b: Builder, normal: Tensor, inverse: Tensor, d: Tensor, axes: int | Sequence[int]) -> Tensor:
    """Propagate a tangent or cotangent `d` through `standardised`. The Jacobian is symmetric.

    Ioffe and Szegedy, Batch normalization, section 3.
    """
    mean, slope = b.mean(d, axes, keep_dims=True), b.mean(d * normal, axes, keep_dims=True)
    return (d - mean - normal * slope) * inverse


def over_rms_slope(b: Builder, normal: Tensor, inverse: Tensor, d: Tensor, axis: int) -> Tensor:
    """Propagate a tangent or cotangent `d` through `over_rms`. The Jacobian is symmetric."""
    return (d - normal * b.mean(d * normal, axis, keep_dims=True)) * inverse


def sum_to_weight(b: Builder, x: Tensor, axis: int) -> Tensor:
    """Return the sum over all axes except one."""
    return b.sum(x, [i for i in range(x.rank) if i != axis])


def in_groups(b: Builder, x: Tensor, num_groups: int) -> Tensor:
    """Return `[N, C, spatial…]` as `[N, num_groups, C/num_groups, spatial…]`."""
    n, channels, *spatial = x.shape.dims
    return b.reshape(x, (n, num_groups, channels // num_groups, *spatial))


def _mean(x: np.ndarray, axes: int | tuple[int, ...]) -> np.ndarray:
    """Return the mean with its axes kept. Unlike NumPy's, it does not warn about an empty axis."""
    total = x.sum(axes, keepdims=True)
    return total / (x.size / total.size if total.size else 1.0)


def _scaled(b: Builder, d: Tensor, scale: Tensor, axis: int) -> Tensor:
    """Return the cotangent of `normal` from the cotangent `d` of `normal·scale + bias`; f16 and bf16 are widened to f32."""
    return statistics_input(b, d) * along(b, statistics_input(b, scale), axis, d.rank)


def _weighted_tangent(
    b: Builder, values: tuple[Tensor, Tensor | None], scale: Tensor, weights: Tangents, axis: int, x: Shape
) -> Tensor | None:
    """Return the tangent of `normal·scale + bias`, in the dtype of `x`.

    Args:
        b: Where to emit.
        values: The normalised values, and their tangent.
        scale: The scale.
        weights: The tangents of scale and bias.
        axis: The axis along which scale and bias vary.
        x: The shape of the result.
    """
    normal, moved = values
    dscale, dbias = (None if d is None else along(b, statistics_input(b, d), axis, x.rank) for d in weights)
    terms = [
        None if moved is None else moved * along(b, statistics_input(b, scale), axis, x.rank),
        None if dscale is None else normal * dscale,
        dbias,
    ]
    result = rules.total(b, terms)
    if result is None:
        return None
    return cast(b, result if result.shape.dims == x.dims else b.expand(result, x.dims), x.dtype)


class _Norm(Card):
    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(8 * operands[0].num_elements, moved_bytes(operands, results))


def or_weights(b: Builder, x: Tensor, size: Dim, scale: object, bias: object, needs_bias: bool = True) -> list[Any]:
    """Return scale and bias of a norm, by default ones and zeros.

    Raises:
        ShapeError: The scale is a number or a shape, which PyTorch expects in this position.
    """
    if isinstance(scale, (int, tuple, list)):
        hint = "weights come after x, the rest by name: (x, scale, bias, axis=(-2, -1)), (x, scale, bias, num_groups=4)"
        raise ShapeError(f"operand 'scale' must be a tensor, got {scale!r:.60}", hint=hint)
    if scale is None:
        scale = b.expand(b.constant(1, dtype=x.dtype), (size,))
    if bias is None and needs_bias:
        bias = b.expand(b.constant(0, dtype=x.dtype), (size,))
    return [scale, bias]


def _over_axes(b: Builder, name: str, x: Tensor, given: tuple[object, object], axis: object, eps: float) -> Tensor:
    """`layer_norm` or `rms_norm` over one axis or several, which are joined; scale and bias have the shape of these axes."""
    scale, bias = given
    if is_sequence(scale) and tuple(scale) == x.shape.dims[-len(scale) :]:
        hint = f"g.{name}(x, scale{', bias' if name == 'layer_norm' else ''}, axis={tuple(range(-len(scale), 0))})"
        raise ShapeError(f"'scale' must be a tensor of weights, got the sizes {tuple(scale)}", hint=hint)
    axes = axes_of(axis, x.rank, "axis")
    dims = [x.shape.dims[a] for a in axes]
    size, needs_bias = product(dims), name == "layer_norm"
    if len(axes) == 1:
        weights = or_weights(b, x, size, scale, bias, needs_bias)
        return b.emit(name, (x, *weights), axis=axes[0], eps=eps)
    for what, weight in (("scale", scale), ("bias", bias)):
        if isinstance(weight, Tensor) and weight.shape.dims != tuple(dims):
            raise ShapeError(f"'{what}' must have the shape of axes {list(axes)} of {x.shape}, got {weight.shape}")
    flat_scale, flat_bias = (b.reshape(w, (size,)) if isinstance(w, Tensor) else w for w in (scale, bias))
    weights = or_weights(b, x, size, flat_scale, flat_bias, needs_bias)
    order = [*(i for i in range(x.rank) if i not in axes), *axes]
    back = [order.index(i) for i in range(x.rank)]
    are_last = order == [*range(x.rank)]
    moved = x if are_last else b.transpose(x, order)
    rest = moved.shape.dims[: x.rank - len(axes)]
    normal = b.emit(name, (b.reshape(moved, (*rest, size)), *weights), axis=len(rest), eps=eps)
    result = b.reshape(normal, moved.shape.dims)
    return result if are_last else b.transpose(result, back)


class LayerNorm(_Norm, op="layer_norm"):
    def infer(self, x: Shape, scale: Shape, bias: Shape, *, axis: int, eps: float) -> Shape:
        check_axis(axis, x.rank)
        check_weights(x, x.dims[axis], scale=scale, bias=bias)
        return x

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, axis: int, eps: float) -> np.ndarray:
        wide = x.astype(np.float64)
        centred = wide - _mean(wide, axis)
        normal = centred / np.sqrt(_mean(centred**2, axis) + eps)
        tail = (1,) * (x.ndim - 1 - axis)
        scaled = normal * scale.astype(np.float64).reshape(-1, *tail) + bias.astype(np.float64).reshape(-1, *tail)
        return scaled.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, axis: int, eps: float) -> Tensor:
        normal, _ = standardised(b, statistics_input(b, x), axis, eps)
        weights = [along(b, statistics_input(b, w), axis, x.rank) for w in (scale, bias)]
        return cast(b, normal * weights[0] + weights[1], x.dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        scale: TensorLike | Sequence[float] | None = None,
        bias: TensorLike | None = None,
        axis: int = -1,
        eps: float = 1e-5,
    ) -> Tensor:
        """The scale defaults to 1, the bias to 0. Over several axes, `axis=(-2, -1)`, weights have the shape of these axes."""
        return _over_axes(b, self.name, x, (scale, bias), axis, eps)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, axis: int, eps: float
    ) -> Tensor | None:
        (x, scale, _), (dx, *weights) = operands, tangents
        normal, inverse = standardised(b, statistics_input(b, x), axis, eps)
        moved = None if dx is None else standardised_slope(b, normal, inverse, statistics_input(b, dx), axis)
        return _weighted_tangent(b, (normal, moved), scale, weights, axis, x.shape)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int, eps: float
    ) -> rules.Cotangents:
        (x, scale, _), (dy,) = operands, cotangents

        def of_x() -> Tensor:
            normal, inverse = standardised(b, statistics_input(b, x), axis, eps)
            return cast(b, standardised_slope(b, normal, inverse, _scaled(b, dy, scale, axis), axis), x.dtype)

        def of_scale() -> Tensor:
            normal, _ = standardised(b, statistics_input(b, x), axis, eps)
            return cast(b, sum_to_weight(b, normal * statistics_input(b, dy), axis), x.dtype)

        return of_x, of_scale, lambda: sum_to_weight(b, dy, axis)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, eps: float) -> Tensor:
        if any(batched[1:]):
            return NotImplemented  # every entry has its own weights
        return b.emit("layer_norm", operands, axis=axis + 1, eps=eps)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 8), (8,), (8,), axis=1, dtypes=FLOATS)
        yield sample((2, 6, 3), (6,), (6,), axis=1, eps=1e-3, dtypes=("f32",))
        yield sample(("batch", "seq", 8), (8,), (8,), axis=2, dtypes=("f32",))
        yield sample((0, 8), (8,), (8,), axis=1, dtypes=("f32",))
        yield sample(SampleOperand((2, 64), low=50, high=52), (64,), (64,), axis=1, dtypes=("f32",), tolerance=20)


class RmsNorm(_Norm, op="rms_norm"):
    def infer(self, x: Shape, scale: Shape, bias: Shape | None, *, axis: int, eps: float) -> Shape:
        check_axis(axis, x.rank)
        check_weights(x, x.dims[axis], scale=scale, bias=bias)
        return x

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, *, axis: int, eps: float
    ) -> np.ndarray:
        wide = x.astype(np.float64)
        tail = (1,) * (x.ndim - 1 - axis)
        normal = wide / np.sqrt(_mean(wide**2, axis) + eps) * scale.astype(np.float64).reshape(-1, *tail)
        if bias is not None:
            normal = normal + bias.astype(np.float64).reshape(-1, *tail)
        return normal.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, bias: Tensor | None, *, axis: int, eps: float) -> Tensor:
        normal, _ = over_rms(b, statistics_input(b, x), axis, eps)
        result = normal * along(b, statistics_input(b, scale), axis, x.rank)
        if bias is not None:
            result = result + along(b, statistics_input(b, bias), axis, x.rank)
        return cast(b, result, x.dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        scale: TensorLike | Sequence[float] | None = None,
        bias: TensorLike | None = None,
        eps: float = 1e-5,
        axis: int = -1,
    ) -> Tensor:
        """The scale defaults to 1. Over several axes, `axis=(-2, -1)`, weights have the shape of these axes."""
        return _over_axes(b, self.name, x, (scale, bias), axis, eps)

    def jvp(
        self, b: Builder, operands: Groups, tangents: Groups, results: Tensors, *, axis: int, eps: float
    ) -> Tensor | None:
        (x, scale, _), (dx, *weights) = operands, tangents
        normal, inverse = over_rms(b, statistics_input(b, x), axis, eps)
        moved = None if dx is None else over_rms_slope(b, normal, inverse, statistics_input(b, dx), axis)
        return _weighted_tangent(b, (normal, moved), scale, weights, axis, x.shape)

    def vjp(
        self, b: Builder, operands: Groups, results: Tensors, cotangents: Tensors, *, axis: int, eps: float
    ) -> rules.Cotangents:
        (x, scale, _), (dy,) = operands, cotangents

        def of_x() -> Tensor:
            normal, inverse = over_rms(b, statistics_input(b, x), axis, eps)
            return cast(b, over_rms_slope(b, normal, inverse, _scaled(b, dy, scale, axis), axis), x.dtype)

        def of_scale() -> Tensor:
            normal, _ = over_rms(b, statistics_input(b, x), axis, eps)
            return cast(b, sum_to_weight(b, normal * statistics_input(b, dy), axis), x.dtype)

        return of_x, of_scale, lambda: sum_to_weight(b, dy, axis)

    def vmap(self, b: Builder, operands: Groups, batched: Groups, *, size: Dim, axis: int, eps: float) -> Tensor:
        if any(batched[1:]):
            return NotImplemented  # every entry has its own weights
        return b.emit("rms_norm", operands, axis=axis + 1, eps=eps)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 8), (8,), (8,), axis=1, dtypes=FLOATS)
        yield sample((3, 8), (8,), None, axis=1, dtypes=("f32", "f16"))
        yield sample((2, 6, 3), (6,), (6,), axis=1, eps=1e-3, dtypes=("f32",))
        yield sample(("batch", "seq", 8), (8,), (8,), axis=2, dtypes=("f32",))


class GroupNorm(_Norm, op="group_norm"):
    def infer(self, x: Shape, scale: Shape, bias: Shape, *, num_groups: int, eps: float) -> Shape:
        if x.rank < 2:
            raise ShapeError(f"x must be [N, C, spatial…], got {x}")
        channels = x.dims[1]
        if num_groups < 1 or (type(channels) is int and channels % num_groups):
            raise ShapeError(f"{channels} channels do not divide into {num_groups} groups")
        check_weights(x, channels, scale=scale, bias=bias)
        return x

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, eps: float
    ) -> np.ndarray:
        n, c = x.shape[:2]
        wide = x.astype(np.float64).reshape(n, num_groups, c // num_groups, *x.shape[2:])
        axes = tuple(range(2, wide.ndim))
        centred = wide - _mean(wide, axes)
        normal = (centred / np.sqrt(_mean(centred**2, axes) + eps)).reshape(x.shape)
        tail = (1,) * (x.ndim - 2)
        scaled = normal * scale.astype(np.float64).reshape(-1, *tail) + bias.astype(np.float64).reshape(-1, *tail)
        return scaled.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, eps: float) -> Tensor:
        grouped = in_groups(b, statistics_input(b, x), num_groups)
        normal, _ = standardised(b, grouped, range(2, grouped.rank), eps)
        normal = b.reshape(normal, x.shape.dims)
        weights = [along(b, statistics_input(b, w), 1, x.rank) for w in (scale, bias)]
        return cast(b, normal * weights[0] + weights[1], x.dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        scale: TensorLike | Sequence[float] | None = None,
        bias: TensorLike | None = None,
        num_groups: int | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """The scale defaults to 1, the bias to 0. `num_groups` is required."""
        weights = or_weights(b, x, x.shape.dims[1] if x.rank > 1 else 1, scale, bias)
        if num_groups is None:
            raise ShapeError("num_groups is missing: group_norm(x, scale, bias, num_groups=4)")
        return b.emit("group_norm", (x, *weights), num_groups=num_groups, eps=eps)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, num_groups: int, eps: float
    ) -> Tensor | None:
        (x, scale, _), (dx, *weights) = operands, tangents
        grouped = in_groups(b, statistics_input(b, x), num_groups)
        axes = range(2, grouped.rank)
        normal, inverse = standardised(b, grouped, axes, eps)
        moved = None
        if dx is not None:
            moved = standardised_slope(b, normal, inverse, in_groups(b, statistics_input(b, dx), num_groups), axes)
            moved = b.reshape(moved, x.shape.dims)
        return _weighted_tangent(b, (b.reshape(normal, x.shape.dims), moved), scale, weights, 1, x.shape)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, num_groups: int, eps: float
    ) -> rules.Cotangents:
        (x, scale, _), (dy,) = operands, cotangents

        def of_x() -> Tensor:
            grouped, d = (
                in_groups(b, statistics_input(b, x), num_groups),
                in_groups(b, _scaled(b, dy, scale, 1), num_groups),
            )
            axes = range(2, grouped.rank)
            slope = standardised_slope(b, *standardised(b, grouped, axes, eps), d, axes)
            return cast(b, b.reshape(slope, x.shape.dims), x.dtype)

        def of_scale() -> Tensor:
            grouped = in_groups(b, statistics_input(b, x), num_groups)
            normal, _ = standardised(b, grouped, range(2, grouped.rank), eps)
            return cast(b, sum_to_weight(b, b.reshape(normal, x.shape.dims) * statistics_input(b, dy), 1), x.dtype)

        return of_x, of_scale, lambda: sum_to_weight(b, dy, 1)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, num_groups: int, eps: float) -> Tensor:
        (x, *weights), (_, *weights_batched) = operands, batched
        if any(weights_batched):
            return NotImplemented  # every entry has its own weights
        result = b.group_norm(rules.folded(b, x, 0), *weights, num_groups=num_groups, eps=eps)
        return rules.unfolded(b, result, 0, size, x.shape.dims[1])

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 6, 4, 3), (6,), (6,), num_groups=3, dtypes=FLOATS)
        yield sample((2, 6, 5), (6,), (6,), num_groups=1, dtypes=("f32",))
        yield sample((2, 6), (6,), (6,), num_groups=2, eps=1e-3, dtypes=("f32",))
        yield sample(("n", 4, "h", 3), (4,), (4,), num_groups=2, dtypes=("f32",))


class LayerNorm2d(_Norm, op="layer_norm2d"):
    def infer(self, x: Shape, scale: Shape, bias: Shape, *, eps: float) -> Shape:
        if x.rank != 4:
            raise ShapeError(f"x must be [N, C, H, W], got {x}")
        check_weights(x, x.dims[1], scale=scale, bias=bias)
        return x

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, eps: float) -> Tensor:
        return b.layer_norm(x, scale, bias, axis=1, eps=eps)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 6, 3, 4), (6,), (6,), dtypes=FLOATS)
        yield sample(("n", 4, "h", 3), (4,), (4,), eps=1e-3, dtypes=("f32",))


class BatchNormInference(_Norm, op="batch_norm_inference"):
    def infer(self, x: Shape, scale: Shape, bias: Shape, mean: Shape, variance: Shape, *, eps: float) -> Shape:
        if x.rank < 2:
            raise ShapeError(f"x must be [N, C, spatial…], got {x}")
        check_weights(x, x.dims[1], scale=scale, bias=bias, mean=mean, variance=variance)
        return x

    def evaluate(self, x: np.ndarray, *weights: np.ndarray, eps: float) -> np.ndarray:
        tail = (1,) * (x.ndim - 2)
        scale, bias, mean, variance = (w.astype(np.float64).reshape(-1, *tail) for w in weights)
        return ((x.astype(np.float64) - mean) / np.sqrt(variance + eps) * scale + bias).astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, *weights: Tensor, eps: float) -> Tensor:
        scale, bias, mean, variance = (statistics_input(b, w) for w in weights)
        factor = along(b, scale * b.rsqrt(variance + eps), 1, x.rank)  # one per channel
        result = (statistics_input(b, x) - along(b, mean, 1, x.rank)) * factor + along(b, bias, 1, x.rank)
        return cast(b, result, x.dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(3 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(x: tuple[DimLike, ...], **options: Any) -> OpSample:
            channels = (x[1],)
            return sample(x, channels, channels, channels, SampleOperand(channels, low=0.1, high=4), **options)

        yield case((2, 6, 3, 4), dtypes=FLOATS)
        yield case((3, 5), eps=1e-2, dtypes=("f32",))
        yield case(("n", 4, "l"), dtypes=("f32",))
