"""`rlx-fuse-swiglu-dual-matmul`: joins the two products of a SwiGLU into one."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion import Fusion, is_parameter
from rlx.passes.pattern import Rewriter, feeder, pattern


@pattern
def swiglu_of_two_products(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`(x·up) · silu(x·gate)`, with weights `[K, N]` that are parameters: one product with the joined weights."""
    if op.kind != "mul":
        return None
    for linear, gated in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        up, silu = feeder(op, linear, views.Matmul), feeder(op, gated, views.Activation)
        if up is None or silu is None or silu.kind != "silu":
            continue
        gate = feeder(silu, silu.x, views.Matmul)
        if gate is None or gate.lhs != up.lhs or not all(is_parameter(v) for v in (up.rhs, gate.rhs)):
            continue
        if shape_of(up.rhs).rank != 2 or shape_of(up.rhs) != shape_of(gate.rhs) or not _has_known_width(up.rhs):
            continue
        weights = rewriter.emit("concat", [up.rhs, gate.rhs], axis=1)
        return rewriter.emit("fused_swiglu", [rewriter.emit("matmul", [up.lhs, weights])])
    return None


def _has_known_width(weight: mlir.Value) -> bool:
    """Whether the width of a weight is an integer: else it is not known that the joined width can be divided by 2."""
    return type(shape_of(weight).dims[1]) is int


@dataclass(frozen=True)
class FuseSwigluDualMatmul(Fusion, name="rlx-fuse-swiglu-dual-matmul"):
    """Make one product and `fused_swiglu` of the two products of a SwiGLU whose weights are parameters."""

    makes = "fused_swiglu"
    patterns = (swiglu_of_two_products,)
