"""`rlx-fuse-attention-block`: fusion of attention with its projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, is_vector, readers
from rlx.passes.fusion.fuse_matmul_residual import bias_of, factors, linear_layer
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer


@pattern
def attention_with_projections(op: views.Matmul | views.FusedMatmulBiasAct, rewriter: Rewriter) -> Any:
    """`attention(q, k, v)·out_w`, where q, k and v are the thirds of one product, and q and k may be rotated."""
    out = linear_layer(op.result)
    attention = None if out is None else producer(factors(out)[0], views.Attention)
    if out is None or attention is None or shape_of(attention.q).rank != 3 or not _has_row_bias(out):
        return None
    if attention.window is not None or attention.softcap is not None or attention.score_scale is not None:
        return rewriter.miss("the attention has a window, a softcap or a scale of its own", "leave it as it is")
    sources = _sources(attention)
    if sources is None:
        return rewriter.miss("only one of q and k is rotated, or they differently", "rotate all lanes of both, as neox")
    tables, thirds = sources
    whole = _whole(thirds, attention.num_heads * attention.head_dim)
    if whole is None:
        return rewriter.miss(
            "q, k and v are not the thirds of one product, in this order",
            "make them in this order, with weights that are parameters, of equal widths: then the products are joined",
        )
    qkv = linear_layer(whole)
    if qkv is None or not _has_row_bias(qkv) or shape_of(factors(qkv)[0]).rank != 3:
        return None
    inner = {value.owner.operation for value in thirds}
    block = op.operation.block
    alone = set(readers(whole)) == inner and all(
        has_one_use(v) for v in (*thirds, attention.result, *_rotated(attention))
    )
    if not alone or attention.operation.block != block or qkv.operation.block != block:
        return rewriter.miss(ELSEWHERE, USE_RESULT)
    hidden, qkv_w = factors(qkv)
    operands = [hidden, qkv_w, factors(out)[1], attention.mask, bias_of(qkv), bias_of(out), *tables]
    sizes = {"num_heads": attention.num_heads, "head_dim": attention.head_dim}
    return rewriter.emit("fused_attention_block", operands, **sizes, mask_kind=attention.mask_kind)


def _has_row_bias(linear: views.Matmul | views.FusedMatmulBiasAct) -> bool:
    bias = bias_of(linear)
    return bias is None or is_vector(bias, shape_of(factors(linear)[1]).dims[1])


def _rotated(attention: views.Attention) -> list[mlir.Value]:
    """Return the operands of an attention that are rotated."""
    return [v for v in (attention.q, attention.k) if producer(v, views.Rope) is not None]


def _sources(attention: views.Attention) -> tuple[list[mlir.Value | None], list[mlir.Value]] | None:
    """Return the rotation tables, and q, k and v before rotation; None if the fused op does not support the rotation."""
    rotated = [producer(v, views.Rope) for v in (attention.q, attention.k)]
    q, k = rotated
    if q is None or k is None:
        return ([None, None], [attention.q, attention.k, attention.v]) if q is k is None else None
    full = all(r.n_rot == r.head_dim == attention.head_dim and r.style == "neox" for r in (q, k))
    if not full or q.cos != k.cos or q.sin != k.sin or shape_of(q.cos).rank != 2:
        return None
    return [q.cos, q.sin], [q.x, k.x, attention.v]


def _whole(thirds: list[mlir.Value], width: int) -> mlir.Value | None:
    """Return the tensor whose last axis consists of three values, in order."""
    parts = [producer(value, views.Narrow) for value in thirds]
    first = parts[0]
    if first is None or shape_of(first.x).dims[-1] != 3 * width:
        return None
    axis = shape_of(first.x).rank - 1
    for i, part in enumerate(parts):
        if part is None or part.x != first.x or (part.axis, part.start, part.length) != (axis, (i * width,), (width,)):
            return None
    return first.x


@dataclass(frozen=True)
class FuseAttentionBlock(Fusion, name="rlx-fuse-attention-block"):
    """Create `fused_attention_block` from attention, the product that computes q, k and v, and the output product.

    Run rlx-fuse-matmul-bias-act and rlx-fuse-shared-input-matmul first.
    """

    makes = "fused_attention_block"
    patterns = (attention_with_projections,)
