"""Losses of `torch.nn.functional`."""

from __future__ import annotations

import math
from typing import Any

from tests.peers.reductions import vector_norm
from tests.peers.vocabulary import needs, says, sizes

_NN = "nn.functional."


def _loss(*names: str, **properties: Any) -> Any:
    """Register a loss by its values before the reduction."""

    def entered(function: Any) -> Any:
        def whole(g: Any, *args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
            return reduced(g, function(g, *args, **kwargs), reduction)

        return says(*(_NN + name for name in names), **properties)(whole)

    return entered


def reduced(g: Any, values: Any, reduction: str) -> Any:
    """Return the values, their mean or their sum."""
    if reduction == "batchmean":
        return g.sum(values) / sizes(values)[0]
    return values if reduction == "none" else g.mean(values) if reduction == "mean" else g.sum(values)


@_loss("l1_loss")
def _l1(g: Any, x: Any, y: Any, weight: Any = None) -> Any:
    needs(weight is None, "weights are left out")
    return g.abs(x - y)


@_loss("smooth_l1_loss")
def _smooth(g: Any, x: Any, y: Any, beta: float = 1.0) -> Any:
    d = g.abs(x - y)
    return d if beta == 0 else g.where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta)


@_loss("soft_margin_loss", finite=True)
def _soft_margin(g: Any, x: Any, y: Any) -> Any:
    return g.log(1.0 + g.exp(-y * x))


@_loss("hinge_embedding_loss", differentiable=False)
def _hinge(g: Any, x: Any, y: Any, margin: float = 1.0) -> Any:
    return g.where(y == 1, x, 0.0) + g.where(y == -1, g.maximum(margin - x, 0.0), 0.0)


@_loss("margin_ranking_loss")
def _ranking(g: Any, x: Any, y: Any, target: Any, margin: float = 0.0) -> Any:
    return g.maximum(-target * (x - y) + margin, 0.0)


@_loss("kl_div", finite=True)
def _kl(g: Any, x: Any, y: Any, log_target: bool = False) -> Any:
    if log_target:
        return g.exp(y) * (y - x)
    return g.where(y == 0, 0.0, y * g.log(g.where(y == 0, 1.0, y))) - y * x


@_loss("binary_cross_entropy", finite=True)
def _bce(g: Any, x: Any, y: Any, weight: Any = None) -> Any:
    loss = -(y * g.maximum(g.log(x), -100.0) + (1.0 - y) * g.maximum(g.log(1.0 - x), -100.0))
    return loss if weight is None else loss * weight


@_loss("poisson_nll_loss", finite=True)
def _poisson(g: Any, x: Any, y: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8) -> Any:
    loss = g.exp(x) - y * x if log_input else x - y * g.log(x + eps)
    if full:
        extra = y * g.log(y) - y + g.log(y * (2 * math.pi)) * 0.5
        loss = loss + g.where(y > 1, extra, 0.0)
    return loss


@_loss("gaussian_nll_loss", finite=True, differentiable=False)
def _gaussian(g: Any, x: Any, y: Any, var: Any, full: bool = False, eps: float = 1e-6) -> Any:
    if sizes(var) != sizes(x) and (var.rank != x.rank or sizes(var)[-1] != 1):
        var = g.reshape(var, (*sizes(var), 1))
    var = g.maximum(var, eps)
    loss = (g.log(var) + (x - y) * (x - y) / var) * 0.5
    return loss + 0.5 * math.log(2 * math.pi) if full else loss


@_loss("cosine_embedding_loss", finite=True, differentiable=False)
def _cosine_embedding(g: Any, x: Any, y: Any, target: Any, margin: float = 0.0) -> Any:
    needs(x.dtype.is_float, "floats")
    eps = 1e-12
    x2, y2, xy = (g.sum(a * b, [-1]) for a, b in ((x, x), (y, y), (x, y)))
    cosine = xy / g.sqrt((x2 + eps) * (y2 + eps))
    return g.where(target == 1, 1.0 - cosine, 0.0) + g.where(target == -1, g.maximum(cosine - margin, 0.0), 0.0)


@_loss("triplet_margin_loss", finite=True)
def _triplet(
    g: Any, a: Any, p: Any, n: Any, margin: float = 1.0, p_: int = 2, swap: bool = False, eps: float = 1e-6
) -> Any:
    near, far = (vector_norm(g, a - t + eps, 2, [-1]) for t in (p, n))
    if swap:
        far = g.minimum(far, vector_norm(g, p - n + eps, 2, [-1]))
    return g.maximum(near - far + margin, 0.0)


@_loss("multilabel_soft_margin_loss", finite=True)
def _multilabel_soft(g: Any, x: Any, y: Any, weight: Any = None) -> Any:
    def log_sigmoid(t: Any) -> Any:
        return g.minimum(t, 0.0) - g.log(1.0 + g.exp(-g.abs(t)))

    loss = -(y * log_sigmoid(x) + (1.0 - y) * log_sigmoid(-x))
    return g.mean(loss if weight is None else loss * weight, [-1])


@says(_NN + "mse_loss")
def _mse(g: Any, x: Any, y: Any, reduction: str = "mean", weight: Any = None) -> Any:
    needs(weight is None and sizes(x) == sizes(y), "one shape, no weights")
    return g.mse_loss(x, y, reduction)


@says(_NN + "huber_loss")
def _huber(g: Any, x: Any, y: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    needs(weight is None and sizes(x) == sizes(y), "one shape, no weights")
    return g.huber_loss(x, y, delta, reduction)


@says(_NN + "binary_cross_entropy_with_logits")
def _bce_logits(
    g: Any, x: Any, y: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None, **_: Any
) -> Any:
    needs(pos_weight is None, "no weight of positives")
    if weight is None:
        return g.binary_cross_entropy_with_logits(x, y, reduction)
    return reduced(g, g.binary_cross_entropy_with_logits(x, y, "none") * weight, reduction)


@says(_NN + "cross_entropy", finite=True)
def _cross_entropy(
    g: Any,
    x: Any,
    y: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **_: Any,
) -> Any:
    needs(not y.dtype.is_float and label_smoothing == 0 and weight is None, "labels, no weights")
    rows = x if x.rank == 1 else g.transpose(x, (0, *range(2, x.rank), 1))
    y = g.where(y == ignore_index, -1, y)
    losses = g.softmax_cross_entropy_with_logits(rows, y)
    return _mean_of_kept(g, losses, g.cast(y != -1, losses.dtype), reduction)


@says(_NN + "nll_loss", differentiable=False)
def _nll(
    g: Any, x: Any, y: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", **_: Any
) -> Any:
    needs(not x.dtype.is_integer and 0 not in sizes(x), "some rows")
    rows = x if x.rank == 1 else g.transpose(x, (0, *range(2, x.rank), 1))
    chosen = g.reshape(g.gather_batched(rows, g.reshape(y, (*sizes(y), 1)), axis=rows.rank - 1), sizes(y))
    kept = g.cast(y != ignore_index, x.dtype)
    kept = kept if weight is None else g.where(y == ignore_index, 0, g.gather(weight, y))
    return _mean_of_kept(g, -chosen * kept, kept, reduction)


def _mean_of_kept(g: Any, losses: Any, kept: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    total = g.sum(losses)
    return total / g.sum(kept) if reduction == "mean" else total


@says("_softmax_backward_data")
def _softmax_backward(g: Any, dy: Any, y: Any, dim: int, dtype: Any) -> Any:
    needs(dy.rank and dy.dtype.name == str(y.dtype), "one dtype")
    product = dy * y
    return product - y * g.sum(product, [dim], keep_dims=True)
