"""`rlx-fuse-gated-residual`: fusion of a branch, its gate and the addition of its residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import Shape, shape_of
from rlx.ops.lift import broadcasts_to
from rlx.passes.fusion.base import USE_RESULT, Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer
from rlx.passes.simplification.values import splat


@pattern
def gated_residual(op: views.Binary, rewriter: Rewriter) -> Any:
    """`residual + gate·x`, with a gate that is the same for all rows and not a constant number."""
    if op.kind != "add" or not shape_of(op.result).dtype.is_float:
        return None
    for value, residual in operand_pairs(op):
        product = producer(value, views.Binary)
        if product is None or product.kind != "mul" or residual.type != value.type:
            continue
        for x, gate in operand_pairs(product):
            if x.type != value.type or not _is_gate(gate, shape_of(x)):
                continue
            if not has_one_use(value) or product.operation.block != op.operation.block:
                return rewriter.miss("the gated branch is read elsewhere too", USE_RESULT)
            return rewriter.emit("fused_gated_residual", [x, gate, residual])
    return None


def _is_gate(value: mlir.Value, x: Shape) -> bool:
    shape = shape_of(value)
    if (
        x.rank < 2
        or x.dims[-2] == 1
        or shape.rank < 1
        or not broadcasts_to(shape.dims, x.dims)
        or splat(value) is not None
    ):
        return False
    return shape.dims[-1] != 1 and (shape.rank == 1 or shape.dims[-2] == 1)


@dataclass(frozen=True)
class FuseGatedResidual(Fusion, name="rlx-fuse-gated-residual"):
    """Create `fused_gated_residual` from a branch that is gated and added to its residual, as in DiT and with LayerScale."""

    makes = "fused_gated_residual"
    patterns = (gated_residual,)
