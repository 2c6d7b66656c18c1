"""Losses of `torch.nn.functional`."""

from __future__ import annotations

from typing import Any

from tests.peers.vocabulary import needs, says, sizes

_NN = "nn.functional."
WRAPPED = "PyTorch's differences of u8 wrap, RLX's are those of floats"


def _loss(*names: str, **properties: Any) -> Any:
    """Register a loss by its values before the reduction."""

    def entered(function: Any) -> Any:
        return says(*(_NN + name for name in names), **properties)(_reducing(function))

    return entered


def _reducing(function: Any) -> Any:
    def whole(g: Any, *args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
        return reduced(g, function(g, *args, **kwargs), reduction)

    return whole


def reduced(g: Any, values: Any, reduction: str) -> Any:
    """Return the values, their mean or their sum."""
    return values if reduction == "none" else g.mean(values) if reduction == "mean" else g.sum(values)


# Losses of PyTorch that RLX has with the same arguments, with properties of `Entry`.
_SAME: dict[str, dict[str, Any]] = {
    "smooth_l1_loss": {},
    "soft_margin_loss": {},
    "hinge_embedding_loss": {"differentiable": False},
    "margin_ranking_loss": {},
    "kl_div": {"finite": True},
    "binary_cross_entropy": {"finite": True},
    "poisson_nll_loss": {"finite": True},
    "gaussian_nll_loss": {"finite": True, "differentiable": False},
    "cosine_embedding_loss": {"differentiable": False},
    "triplet_margin_loss": {"finite": True},
}
for _name, _properties in _SAME.items():
    says(_NN + _name, **_properties)(lambda g, *args, name=_name, **kwargs: _same(g, name, *args, **kwargs))


def _same(g: Any, name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    needs(x.dtype.name != "u8", WRAPPED)
    return getattr(g, name)(x, *args, **kwargs)


@_loss("l1_loss")
def _l1(g: Any, x: Any, y: Any, weight: Any = None) -> Any:
    needs(weight is None, "weights are left out")
    return g.l1_loss(x, y, reduction="none")


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


@_reducing
def _cancelling_bce(g: Any, x: Any, y: Any, weight: Any = None, pos_weight: Any = 1.0) -> Any:
    """Return PyTorch's formula, whose two terms have the size of x even where the loss is near 0."""
    log_sigmoid = g.minimum(x, 0.0) - g.log(1.0 + g.exp(-g.abs(x)))
    losses = (1.0 - y) * x - (y * (pos_weight - 1.0) + 1.0) * log_sigmoid
    return losses if weight is None else losses * weight


@says(_NN + "binary_cross_entropy_with_logits", formula=_cancelling_bce)
def _bce_logits(g: Any, x: Any, y: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> Any:
    return g.binary_cross_entropy_with_logits(x, y, reduction, weight, pos_weight)


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
