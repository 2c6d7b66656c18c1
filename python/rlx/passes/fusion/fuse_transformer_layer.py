"""`rlx-fuse-transformer-layer`: fusion of a post-norm encoder layer, as in BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import USE_RESULT, Fusion, is_vector, readers
from rlx.passes.fusion.fuse_matmul_residual import bias_of, factors, linear_layer
from rlx.passes.pattern import Rewriter, feeder, has_one_use, pattern, producer


@pattern
def encoder_layer(op: views.FusedResidualLayerNorm, rewriter: Rewriter) -> Any:
    """`ln2(h + act(h·up)·down)` with `h = ln1(hidden + attention_block(hidden))`."""
    ends = _feed_forward(op)
    if ends is None:
        return None
    up, down, norm = ends
    block = _attended(norm)
    if block is None:
        return None
    if block.mask_kind != "custom" or block.cos is not None:
        return rewriter.miss("the attention has positions, or no mask of kind custom", "leave it as it is")
    if not has_one_use(down.result) or not has_one_use(up.result) or len(readers(norm.result)) != 2:
        return rewriter.miss("a part of the layer is read elsewhere too", USE_RESULT)
    biases = [block.qkv_b, block.out_b, up.bias, bias_of(down)]
    if any(b is None for b in biases):
        return rewriter.miss(
            "some of the four products have a bias, and some have none", "add zeros where it is missing"
        )
    norms_and_weights = [norm.scale, norm.shift, up.w, factors(down)[1], op.scale, op.shift]
    sizes = {"num_heads": block.num_heads, "head_dim": block.head_dim, "eps1": norm.eps, "eps2": op.eps}
    operands = [block.hidden, block.qkv_w, block.out_w, *norms_and_weights, block.mask, *biases]
    return rewriter.emit("fused_transformer_layer", operands, **sizes, activation=up.activation)


def _feed_forward(
    op: views.FusedResidualLayerNorm,
) -> tuple[views.FusedMatmulBiasAct, views.FusedMatmulBiasAct, views.FusedResidualLayerNorm] | None:
    """Return the two products, and the norm that both they and the residual read."""
    for value, residual in ((op.x, op.residual), (op.residual, op.x)):
        down = linear_layer(value)
        norm = producer(residual, views.FusedResidualLayerNorm)
        if (
            not isinstance(down, views.FusedMatmulBiasAct)
            or norm is None
            or op.bias is not None
            or norm.bias is not None
        ):
            continue
        up = producer(down.x, views.FusedMatmulBiasAct)
        together = up is not None and up.x == residual and up.activation is not None
        if up is not None and together and all(_has_row_bias(v) for v in (up, down)):
            return (up, down, norm) if norm.operation.block == op.operation.block else None
    return None


def _has_row_bias(linear: views.FusedMatmulBiasAct) -> bool:
    return is_vector(linear.bias, shape_of(linear.w).dims[1])


def _attended(norm: views.FusedResidualLayerNorm) -> views.FusedAttentionBlock | None:
    """Return the attention block whose result a norm adds to the block's input."""
    for value, hidden in ((norm.x, norm.residual), (norm.residual, norm.x)):
        block = feeder(norm, value, views.FusedAttentionBlock)
        if block is not None and block.hidden == hidden:
            return block
    return None


@dataclass(frozen=True)
class FuseTransformerLayer(Fusion, name="rlx-fuse-transformer-layer"):
    """Create `fused_transformer_layer` from a post-norm encoder layer. Run the other fusions first."""

    makes = "fused_transformer_layer"
    patterns = (encoder_layer,)
