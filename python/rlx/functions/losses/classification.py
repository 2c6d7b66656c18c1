"""Classification losses with PyTorch's names and arguments: class weights, ignored labels, soft labels."""

from __future__ import annotations

import numpy as np

from rlx.functions.elementwise.gates import log_softmax, softplus
from rlx.functions.shape.arrange import moveaxis
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ops.lift import axis_of, cast, inexact, size_of, tensor_like
from rlx.ops.loss import class_labels, like, reduce_loss, together
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_real

# PyTorch divides by the variance of a probability, bounded below by this value.
_LEAST_VARIANCE = 1e-12


def _classes_last(b: Builder, x: TensorLike, axis: int | None, name: str) -> tuple[Tensor, int]:
    """Return class scores with the classes as the last axis, and the original class axis: 1 by default, 0 for a vector."""
    x = inexact(b, tensor_like(b, x, f32))
    if not x.rank or x.dtype.is_complex:
        raise ShapeError(f"{name} must be real numbers [N, C, ...] or [C], got {x.shape}")
    place = axis_of(axis, x.rank) if axis is not None else min(1, x.rank - 1)
    return moveaxis(b, x, place, -1), place


def _labels(b: Builder, scores: Tensor, target: Tensor, name: str) -> Tensor:
    """Return labels as i32 or i64, in the shape of `scores` without the class axis."""
    if target.shape.dims != scores.shape.dims[:-1]:
        expected = ", ".join(map(str, scores.shape.dims[:-1]))
        hint = "axis= says which axis holds the classes: axis=-1 is the last, the default is 1"
        raise ShapeError(f"labels must be [{expected}] to go with {name}, got {target.shape}", hint=hint)
    if not target.dtype.is_integer:
        raise ShapeError(f"labels must be integers, got {target.dtype.name}")
    return class_labels(b, target)


def _class_weight(b: Builder, weight: object, scores: Tensor) -> Tensor | None:
    """Return the weight of each class, `[C]`, in the dtype of the scores."""
    if weight is None:
        return None
    result = like(b, weight, scores)
    if result.shape.dims != scores.shape.dims[-1:]:
        raise ShapeError(f"weight must be [{scores.shape.dims[-1]}], one for each class, got {result.shape}")
    return result


def _label_losses(
    b: Builder, scores: Tensor, labels: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the losses of log-probabilities and their weights in a mean; both are 0 for ignored labels."""
    classes = scores.shape.dims[-1]
    label = b.expand_dims(labels, -1)
    chosen = label == b.iota((classes,), axis=0, dtype=labels.dtype)
    count = size_of(b, classes)
    count = count if isinstance(count, int) else cast(b, count, labels.dtype)
    counts = (labels >= 0) & (labels < count)
    counts = counts & (labels != int(ignore_index))
    own = 1.0 if weight is None else weight
    picked = b.where(chosen, scores * own, 0.0)
    losses = -b.sum(picked, -1)
    if smoothing:
        everywhere = -b.mean(scores * own, -1)
        losses = losses * (1.0 - smoothing) + everywhere * smoothing
    share = cast(b, counts, scores.dtype)
    if weight is not None:
        share = b.where(counts, b.sum(b.where(chosen, weight, 0.0), -1), 0.0)
    return b.where(counts, losses, 0.0), share


def _mean_by(b: Builder, losses: Tensor, share: Tensor, reduction: str, given: Tensor) -> Tensor:
    """Return the reduced losses. The mean divides by the total weight, and is NaN if that is 0."""
    if reduction == "mean":
        return cast(b, b.sum(losses) / b.sum(share), given.dtype)
    return reduce_loss(b, losses, reduction, given)


def _smoothing(value: object) -> float:
    if not is_real(value) or not 0 <= value <= 1:
        raise ShapeError(f"label_smoothing must be a number from 0 to 1, got {value!r:.60}")
    return float(value)


@helper
def cross_entropy(
    b: Builder,
    logits: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """PyTorch's `cross_entropy`: `-log(softmax(logits)[label])`.

    Args:
        b: The graph.
        logits: `[N, C, ...]`, or `[C]`, floats; with `axis=-1` `[..., C]`.
        target: Labels: integers in the shape of the logits without the classes. Or probabilities of all classes: floats
            in the shape of the logits.
        weight: `[C]`, a weight for each class.
        ignore_index: A label that is ignored. Labels outside the range of classes are ignored as well.
        reduction: `mean`, `sum` or `none`. For labels, the mean divides by the weights of the labels that are not
            ignored; for probabilities, by the number of rows. It is NaN if all labels are ignored.
        label_smoothing: The share of each label that is spread over all classes.
        axis: The axis of the classes; by default 1, as in PyTorch.

    Returns:
        A scalar, or with `none` the losses in the shape of the labels.

    Raises:
        ShapeError: Shapes or dtypes do not fit together.
    """
    x, place = _classes_last(b, logits, axis, "logits")
    target, smoothing = tensor_like(b, target, f32), _smoothing(label_smoothing)
    scores = log_softmax(b, statistics_input(b, x), -1)
    own = _class_weight(b, weight, scores)
    if not target.dtype.is_inexact or target.rank < x.rank:
        labels = _labels(b, x, target, f"logits {x.shape} (classes last)")
        losses, share = _label_losses(b, scores, labels, own, ignore_index, smoothing)
        if own is None and not smoothing:  # the loss with a gradient in closed form
            plain = b.softmax_cross_entropy_with_logits(statistics_input(b, x), labels)
            losses = b.where(share > 0.0, plain, 0.0)
        return _mean_by(b, losses, share, reduction, x)
    target = cast(b, moveaxis(b, target, place, -1), scores.dtype)
    if target.shape.dims != x.shape.dims:
        raise ShapeError(f"probabilities must have the shape of the logits, {x.shape}, got {target.shape}")
    if smoothing:
        classes = size_of(b, x.shape.dims[-1])
        each = smoothing / classes if isinstance(classes, int) else smoothing / cast(b, classes, scores.dtype)
        target = target * (1.0 - smoothing) + each
    terms = b.where(target == 0.0, 0.0, target * scores)  # probability 0 has loss 0, even at -inf
    losses = -b.sum(terms if own is None else terms * own, -1)
    return reduce_loss(b, losses, reduction, x)


@helper
def nll_loss(
    b: Builder,
    log_probs: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    axis: int | None = None,
) -> Tensor:
    """PyTorch's `nll_loss`: `-log_probs[label]`. After a `log_softmax` it is `cross_entropy`.

    Args:
        b: The graph.
        log_probs: `[N, C, ...]`, or `[C]`, floats; with `axis=-1` `[..., C]`.
        target: Labels: integers in the shape of `log_probs` without the classes.
        weight: `[C]`, a weight for each class.
        ignore_index: A label that is ignored. Labels outside the range of classes are ignored as well.
        reduction: `mean` (by the weights of the labels that count), `sum` or `none`.
        axis: The axis of the classes: by default 1.

    Raises:
        ShapeError: Shapes or dtypes do not fit together.
    """
    x, _ = _classes_last(b, log_probs, axis, "log_probs")
    scores = statistics_input(b, x)
    labels = _labels(b, x, tensor_like(b, target, f32), f"log_probs {x.shape} (classes last)")
    losses, share = _label_losses(b, scores, labels, _class_weight(b, weight, scores), ignore_index, 0.0)
    return _mean_by(b, losses, share, reduction, x)


def _bounded_log(b: Builder, x: Tensor) -> Tensor:
    """Return `max(log(x), -100)`, with slope 0 where x is 0."""
    positive = x > 0.0
    held = b.maximum(b.log(b.where(positive, x, 1.0)), -100.0)
    return b.where(positive, held, b.where(x == 0.0, -100.0, np.float32("nan")))


@helper
def binary_cross_entropy(
    b: Builder, prediction: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: str = "mean"
) -> Tensor:
    """PyTorch's `binary_cross_entropy`: `-t·log(p) - (1 - t)·log(1 - p)`, with logarithms clamped to at least -100.

    `binary_cross_entropy_with_logits` takes the logits, that is, the operand of the sigmoid, and loses no digits.

    Args:
        b: The graph.
        prediction: Probabilities `p`.
        target: Probabilities `t`; both broadcast.
        weight: A factor for each loss; broadcasts.
        reduction: `mean`, `sum` or `none`.

    Raises:
        ShapeError: The shapes do not broadcast.
    """
    p, t = together(b, prediction, target)
    x, wide = statistics_input(b, p), statistics_input(b, t)

    def slope(args: Tensors, tangents: Tensors) -> tuple[Tensor]:
        """Return PyTorch's slope. It is bounded, so that its product with a sigmoid slope of 0 is 0."""
        x, t = args
        by_target = _bounded_log(b, 1.0 - x) - _bounded_log(b, x)
        return (tangents[0] * ((x - t) / b.maximum((1.0 - x) * x, _LEAST_VARIANCE)) + tangents[1] * by_target,)

    losses = b.custom_fn(_cross_entropies, x, wide, jvp=slope)
    return reduce_loss(b, losses if weight is None else losses * like(b, weight, x), reduction, p)


def _cross_entropies(p: Tensor, t: Tensor) -> Tensor:
    b = p.builder
    return -(t * _bounded_log(b, p) + (1.0 - t) * _bounded_log(b, 1.0 - p))


def _margins(b: Builder, margin: float | Tensor, slack: Tensor) -> Tensor:
    """Return `max(0, margin - slack)`."""
    return b.relu(float(margin) - slack)


@helper
def hinge_loss(
    b: Builder, prediction: TensorLike, target: TensorLike, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """The hinge loss `max(0, margin - prediction·target)` for targets -1 and 1, as in Optax; operands broadcast."""
    x, t = together(b, prediction, target)
    return reduce_loss(b, _margins(b, margin, statistics_input(b, x) * statistics_input(b, t)), reduction, x)


@helper
def soft_margin_loss(b: Builder, prediction: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """PyTorch's `soft_margin_loss`: `log(1 + exp(-prediction·target))` for targets -1 and 1; operands broadcast."""
    x, t = together(b, prediction, target)
    return reduce_loss(b, softplus(b, -(statistics_input(b, x) * statistics_input(b, t))), reduction, x)


@helper
def hinge_embedding_loss(
    b: Builder, prediction: TensorLike, target: TensorLike, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """PyTorch's `hinge_embedding_loss`: the distance for targets 1, `max(0, margin - distance)` for targets -1.

    Other targets have the sum of both, as in PyTorch.
    """
    x, t = together(b, prediction, target)
    wide = statistics_input(b, x)
    losses = b.where(t == -1.0, 0.0, wide) + b.where(t == 1.0, 0.0, _margins(b, margin, wide))
    return reduce_loss(b, losses, reduction, x)


@helper
def margin_ranking_loss(
    b: Builder, first: TensorLike, second: TensorLike, target: TensorLike, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """PyTorch's `margin_ranking_loss`: `max(0, margin - target·(first - second))` for targets -1 and 1."""
    x, y, t = together(b, first, second, target)
    return reduce_loss(
        b, _margins(b, margin, statistics_input(b, t) * (statistics_input(b, x) - statistics_input(b, y))), reduction, x
    )
