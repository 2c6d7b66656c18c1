"""`rlx-fuse-ada-layer-norm`: fusion of a layer norm without weights and its modulation by a scale and a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.ops.lift import broadcasts_to
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, feeder, has_one_use, pattern, producer
from rlx.passes.simplification.values import splat


@pattern
def modulated_layer_norm(op: views.Binary, rewriter: Rewriter) -> Any:
    """`layer_norm(x)·(1 + scale) + shift`, where the norm scales by ones and adds zeros."""
    if op.kind != "add":
        return None
    x = shape_of(op.result)
    for value, shift in operand_pairs(op):
        product = feeder(op, value, views.Binary)
        if product is None or product.kind != "mul" or not broadcasts_to(shape_of(shift).dims, x.dims):
            continue
        for normal, factor in operand_pairs(product):
            norm, scale = producer(normal, views.LayerNorm), one_plus(factor)
            if norm is None or scale is None or shape_of(normal) != x or norm.axis != x.rank - 1:
                continue
            if splat(norm.scale) != 1 or splat(norm.bias) != 0:
                return rewriter.miss("the norm has weights of its own", "join them with the scale and the shift")
            if not has_one_use(normal) or norm.operation.block != op.operation.block:
                return rewriter.miss(f"the norm, or {ELSEWHERE}", USE_RESULT)
            return rewriter.emit("fused_ada_layer_norm", [norm.x, scale, shift], eps=norm.eps)
    return None


def one_plus(value: mlir.Value) -> mlir.Value | None:
    """Return `x` if a value is `1 + x`, else None."""
    total = producer(value, views.Binary)
    if total is None or total.kind != "add":
        return None
    return next((v for v, one in operand_pairs(total) if splat(one) == 1 and v.type == value.type), None)


@dataclass(frozen=True)
class FuseAdaLayerNorm(Fusion, name="rlx-fuse-ada-layer-norm"):
    """Create `fused_ada_layer_norm` from a layer norm without weights that a scale and a shift modulate, as in DiT."""

    makes = "fused_ada_layer_norm"
    patterns = (modulated_layer_norm,)
