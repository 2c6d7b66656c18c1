"""`rlx-fuse-residual-ln`: the addition of a residual, and a layer norm of the sum."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion import Fusion, is_vector
from rlx.passes.pattern import Rewriter, feeder, pattern


def residual_sum(op: views.LayerNorm | views.RmsNorm) -> views.Binary | None:
    """The addition of two equal shapes that only this norm uses, if it is along the last axis and its weights are vectors."""
    x = shape_of(op.x)
    if op.bias is None or op.axis != x.rank - 1 or not all(is_vector(v, x.dims[-1]) for v in (op.scale, op.bias)):
        return None
    total = feeder(op, op.x, views.Binary)
    if total is None or total.kind != "add" or any(shape_of(v).dims != x.dims for v in total.operands):
        return None
    return total


@pattern
def residual_layer_norm(op: views.LayerNorm, rewriter: Rewriter) -> mlir.Value | None:
    """`layer_norm(x + residual)`."""
    total = residual_sum(op)
    if total is None:
        return None
    operands = [total.lhs, total.rhs, None, op.scale, op.bias]
    return rewriter.emit("fused_residual_layer_norm", operands, eps=op.eps)


@dataclass(frozen=True)
class FuseResidualLn(Fusion, name="rlx-fuse-residual-ln"):
    """Make `fused_residual_layer_norm` of a sum that only a layer norm uses."""

    makes = "fused_residual_layer_norm"
    patterns = (residual_layer_norm,)
