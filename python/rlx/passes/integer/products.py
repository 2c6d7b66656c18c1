"""Patterns of `rlx-quantize-integer` for products with weights and of activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import i32
from rlx.ir.location import within
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.ops.convolution.convolution_gradient import with_row, without_row
from rlx.passes.integer.fold_affine import is_per_channel
from rlx.passes.integer.operands import Goal, Integers, constant, finite_constant, in_range, spread
from rlx.passes.pattern import Rewriter, feeder, pattern, producer

_Product = views.Conv | views.Matmul | views.DotGeneral
# The name of the pass that these patterns belong to, in locations.
_NOTE = "rlx-quantize-integer"


def _product(value: mlir.Value) -> _Product | None:
    return producer(value, views.Conv) or producer(value, views.Matmul) or producer(value, views.DotGeneral)


@pattern
def product_with_weights(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A product with weights, and a bias: `requantize(Σ (x - zero)·w + bias)`."""
    goal = Goal.of(op)
    if goal is None:
        return None
    product, offset = _product(goal.core), None
    if product is None:
        total = producer(goal.core, views.Binary)
        if total is None or total.kind != "add":
            return None
        for value, other in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
            known = finite_constant(other)
            feeding = _product(value) if feeder(total, value, views.View) is not None else None
            if known is not None and feeding is not None and is_per_channel(feeding, other):
                product, offset = feeding, known
        if product is None:
            return None
    x, w = (Integers.of(v, scales=True) for v in product.operation.operands)
    if x is None or w is None or x.axis is not None or w.zero or constant(w.value) is None:
        return None
    # The result may be an activation after the layer. The line and the scope of the product are those of the layer.
    with rewriter.builder.located(within(product.operation.location, _NOTE)):
        return _sums(rewriter, goal, product, x, w, offset)


def _sums(
    rewriter: Rewriter, goal: Goal, product: _Product, x: Integers, w: Integers, offset: np.ndarray | None
) -> Any:
    b, result, known = rewriter.builder, shape_of(product.result), constant(w.value)
    channel = 1 if isinstance(product, views.Conv) else result.rank - 1
    count = result.dims[channel]
    if known is None or type(count) is not int or w.axis not in (None, _channel_of(product, known.ndim)):
        return None
    real = x.scale * w.scale
    bias, weights = None, b.tensor(w.value)
    if offset is not None:
        offsets = np.broadcast_to(offset.astype(np.float64).reshape(-1), (count,))
        steps = _steps_for(offsets, real, known.size // max(count, 1))
        if steps is not real:
            known = _in_steps(known, real / steps, _channel_of(product, known.ndim))
            weights, real = b.constant(known), steps
        bias = b.constant(in_range(offsets / real))
    values = b.tensor(x.value)
    points: dict[str, Any] = {"x_zero_point": x.zero, "w_zero_point": 0, "out_zero_point": 0, "dtype": i32}
    if isinstance(product, views.Conv):
        if result.rank == 3:
            images = (with_row(b, values), with_row(b, weights), bias, None)
            total = without_row(b, b.emit("q_conv2d", images, **_of_rows(product.attributes), **points))
        elif result.rank == 4:
            total = b.emit("q_conv2d", (values, weights, bias, None), **product.attributes, **points)
        else:
            return None
    else:
        form = _as_matrix(product, known)
        if form is None:
            return None
        total = b.emit("q_matmul", (values, b.constant(form), bias, None), **points)
        if total.shape.dims != result.dims:
            return None
    return goal.reached(rewriter, total, spread(real, channel if np.ndim(real) else None, result.rank))


def _steps_for(offsets: np.ndarray, real: Any, terms: int) -> Any:
    """Return the step of the sums of each channel, such that products and offset fit into 32 bits.

    If weights are tiny compared to the offset (such as those of a dead channel after folding a batch norm), the step of
    the products is so small that the offset overflows. Larger steps lose digits of weights, but the offset dominates
    these weights anyway.

    Args:
        offsets: One for each channel.
        real: The steps of the products: one, or one for each channel.
        terms: The number of products in a sum.
    """
    largest = max(2**31 - 1 - terms * 127 * 255, 2**24)
    least = np.abs(offsets) / largest
    return np.maximum(real, least) if (least > real).any() else real


def _in_steps(weights: np.ndarray, ratio: np.ndarray, channel: int) -> np.ndarray:
    """Scale integers by a ratio of at most 1 for each position of an axis, and round."""
    shape = [-1 if axis == channel else 1 for axis in range(weights.ndim)]
    return np.rint(weights * ratio.reshape(shape)).astype(weights.dtype)


def _channel_of(product: _Product, rank: int) -> int:
    """Return the axis of the weights that becomes the channels of the result."""
    if isinstance(product, views.DotGeneral):
        return 1 - product.rhs_contracting[0] if rank == 2 and len(product.rhs_contracting) == 1 else -1
    return 0 if isinstance(product, views.Conv) else 1


def _as_matrix(product: views.Matmul | views.DotGeneral, w: np.ndarray) -> np.ndarray | None:
    """Return weights as `[K, N]`, if the product has this form."""
    if w.ndim != 2:
        return None
    if isinstance(product, views.Matmul):
        return w
    last = shape_of(product.lhs).rank - 1
    if product.lhs_batch or tuple(product.lhs_contracting) != (last,):
        return None
    return w if product.rhs_contracting[0] == 0 else np.ascontiguousarray(w.T)


def _of_rows(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the geometry of a one-dimensional convolution as that of images with one row."""
    around = {"stride": 1, "dilation": 1}
    of_rows = {name: (one, *attributes[name]) for name, one in around.items()}
    return attributes | of_rows | {"padding": (0, 0, *attributes["padding"])}


@pattern
def product_of_activations(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A product of two activation tensors: `requantize(Σ (x - zero)·(y - zero))`."""
    goal = Goal.of(op)
    product = None if goal is None else producer(goal.core, views.Matmul) or producer(goal.core, views.DotGeneral)
    if goal is None or product is None:
        return None
    lhs, rhs = (Integers.of(v) for v in product.operation.operands)
    if lhs is None or rhs is None:
        return None
    b = rewriter.builder
    with b.located(within(product.operation.location, _NOTE)):
        total = b.emit(product.spec.name, (lhs.centred(b), rhs.centred(b)), **product.attributes)
        return goal.reached(rewriter, total, lhs.scale * rhs.scale)
