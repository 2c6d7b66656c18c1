"""`rlx-fuse-residual-rms-norm`: the addition of a residual, and an RMS norm of the sum."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import views
from rlx.passes.fuse_residual_ln import residual_sum
from rlx.passes.fusion import Fusion
from rlx.passes.pattern import Rewriter, pattern


@pattern
def residual_rms_norm(op: views.RmsNorm, rewriter: Rewriter) -> mlir.Value | None:
    """`rms_norm(x + residual)`, with a bias."""
    total = residual_sum(op)
    if total is None:
        return None
    operands = [total.lhs, total.rhs, None, op.scale, op.bias]
    return rewriter.emit("fused_residual_rms_norm", operands, eps=op.eps)


@dataclass(frozen=True)
class FuseResidualRmsNorm(Fusion, name="rlx-fuse-residual-rms-norm"):
    """Make `fused_residual_rms_norm` of a sum that only an RMS norm with a bias uses."""

    makes = "fused_residual_rms_norm"
    patterns = (residual_rms_norm,)
