"""Losses in forms that neither overflow nor cancel. f16 and bf16 are computed in f32 and rounded once."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, maximum
from rlx.ir.dtype import FLOATS, DType, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import broadcast, cast, common, inexact, same_dtype, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.shape.index import clamp, widened_index
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence


def class_slope(b: Builder, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return `softmax(logits) - onehot(labels)`, and whether each label is a class, `[…, 1]`; f16 and bf16 become f32."""
    classes = logits.shape.dims[-1]
    labels = class_labels(b, labels)
    label = b.reshape(labels, (*labels.shape.dims, 1))
    count = classes if type(classes) is int else cast(b, b.dim_size(classes), labels.dtype)
    weights = b.softmax(statistics_input(b, logits), axis=-1)
    is_label = b.iota((classes,), axis=0, dtype=labels.dtype) == label
    return weights - cast(b, is_label, weights.dtype), (label >= 0) & (label < count)


def class_labels(b: Builder, labels: Tensor) -> Tensor:
    """Return labels as i32, or as i64 if they have 64 bits.

    A label of 2**31 or more is out of range, because no axis is that long. Cast to i32 it is negative, so still out of
    range.
    """
    return widened_index(b, labels) if labels.dtype.bits == 64 else cast(b, labels, i32)


class SoftmaxCrossEntropyWithLogits(Card, op="softmax_cross_entropy_with_logits"):
    def infer(self, logits: Shape, labels: Shape) -> Shape:
        if not logits.rank:
            raise ShapeError("logits must be […, C], got a scalar")
        if labels.dims != logits.dims[:-1]:
            expected = ", ".join(map(str, logits.dims[:-1]))
            raise ShapeError(f"labels must be [{expected}] to go with logits {logits}, got {labels}")
        if logits.dims[-1] == 0:
            raise ShapeError(f"the last axis of {logits} is empty: there are no classes")
        return logits.with_dims(logits.dims[:-1])

    def requires(self, logits: Shape, labels: Shape) -> list[tuple[Dim, str]]:
        return [(logits.dims[-1] - 1, "the last axis of the logits is empty: there are no classes")]

    def evaluate(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        wide, count = logits.astype(np.float64), logits.shape[-1]
        shifted = wide - wide.max(-1, keepdims=True)
        chosen = clamp(labels, count)[..., None]
        loss = np.log(np.exp(shifted).sum(-1)) - np.take_along_axis(shifted, chosen, -1)[..., 0]
        return np.where((labels >= 0) & (labels < count), loss, 0.0).astype(logits.dtype)

    def decompose(self, b: Builder, logits: Tensor, labels: Tensor) -> Tensor:
        count = logits.shape.dims[-1]
        wide = statistics_input(b, logits)
        shifted = wide - b.stop_gradient(b.max(wide, -1, keep_dims=True))  # the loss does not depend on the shift
        labels = class_labels(b, labels)
        kind = labels.dtype
        chosen = b.where(b.reshape(labels, (*labels.shape, 1)) == b.iota((count,), 0, kind), shifted, 0.0)
        loss = b.log(b.sum(b.exp(shifted), -1)) - b.sum(chosen, -1)
        is_class = (labels >= 0) * (labels < cast(b, b.dim_size(count), kind))
        return cast(b, b.where(is_class, loss, 0.0), logits.dtype)

    def build(self, b: Builder, logits: Tensor, labels: TensorLike) -> Tensor:
        return b.emit("softmax_cross_entropy_with_logits", (logits, tensor_like(b, labels, i32)))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors) -> Tensor:
        (logits, labels), (dlogits, _) = operands, tangents
        assert dlogits is not None  # integer labels have no tangent
        slope, is_class = class_slope(b, logits, labels)
        loss = b.sum(b.where(is_class, slope * statistics_input(b, dlogits), 0.0), -1)
        return cast(b, loss, logits.dtype)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (logits, labels), (dloss,) = operands, cotangents
        slope, is_class = class_slope(b, logits, labels)
        dlogits = slope * b.reshape(statistics_input(b, dloss), (*labels.shape.dims, 1))
        return cast(b, b.where(is_class, dlogits, 0.0), logits.dtype), None

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        logits, labels = operands
        if not batched[0]:
            return NotImplemented  # one softmax for all entries
        return b.emit("softmax_cross_entropy_with_logits", (logits, rules.batch(b, labels, batched[1], size)))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(15 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        some: Attributes = {"low": -2, "high": 7}  # out of range in both directions
        yield sample(SampleOperand((3, 5), low=-9, high=9), SampleOperand((3,), "i32", **some), dtypes=FLOATS)
        for index in ("i8", "i64", "u8", "u32"):
            yield sample((4, 5), SampleOperand((4,), index, **some), dtypes=("f32",))
        yield sample((6,), SampleOperand((), "i32", low=0, high=6), dtypes=("f32",))
        yield sample((2, 0, 5), SampleOperand((2, 0), "i32"), dtypes=("f32",))
        yield sample(("batch", "seq", "classes"), SampleOperand(("batch", "seq"), "i32", **some), dtypes=("f32",))


class _ElementLoss(Card):
    """The loss of each element of two tensors of one shape, or their mean or sum."""

    def slopes(self, b: Builder, x: Tensor, y: Tensor, **attributes: Any) -> tuple[Callable[[], Tensor], ...]:
        """Return the derivatives of an element's loss with respect to both operands (f32 or f64). Each is emitted on demand."""
        raise NotImplementedError

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, reduction: str, **attributes: Any
    ) -> Tensor:
        slopes = self.slopes(b, *(statistics_input(b, operand) for operand in operands), **attributes)
        terms = [
            None if d is None else slope() * statistics_input(b, d) for slope, d in zip(slopes, tangents, strict=True)
        ]
        moved = rules.total(b, terms)
        assert moved is not None
        return _reduce(b, moved, reduction, operands[0])

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, reduction: str, **attributes: Any
    ) -> rules.Cotangents:
        slopes = self.slopes(b, *(statistics_input(b, operand) for operand in operands), **attributes)
        dloss = statistics_input(b, cotangents[0])
        if reduction == "mean":
            count = maximum(
                operands[0].shape.num_elements, 1
            )  # without elements there is no gradient that could be NaN
            dloss = dloss / (count if type(count) is int else b.cast(b.dim_size(count), dloss.dtype))
        return [
            partial(_times, b, slope, dloss, operand.dtype) for slope, operand in zip(slopes, operands, strict=True)
        ]

    def infer(self, prediction: Shape, target: Shape, *, reduction: str, **_: object) -> Shape:
        same_dtype(prediction, target)
        if prediction.dims != target.dims:
            names = " and ".join(operand.name for operand in self.spec.operands)
            raise ShapeError(f"{names} must have one shape, got {prediction} and {target}")
        return prediction if reduction == "none" else prediction.with_dims(())

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, reduction: str, **attributes: Any
    ) -> Tensor:
        """Return a loss for each batch entry: elementwise losses, reduced. f16 and bf16 are rounded at the end only."""
        full = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(operands, batched, strict=True)]
        if reduction == "none":
            return b.emit(self.name, full, reduction=reduction, **attributes)
        losses = b.emit(self.name, [statistics_input(b, x) for x in full], reduction="none", **attributes)
        return cast(b, b.reduce(reduction, losses, range(1, losses.rank)), full[0].dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(5 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), (3, 5), dtypes=FLOATS)
        yield sample((3, 5), (3, 5), reduction="none", dtypes=FLOATS)
        yield sample((2, 3, 4), (2, 3, 4), reduction="sum", dtypes=("f32",))
        yield sample((0, 3), (0, 3), dtypes=("f32",))
        yield sample(("n", 3), ("n", 3), dtypes=("f32",))


def _reduced(losses: np.ndarray, reduction: str, dtype: np.dtype) -> np.ndarray:
    if reduction == "none":
        return losses.astype(dtype)
    total = losses.sum()
    return np.asarray(total if reduction == "sum" else total / np.float64(losses.size)).astype(dtype)


def _reduce(b: Builder, losses: Tensor, reduction: str, like: Tensor) -> Tensor:
    return cast(b, losses if reduction == "none" else b.reduce(reduction, losses), like.dtype)


def together(b: Builder, *values: object) -> list[Tensor]:
    """Return predictions, targets and so on in one dtype and one broadcast shape. Integers become floats.

    Raises:
        ShapeError: The shapes do not broadcast.
    """
    tensors = [inexact(b, x) for x in common(b, *values)]
    dims = tensors[0].shape.dims
    for tensor in tensors[1:]:
        dims = broadcast(dims, tensor.shape.dims)
    return [x if x.shape.dims == dims else b.expand(x, dims) for x in tensors]


def like(b: Builder, value: object, x: Tensor) -> Tensor:
    """Return a weight in the dtype of `x`: a number, array, list or tensor that broadcasts to the losses."""
    if is_sequence(value):
        value = np.asarray(value)
    return cast(b, tensor_like(b, value, x.dtype), x.dtype)


def reduce_loss(b: Builder, losses: Tensor, reduction: str, given: Tensor) -> Tensor:
    """Return elementwise losses, their mean or their sum, in the dtype of `given`: in that of its parts if they are real.

    Raises:
        ShapeError: The reduction is unknown.
    """
    if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
        raise ShapeError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r:.60}")
    kind = given.dtype if losses.dtype.is_complex else given.dtype.part
    return cast(b, losses if reduction == "none" else b.reduce(reduction, losses), kind)


def _times(b: Builder, slope: Callable[[], Tensor], dloss: Tensor, kind: DType) -> Tensor:
    """Return a gradient: a derivative times the gradient of the loss."""
    return cast(b, slope() * dloss, kind)


def _difference_slopes(slope: Callable[[], Tensor]) -> tuple[Callable[[], Tensor], ...]:
    """Return the derivatives of a function of `x - y`."""
    return slope, lambda: -slope()


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in arrays]


class MseLoss(_ElementLoss, op="mse_loss"):
    def evaluate(self, prediction: np.ndarray, target: np.ndarray, *, reduction: str) -> np.ndarray:
        x, y = _wide(prediction, target)
        return _reduced((x - y) ** 2, reduction, prediction.dtype)

    def decompose(self, b: Builder, prediction: Tensor, target: Tensor, *, reduction: str) -> Tensor:
        difference = statistics_input(b, prediction) - statistics_input(b, target)
        return _reduce(b, difference * difference, reduction, prediction)

    def build(self, b: Builder, prediction: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
        return b.emit("mse_loss", together(b, prediction, target), reduction=reduction)

    def slopes(self, b: Builder, x: Tensor, y: Tensor, **_: object) -> tuple[Callable[[], Tensor], ...]:
        return _difference_slopes(lambda: (x - y) * 2.0)


class HuberLoss(_ElementLoss, op="huber_loss"):
    def infer(self, prediction: Shape, target: Shape, *, reduction: str, **_: object) -> Shape:
        return super().infer(prediction, target, reduction=reduction)

    def evaluate(self, prediction: np.ndarray, target: np.ndarray, *, delta: float, reduction: str) -> np.ndarray:
        x, y = _wide(prediction, target)
        distance = np.abs(x - y)
        losses = np.where(distance <= delta, distance**2 / 2, delta * (distance - delta / 2))
        return _reduced(losses, reduction, prediction.dtype)

    def decompose(self, b: Builder, prediction: Tensor, target: Tensor, *, delta: float, reduction: str) -> Tensor:
        distance = statistics_input(b, prediction) - statistics_input(b, target)
        # One formula for both branches: `near` is the clipped distance. For small distances the formula is half their
        # square.
        near = b.clip(distance, -delta, delta)
        return _reduce(b, near * (distance - near * 0.5), reduction, prediction)

    def build(
        self, b: Builder, prediction: TensorLike, target: TensorLike, delta: float = 1.0, reduction: str = "mean"
    ) -> Tensor:
        return b.emit("huber_loss", together(b, prediction, target), delta=delta, reduction=reduction)

    def slopes(self, b: Builder, x: Tensor, y: Tensor, **attributes: Any) -> tuple[Callable[[], Tensor], ...]:
        delta: float = attributes["delta"]
        return _difference_slopes(lambda: b.minimum(b.maximum(x - y, -delta), delta))

    def samples(self) -> Iterable[OpSample]:
        yield from super().samples()
        yield sample((4, 9), (4, 9), delta=0.3, reduction="none", dtypes=("f32",))


class BinaryCrossEntropyWithLogits(_ElementLoss, op="binary_cross_entropy_with_logits"):
    def evaluate(self, logits: np.ndarray, targets: np.ndarray, *, reduction: str) -> np.ndarray:
        x, t = _wide(logits, targets)
        return _reduced(np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))), reduction, logits.dtype)

    def decompose(self, b: Builder, logits: Tensor, targets: Tensor, *, reduction: str) -> Tensor:
        x, t = statistics_input(b, logits), statistics_input(b, targets)
        upper = x > 0.0  # both formulas are smooth; |x| and a maximum have no second derivative at 0
        losses = b.where(upper, x, 0.0) - x * t + b.log1p(b.exp(b.where(upper, -x, x)))
        return _reduce(b, losses, reduction, logits)

    def build(
        self,
        b: Builder,
        logits: TensorLike,
        targets: TensorLike,
        reduction: str = "mean",
        weight: TensorLike | None = None,
        pos_weight: TensorLike | None = None,
    ) -> Tensor:
        """Operands broadcast.

        Own arguments:
            weight: Multiplies each loss; or None.
            pos_weight: Multiplies the losses of targets 1; or None.
        """
        if weight is None and pos_weight is None:
            return b.emit("binary_cross_entropy_with_logits", together(b, logits, targets), reduction=reduction)
        logits, targets = together(b, logits, targets)
        x, t = statistics_input(b, logits), statistics_input(b, targets)
        # The losses of both classes, whose derivatives are in closed form.
        of_ones, of_zeros = (
            b.emit(self.name, (x, b.expand(b.constant(label, dtype=x.dtype), x.shape.dims)), reduction="none")
            for label in (1, 0)
        )
        if pos_weight is not None:
            of_ones = of_ones * like(b, pos_weight, x)
        losses = t * of_ones + (1.0 - t) * of_zeros
        return reduce_loss(b, losses if weight is None else losses * like(b, weight, x), reduction, logits)

    def slopes(self, b: Builder, x: Tensor, y: Tensor, **_: object) -> tuple[Callable[[], Tensor], ...]:
        # sigmoid(x) - y would cancel where the prediction is correct.
        return lambda: b.sigmoid(x) * (1.0 - y) - b.sigmoid(-x) * y, lambda: -x

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(27 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        probabilities: Attributes = {"low": 0, "high": 1}
        yield sample(SampleOperand((3, 5), low=-20, high=20), SampleOperand((3, 5), **probabilities), dtypes=FLOATS)
        for reduction in ("none", "sum"):
            yield sample((3, 5), SampleOperand((3, 5), **probabilities), reduction=reduction, dtypes=("f32", "f16"))
        yield sample((0, 3), (0, 3), dtypes=("f32",))
        yield sample(("n", 3), SampleOperand(("n", 3), **probabilities), dtypes=("f32",))
