"""Losses. Their rules produce ops that fuse better than PyTorch's decompositions."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.importers.torch.rules import aten, known_size
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup

_REDUCTIONS = ("none", "mean", "sum")  # indexed by PyTorch's numbers


@dataclass(frozen=True)
class CrossEntropyArguments(ArgumentGroup):
    """The arguments of a cross entropy after the tensors, in PyTorch's order."""

    weight: Tensor | None = None
    reduction: int = 1
    ignore_index: int = -100
    label_smoothing: float = 0.0


@aten("cross_entropy_loss")
def cross_entropy(g: Graph, x: Tensor, target: Tensor, by: CrossEntropyArguments) -> Tensor:
    kind, ignored = _REDUCTIONS[by.reduction], known_size(by.ignore_index, "ignore_index")
    return g.cross_entropy(x, target, by.weight, ignored, kind, by.label_smoothing)


@aten("nll_loss", "nll_loss2d", "nll_loss_nd")
def nll_loss(
    g: Graph, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, ignore_index: int = -100
) -> Tensor:
    return g.nll_loss(x, target, weight, known_size(ignore_index, "ignore_index"), _REDUCTIONS[reduction])


@aten("mse_loss")
def mse_loss(g: Graph, x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return g.mse_loss(x, target, reduction=_REDUCTIONS[reduction])


@aten("l1_loss")
def l1_loss(g: Graph, x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    apart = g.abs(g.sub(x, target))
    return apart if reduction == 0 else (g.mean if reduction == 1 else g.sum)(apart)


@aten("smooth_l1_loss")
def smooth_l1_loss(g: Graph, x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    return g.smooth_l1_loss(x, target, beta, _REDUCTIONS[reduction])


@aten("huber_loss")
def huber_loss(g: Graph, x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    return g.huber_loss(x, target, delta=delta, reduction=_REDUCTIONS[reduction])


@aten("binary_cross_entropy")
def binary_cross_entropy(
    g: Graph, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    return g.binary_cross_entropy(x, target, weight, _REDUCTIONS[reduction])


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    g: Graph,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    return g.binary_cross_entropy_with_logits(x, target, _REDUCTIONS[reduction], weight, pos_weight)
