"""`rlx-fuse-residual-rms-norm`: fusion of the addition of a residual, an optional bias, and an RMS norm of the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.op import views
from rlx.passes.fusion.base import Fusion
from rlx.passes.fusion.fuse_residual_layer_norm import residual_sum
from rlx.passes.pattern import Rewriter, pattern


@pattern
def residual_rms_norm(op: views.RmsNorm, rewriter: Rewriter) -> Any:
    """`rms_norm(x + residual (+ bias))`, where the norm may have a bias as well."""
    terms = residual_sum(op, rewriter)
    if terms is None:
        return None
    return rewriter.emit("fused_residual_rms_norm", [*terms, op.scale, op.bias], eps=op.eps)


@dataclass(frozen=True)
class FuseResidualRmsNorm(Fusion, name="rlx-fuse-residual-rms-norm"):
    """Create `fused_residual_rms_norm` from a sum whose only use is an RMS norm."""

    makes = "fused_residual_rms_norm"
    patterns = (residual_rms_norm,)
