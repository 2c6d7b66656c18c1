"""Regression, embedding and distribution losses with PyTorch's names and arguments."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from math import log, pi

from rlx.functions.reduction.statistics import norm
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import axis_of, cast, checked_eps, common
from rlx.ops.loss import reduce_loss, together
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# PyTorch adds this to squared lengths before it divides by them, in `cosine_embedding_loss`.
_SQUARE_EPS = 1e-12


@helper
def l1_loss(b: Builder, prediction: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """PyTorch's `l1_loss`: `|prediction - target|`. Operands broadcast; `reduction` is `mean`, `sum` or `none`.

    Losses of complex numbers are real.
    """
    x, y = together(b, prediction, target)
    return reduce_loss(b, b.abs(statistics_input(b, x) - statistics_input(b, y)), reduction, x)


@helper
def smooth_l1_loss(
    b: Builder, prediction: TensorLike, target: TensorLike, beta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """PyTorch's `smooth_l1_loss`: `d²/(2·beta)` for distances `d` up to `beta`, else `d - beta/2`.

    Args:
        b: The graph.
        prediction: Numbers.
        target: Numbers; both broadcast.
        beta: At least 0; 0 gives `l1_loss`. `huber_loss` is this loss times its `delta`.
        reduction: `mean`, `sum` or `none`.

    Raises:
        ShapeError: The shapes do not broadcast, or `beta` is negative.
    """
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or beta < 0:
        raise ShapeError(f"beta must be a number from 0 on, got {beta!r:.60}")
    if beta == 0:
        return l1_loss(b, prediction, target, reduction)
    x, y = together(b, prediction, target)
    distance = statistics_input(b, x) - statistics_input(b, y)
    # For small distances `near` is the distance itself, so one formula covers both branches. It uses the signed
    # distance because |x| has no second derivative at 0.
    near = b.clip(distance, -float(beta), float(beta))
    return reduce_loss(b, near * (distance - near * 0.5) * (1 / beta), reduction, x)


@helper
def kl_div(
    b: Builder, log_probs: TensorLike, target: TensorLike, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """PyTorch's `kl_div`: `target·(log(target) - log_probs)`, the elementwise Kullback-Leibler divergence.

    Args:
        b: The graph.
        log_probs: Logarithms of the predicted probabilities.
        target: Probabilities, or with `log_target` their logarithms; both broadcast. Where a probability is 0 the loss
            is 0.
        reduction: `mean` of the elements, `batchmean` (the sum divided by the size of axis 0, which is the divergence),
            `sum` or `none`.
        log_target: Whether the target is given as logarithms.

    Raises:
        ShapeError: The shapes do not broadcast.
    """
    x, t = together(b, log_probs, target)
    wide, of_target = statistics_input(b, x), statistics_input(b, t)
    if log_target:
        some = of_target > float("-inf")
        losses = b.where(some, b.exp(of_target) * (b.where(some, of_target, 0.0) - wide), 0.0)
    else:
        some = of_target != 0.0
        losses = b.where(some, of_target * (b.log(b.where(some, of_target, 1.0)) - wide), 0.0)
    if reduction == "batchmean":
        if not x.rank:
            raise ShapeError("batchmean needs an axis of the batch, and there is none")
        rest = b.sum(losses, range(1, x.rank))
        return cast(b, b.mean(rest), x.dtype)
    return reduce_loss(b, losses, reduction, x)


@helper
def cosine_similarity(b: Builder, first: TensorLike, second: TensorLike, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """PyTorch's `cosine_similarity`: `first·second / (max(|first|, eps)·max(|second|, eps))` along an axis.

    Args:
        b: The graph.
        first: Vectors along the axis.
        second: Vectors; both broadcast.
        axis: By default 1, as in PyTorch.
        eps: A lower bound for the lengths in the divisor.

    Returns:
        A number for each pair, without the axis. The gradient is finite even if a vector has length 0.

    Raises:
        ShapeError: The shapes do not broadcast, there is no such axis, or `eps` is negative.
    """
    x, y = together(b, first, second)
    place, eps = axis_of(axis, x.rank), checked_eps(eps)
    wide, other = statistics_input(b, x), statistics_input(b, y)
    lengths = [b.sqrt(b.maximum(b.sum(v * v, place), eps**2)) for v in (wide, other)]
    return cast(b, b.sum(wide * other, place) / (lengths[0] * lengths[1]), x.dtype)


@helper
def cosine_embedding_loss(
    b: Builder, first: TensorLike, second: TensorLike, target: TensorLike, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """PyTorch's `cosine_embedding_loss`: `1 - cos` for pairs with target 1, `max(0, cos - margin)` for target -1.

    Args:
        b: The graph.
        first: `[N, D]` or `[D]`.
        second: As `first`.
        target: `[N]`, or a scalar: 1 or -1.
        margin: The cosine up to which pairs with target -1 have no loss.
        reduction: `mean`, `sum` or `none`.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    x, y = together(b, first, second)
    if x.rank not in (1, 2):
        raise ShapeError(f"cosine_embedding_loss takes [N, D] or [D], got {x.shape}")
    wide, other = statistics_input(b, x), statistics_input(b, y)
    squares = (b.sum(wide * wide, -1) + _SQUARE_EPS) * (b.sum(other * other, -1) + _SQUARE_EPS)
    cosine, wanted = together(b, b.sum(wide * other, -1) / b.sqrt(squares), target)
    losses = b.where(wanted == 1.0, 1.0 - cosine, 0.0) + b.where(wanted == -1.0, b.relu(cosine - float(margin)), 0.0)
    return reduce_loss(b, losses, reduction, x)


@helper
def pairwise_distance(
    b: Builder, first: TensorLike, second: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """PyTorch's `pairwise_distance`: the `p`-norm of `first - second + eps` along the last axis; operands broadcast.

    Distances of complex numbers are real.
    """
    x, y = together(b, first, second)
    axis_of(-1, x.rank)
    return cast(b, norm(b, statistics_input(b, x) - statistics_input(b, y) + float(eps), p, -1, keepdims), x.dtype.part)


@helper
def triplet_margin_loss(
    b: Builder,
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """PyTorch's `triplet_margin_loss`: `max(0, |anchor - positive| - |anchor - negative| + margin)`.

    Args:
        b: The graph.
        anchor: `[..., D]`.
        positive: Examples that should be near the anchor.
        negative: Examples that should be far from the anchor.
        margin: The difference of the two distances above which the loss is 0.
        p: The order of the norm.
        eps: Added to each difference, so that no gradient divides by 0.
        swap: Whether to use the distance between negative and positive where it is shorter.
        reduction: `mean`, `sum` or `none`.

    Raises:
        ShapeError: The shapes do not broadcast.
    """
    x, near, far = together(b, anchor, positive, negative)
    wide, near, far = (statistics_input(b, v) for v in (x, near, far))
    apart = pairwise_distance(b, wide, far, p, eps)
    if swap:
        apart = b.minimum(apart, pairwise_distance(b, near, far, p, eps))
    return reduce_loss(b, b.relu(pairwise_distance(b, wide, near, p, eps) - apart + float(margin)), reduction, x)


@helper
def poisson_nll_loss(
    b: Builder,
    prediction: TensorLike,
    target: TensorLike,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """PyTorch's `poisson_nll_loss`: `exp(x) - t·x`, or `x - t·log(x + eps)` for rates x.

    `full` adds Stirling's term of `t!`.
    """
    x, y = together(b, prediction, target)
    rate, t = statistics_input(b, x), statistics_input(b, y)
    losses = b.exp(rate) - t * rate if log_input else rate - t * b.log(rate + float(eps))
    if full:
        large = t > 1.0
        held = b.where(large, t, 1.0)
        losses = losses + b.where(large, held * b.log(held) - held + b.log(held * (2 * pi)) * 0.5, 0.0)
    return reduce_loss(b, losses, reduction, x)


@helper
def gaussian_nll_loss(
    b: Builder,
    prediction: TensorLike,
    target: TensorLike,
    var: TensorLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """PyTorch's `gaussian_nll_loss`: `(log(v) + (x - t)²/v)/2` with `v = max(var, eps)`; `full` adds `log(2π)/2`.

    All three operands broadcast. As in PyTorch, a `var` of the shape of `prediction` without its last axis has one
    variance for all numbers along that axis. Where `var` is below `eps` it has no gradient.
    """
    x, t, v = common(b, prediction, target, var)
    if v.shape.dims == x.shape.dims[:-1]:
        v = b.expand_dims(v, -1)
    x, t, v = together(b, x, t, v)
    difference, spread = statistics_input(b, x) - statistics_input(b, t), b.maximum(statistics_input(b, v), float(eps))
    losses = (b.log(spread) + difference * difference / spread) * 0.5
    return reduce_loss(b, losses + 0.5 * log(2 * pi) if full else losses, reduction, x)
