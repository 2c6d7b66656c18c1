"""`rlx-unfuse`: decomposition of fused ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import registry, views
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.fusion.base import operand_pairs
from rlx.passes.pattern import Rewriter, pattern, producer, rewrite
from rlx.passes.rewrite import decompose_all
from rlx.passes.simplification.simplify_shape_rules import narrow_of_concat, whole

# Ops that `rlx-recognize` creates and that have a decomposition.
_RECOGNISED = frozenset({"layer_norm", "rms_norm", "group_norm", "softmax", "attention"})


@dataclass(frozen=True)
class Unfuse(Pass, name="rlx-unfuse", idempotent=True):
    """Decompose fused ops into their primitives, and joined products into one product for each weight."""

    recognised: bool = option(False, "whether norms, softmax and attention are decomposed as well")

    def run(self, module: mlir.Module) -> None:
        names = {name for name, spec in registry.SPECS.items() if spec.family in ("fused", "fused_layers")}
        decompose_all(module, names | {"elementwise_region"})
        rewrite(module, (range_of_product, range_of_result, narrow_of_concat, whole), self.name)
        if self.recognised:
            decompose_all(module, _RECOGNISED)


@pattern
def range_of_product(op: views.Narrow, rewriter: Rewriter) -> Any:
    """A range of the columns of a product with joined weights becomes the product with these columns."""
    product = producer(op.x, views.Matmul)
    if product is None or op.axis != shape_of(op.x).rank - 1 or not _is_joined(op.x):
        return None
    columns = rewriter.emit("narrow", [product.rhs], axis=1, start=op.start, length=op.length)
    return rewriter.emit("matmul", [product.lhs, columns])


@pattern
def range_of_result(op: views.Narrow, rewriter: Rewriter) -> Any:
    """A range of the columns after a bias or an activation."""
    rank = shape_of(op.x).rank
    if op.axis != rank - 1 or not _is_joined(op.x):
        return None
    activation, total = producer(op.x, views.Activation), producer(op.x, views.Binary)
    if activation is not None:
        part = rewriter.emit("narrow", [activation.x], axis=op.axis, start=op.start, length=op.length)
        return rewriter.emit("activation", [part], kind=activation.kind)
    if total is None:
        return None
    parts = [_range(rewriter, value, op) for value in (total.lhs, total.rhs)]
    return rewriter.emit("binary", parts, kind=total.kind)


def _range(rewriter: Rewriter, value: mlir.Value, op: views.Narrow) -> Any:
    """Return the range of an operand that a range of the sum needs."""
    dims = shape_of(value).dims
    if not dims or dims[-1] == 1:
        return value
    return rewriter.emit("narrow", [value], axis=len(dims) - 1, start=op.start, length=op.length)


def _is_joined(value: mlir.Value) -> bool:
    """Whether a value is a product with joined weights, with an optional bias and activation."""
    activation, total = producer(value, views.Activation), producer(value, views.Binary)
    if activation is not None:
        return _is_joined(activation.x)
    if total is not None and total.kind == "add":
        return any(_is_joined(product) for product, _ in operand_pairs(total) if product.type == value.type)
    product = producer(value, views.Matmul)
    weights = None if product is None else producer(product.rhs, views.Concat)
    return product is not None and weights is not None and shape_of(product.rhs).rank == 2 and weights.axis == 1
