"""`rlx-fuse-residual-layer-norm`: fusion of the addition of a residual, an optional bias, and a layer norm of the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion, is_vector, operand_pairs, readers
from rlx.passes.pattern import Rewriter, feeder, has_one_use, pattern, producer

_NORMS = ("rlx.fused_residual_layer_norm", "rlx.fused_residual_rms_norm")


def residual_sum(op: views.LayerNorm | views.RmsNorm, rewriter: Rewriter) -> list[mlir.Value | None] | None:
    """Match a sum of equal shapes that only a norm along the last axis reads. Returns `x`, `residual`, and `bias` or None."""
    x = shape_of(op.x)
    total = producer(op.x, views.Binary)
    if total is None or total.kind != "add":
        return None
    terms = _terms(total)
    if terms is None:
        return None
    if op.axis != x.rank - 1:
        return rewriter.miss(
            f"the norm is along axis {op.axis}, not the last", "transpose before the sum, not after it"
        )
    if not has_one_use(op.x) or total.operation.block != op.operation.block:
        if _goes_on(op):
            return None
        return rewriter.miss("the sum is read elsewhere too", "use the norm instead, or add once more")
    return terms


def _goes_on(op: views.LayerNorm | views.RmsNorm) -> bool:
    """Whether the other readers of a sum are the next residuals, as in a pre-norm layer, so that there is nothing to fuse."""
    others = [reader for reader in readers(op.x) if reader != op.operation]
    names = {"rlx.binary", "rlx.fused_matmul_residual", "rlx.fused_gated_residual", *_NORMS}
    return bool(others) and all(other.name in names for other in others)


def _terms(total: views.Binary) -> list[mlir.Value | None] | None:
    """Return the terms of an addition, `x`, `residual` and `bias`. The bias may be added first or last."""
    dims = shape_of(total.result).dims
    for value, other in operand_pairs(total):
        inner = feeder(total, value, views.Binary)
        if inner is None or inner.kind != "add" or shape_of(value).dims != dims or len(dims) < 2:
            continue
        for term, bias in operand_pairs(inner):
            if shape_of(term).dims == shape_of(other).dims == dims and is_vector(bias, dims[-1]):
                return [term, other, bias]
        if is_vector(other, dims[-1]) and all(shape_of(v).dims == dims for v in inner.operands):
            return [inner.lhs, inner.rhs, other]
    return [total.lhs, total.rhs, None] if all(shape_of(v).dims == dims for v in total.operands) else None


@pattern
def residual_layer_norm(op: views.LayerNorm, rewriter: Rewriter) -> Any:
    """`layer_norm(x + residual (+ bias))`."""
    terms = residual_sum(op, rewriter)
    if terms is None:
        return None
    return rewriter.emit("fused_residual_layer_norm", [*terms, op.scale, op.bias], eps=op.eps)


@dataclass(frozen=True)
class FuseResidualLayerNorm(Fusion, name="rlx-fuse-residual-layer-norm"):
    """Create `fused_residual_layer_norm` from a sum whose only use is a layer norm."""

    makes = "fused_residual_layer_norm"
    patterns = (residual_layer_norm,)
