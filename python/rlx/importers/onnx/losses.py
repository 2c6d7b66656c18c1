"""Losses of class indices, quantisation, and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.rules import imports
from rlx.ir.builder import Tensor
from rlx.ir.errors import UnsupportedError


def _reduced(
    g: Any, log_probs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: Any, reduction: str
) -> Tensor:
    """Minus the logarithm of each target's probability; classes are axis 1."""
    used = None if ignore_index is None else g.ne(target, ignore_index)
    classes = log_probs.shape.static[1]
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
    g: Any,
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    return _reduced(g, log_probs, target, weight, ignore_index, reduction)


@imports("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    g: Any,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    outputs: int,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> list[Tensor]:
    log_probs = g.log_softmax(scores, 1)
    return [_reduced(g, log_probs, target, weight, ignore_index, reduction), log_probs][:outputs]


def _for_axis(g: Any, x: Tensor, values: Tensor, axis: int, block_size: int) -> Tensor:
    """Scales or zero points, so that they broadcast with the tensor: one, one for each place of an axis, or of its blocks."""
    if values.shape.rank == 0 or (values.shape.rank == 1 and values.shape.static[0] == 1):
        return g.reshape(values, ())
    axis = axis % x.shape.rank
    if block_size:
        repeated = g.repeat(values, block_size, axis)
        return g.narrow(repeated, axis, 0, x.shape.static[axis])
    if values.shape.rank != 1:
        raise UnsupportedError("with scales for blocks, and no size of these, cannot be imported")
    return g.reshape(values, tuple(-1 if a == axis else 1 for a in range(x.shape.rank)))


@imports("DequantizeLinear")
def dequantize_linear(
    g: Any,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
) -> Tensor:
    value = g.cast(x, "f32")
    if zero_point is not None:
        value = g.sub(value, g.cast(_for_axis(g, x, zero_point, axis, block_size), "f32"))
    result = g.mul(value, g.cast(_for_axis(g, x, scale, axis, block_size), "f32"))
    return g.cast(result, scale.dtype)


@imports("QuantizeLinear")
def quantize_linear(
    g: Any,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
    precision: Any = None,
    saturate: int = 1,
) -> Tensor:
    dtype = zero_point.dtype.numpy if zero_point is not None else np.dtype(output_dtype or np.uint8)
    if dtype.kind not in "iu":
        raise UnsupportedError(f"to {dtype} cannot be imported")
    value = g.round(g.div(g.cast(x, "f32"), g.cast(_for_axis(g, x, scale, axis, block_size), "f32")))
    if zero_point is not None:
        value = g.add(value, g.cast(_for_axis(g, x, zero_point, axis, block_size), "f32"))
    limits = np.iinfo(dtype)
    return g.cast(g.clamp(value, float(limits.min), float(limits.max)), dtype)


@imports("LpNormalization")
def lp_normalization(g: Any, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = g.sqrt(g.sum(g.mul(x, x), axis, True)) if p == 2 else g.sum(g.abs(x), axis, True)
    return g.where(g.eq(size, 0), 0.0, g.div(x, g.where(g.eq(size, 0), 1.0, size)))
