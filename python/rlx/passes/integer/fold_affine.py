"""`rlx-fold-affine`: folding of channel factors and offsets, such as batch norms, into weights and biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.location import within
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass
from rlx.passes.pattern import Rewriter, feeder, pattern, producer, rewrite
from rlx.passes.simplification.invariants import depends_on_weights

_Product = views.Conv | views.Matmul


def product_of(value: mlir.Value) -> _Product | None:
    """Return the product of activations with weights that computes a value: a convolution, or a product with a matrix."""
    op = producer(value, views.Conv) or producer(value, views.Matmul)
    if op is None:
        return None
    weights = op.w if isinstance(op, views.Conv) else op.rhs
    if not depends_on_weights(weights) or depends_on_weights(op.operation.operands[0]):
        return None
    return op if isinstance(op, views.Conv) or shape_of(weights).rank == 2 else None


def is_per_channel(op: _Product | views.DotGeneral, value: mlir.Value) -> bool:
    """Whether a value depends only on weights and has one number, or one for each channel of the result of a product."""
    result, dims = shape_of(op.result), shape_of(value).dims
    if not depends_on_weights(value) or len(dims) > result.rank:
        return False
    channel = 1 if isinstance(op, views.Conv) else result.rank - 1
    padded = (1,) * (result.rank - len(dims)) + dims
    return all(d == 1 or (i == channel and d == result.dims[i]) for i, d in enumerate(padded))


def _operands(op: views.Binary) -> list[tuple[mlir.Value, mlir.Value]]:
    """Return the operands in both orders, if the op commutes."""
    pairs = [(op.lhs, op.rhs)]
    return [*pairs, (op.rhs, op.lhs)] if op.kind in ("add", "mul") else pairs


def _with_bias(op: views.Binary, value: mlir.Value) -> tuple[mlir.Value, mlir.Value] | None:
    """Return the result of a product and the offset that is added to it, in a sum whose only use is `op`."""
    total = feeder(op, value, views.Binary)
    if total is None or total.kind != "add":
        return None
    for result, offset in _operands(total):
        product = product_of(result)
        if product is not None and is_per_channel(product, offset):
            return result, offset
    return None


@pattern
def subtracted_offset(op: views.Binary, rewriter: Rewriter) -> Any:
    """`product - b` becomes the sum with `-b`."""
    product = product_of(op.lhs)
    if op.kind != "sub" or product is None or not is_per_channel(product, op.rhs):
        return None
    b = rewriter.builder
    return b.tensor(op.lhs) + b.neg(b.tensor(op.rhs))


@pattern
def joined_offsets(op: views.Binary, rewriter: Rewriter) -> Any:
    """`(product + a) + b` becomes the sum with `a + b`; likewise for a difference."""
    if op.kind not in ("add", "sub"):
        return None
    for value, other in _operands(op):
        found = _with_bias(op, value)
        if found is not None and (product := product_of(found[0])) is not None and is_per_channel(product, other):
            b = rewriter.builder
            result, first, second = (b.tensor(v) for v in (*found, other))
            return result + (first + second if op.kind == "add" else first - second)
    return None


@pattern
def factor_past_offset(op: views.Binary, rewriter: Rewriter) -> Any:
    """`(product + b)·c` becomes `product·c + b·c`; likewise for a quotient."""
    if op.kind not in ("mul", "div"):
        return None
    for value, factor in _operands(op):
        found = _with_bias(op, value)
        if found is not None and (product := product_of(found[0])) is not None and is_per_channel(product, factor):
            b = rewriter.builder
            result, offset, by = (b.tensor(v) for v in (*found, factor))
            return result * by + offset * by if op.kind == "mul" else result / by + offset / by
    return None


@pattern
def factor_into_weights(op: views.Binary, rewriter: Rewriter) -> Any:
    """`product·c` becomes the product with the weights multiplied by `c`; likewise for a quotient."""
    if op.kind not in ("mul", "div"):
        return None
    for value, factor in _operands(op):
        product = feeder(op, value, views.Conv) or feeder(op, value, views.Matmul)
        if product is None or product_of(value) is None or not is_per_channel(product, factor):
            continue
        b = rewriter.builder
        x, w = (b.tensor(v) for v in product.operation.operands)
        by = _along_weights(rewriter, product, factor)
        scaled = w * by if op.kind == "mul" else w / by
        # The line and the scope of the product are those of the layer.
        with b.located(within(product.operation.location, FoldAffine.name)):
            return b.emit(product.spec.name, (x, scaled), **product.attributes)
    return None


def _along_weights(rewriter: Rewriter, product: _Product, factor: mlir.Value) -> Tensor:
    """Return channel factors with a shape that broadcasts against the weights of a product."""
    b, count = rewriter.builder, shape_of(factor).num_elements
    weights = shape_of(product.operation.operands[1])
    dims = (count, *(1,) * (weights.rank - 1)) if isinstance(product, views.Conv) else (1, count)
    return b.reshape(b.tensor(factor), dims)


@dataclass(frozen=True)
class FoldAffine(Pass, name="rlx-fold-affine", idempotent=True):
    """Fold channel factors and offsets after convolutions and matrix products into their weights and one bias.

    This removes batch norms of trained models that depend only on parameters. Sums of floats are rounded in another
    order.
    """

    def run(self, module: mlir.Module) -> None:
        rewrite(module, (subtracted_offset, joined_offsets, factor_past_offset, factor_into_weights), self.name)
