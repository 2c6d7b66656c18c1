"""`rlx-fuse-matmul-residual`: fusion of a product, an optional bias, and the addition of a residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer


@pattern
def matmul_residual(op: views.Binary, rewriter: Rewriter) -> Any:
    """`x·w (+ bias) + residual`, with `w [K, N]` and a residual of the product's shape."""
    if op.kind != "add" or not shape_of(op.result).dtype.is_float:
        return None
    for value, residual in operand_pairs(op):
        linear = linear_layer(value)
        if linear is None or residual.type != value.type or linear.operation.block != op.operation.block:
            continue
        if not has_one_use(value):
            rewriter.miss(f"the product, or {ELSEWHERE}", USE_RESULT)
            continue
        rewriter.locate(linear)
        return rewriter.emit("fused_matmul_residual", [*factors(linear), residual, bias_of(linear)])
    return None


def linear_layer(value: mlir.Value) -> views.Matmul | views.FusedMatmulBiasAct | None:
    """Return the linear layer that computes a value: a product with a matrix and an optional bias, without an activation."""
    product = producer(value, views.Matmul)
    if product is not None:
        return product if shape_of(product.rhs).rank == 2 else None
    fused = producer(value, views.FusedMatmulBiasAct)
    return fused if fused is not None and fused.activation is None else None


def factors(linear: views.Matmul | views.FusedMatmulBiasAct) -> tuple[mlir.Value, mlir.Value]:
    """Return the input and the weight of a linear layer."""
    return (linear.lhs, linear.rhs) if isinstance(linear, views.Matmul) else (linear.x, linear.w)


def bias_of(linear: views.Matmul | views.FusedMatmulBiasAct) -> mlir.Value | None:
    """Return the bias of a linear layer, or None."""
    return None if isinstance(linear, views.Matmul) else linear.bias


@dataclass(frozen=True)
class FuseMatmulResidual(Fusion, name="rlx-fuse-matmul-residual"):
    """Create `fused_matmul_residual` from a product whose only use is the addition of a residual.

    Run the fusions of residuals with norms first, if both are used: they match the same addition.
    """

    makes = "fused_matmul_residual"
    patterns = (matmul_residual,)
