"""`rlx-fuse-matmul-bias-act`: a product, the addition of a bias, and an activation."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion import Fusion, is_vector
from rlx.passes.pattern import Rewriter, feeder, pattern


@pattern
def matmul_bias(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x·w + bias`, with `w [K, N]` and `bias [N]`."""
    if op.kind != "add" or not shape_of(op.result).dtype.is_float:
        return None
    for product, bias in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        matmul = feeder(op, product, views.Matmul)
        if matmul is None or product.type != op.result.type or shape_of(matmul.rhs).rank != 2:
            continue
        if is_vector(bias, shape_of(matmul.rhs).dims[1]):
            return rewriter.emit("fused_matmul_bias_act", [matmul.lhs, matmul.rhs, bias])
    return None


@pattern
def biased_activation(op: views.Activation, rewriter: Rewriter) -> mlir.Value | None:
    """An activation of such a product. An activation of a wide range is not fused, because `rlx-precision` keeps it in f32."""
    linear = feeder(op, op.x, views.FusedMatmulBiasAct)
    if linear is None or linear.activation is not None or op.has_trait("wide_range"):
        return None
    return rewriter.emit("fused_matmul_bias_act", linear.operands, activation=op.kind)


@dataclass(frozen=True)
class FuseMatmulBiasAct(Fusion, name="rlx-fuse-matmul-bias-act"):
    """Make `fused_matmul_bias_act` of a product that only the addition of a bias uses, and of an activation after it."""

    makes = "fused_matmul_bias_act"
    patterns = (matmul_bias, biased_activation)
