"""Losses for class indices, and a norm."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.importers.onnx.rules import imports, static_dims
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup


@dataclass(frozen=True, kw_only=True)
class LossAttributes(ArgumentGroup):
    """The attributes of a loss, with ONNX's names."""

    ignore_index: int | None = None
    reduction: str = "mean"


def _reduced(g: Graph, log_probs: Tensor, target: Tensor, weight: Tensor | None, loss_of: LossAttributes) -> Tensor:
    """Return the negative log-probability of each target. Classes are axis 1."""
    ignore_index, reduction = loss_of.ignore_index, loss_of.reduction
    used = None if ignore_index is None else g.ne(target, ignore_index)
    (classes,) = static_dims(log_probs, 1)
    index = g.where(g.lt(target, 0), g.add(target, classes), target)
    index = index if used is None else g.where(used, index, 0)
    loss = g.neg(g.squeeze(g.take_along_axis(log_probs, g.expand_dims(index, 1), axis=1), 1))
    counted = g.ones_like(loss) if weight is None else g.gather(weight, index)
    counted = counted if used is None else g.where(used, counted, 0.0)
    loss = g.mul(loss, counted)
    if used is not None:
        loss = g.where(used, loss, 0.0)
    if reduction == "none":
        return loss
    total = g.sum(loss)
    return total if reduction == "sum" else g.div(total, g.sum(counted))


@imports("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    g: Graph,
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    attributes: LossAttributes,
) -> Tensor:
    return _reduced(g, log_probs, target, weight, attributes)


@imports("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    g: Graph,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    outputs: int,
    attributes: LossAttributes,
) -> list[Tensor]:
    log_probs = g.log_softmax(scores, 1)
    return [_reduced(g, log_probs, target, weight, attributes), log_probs][:outputs]


@imports("LpNormalization")
def lp_normalization(g: Graph, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = g.sqrt(g.sum(g.mul(x, x), axis, True)) if p == 2 else g.sum(g.abs(x), axis, True)
    return g.where(g.eq(size, 0), 0.0, g.div(x, g.where(g.eq(size, 0), 1.0, size)))
