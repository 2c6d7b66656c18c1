"""Transformer layers."""

from __future__ import annotations

from typing import Any

from rlx.blocks.linear import linear_shape
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.attention.attention import Attention
from rlx.ops.attention.rope import Rope
from rlx.ops.lift import same_dtype
from rlx.ops.norm import check_weights
from rlx.support.errors import ShapeError


def _residual(x: Shape, result: Shape) -> Shape:
    if result.dims != x.dims:
        raise ShapeError(f"the layer gives {result}, which cannot be added to its input {x}")
    return x


class LlamaDecoderBlock(Card, op="llama_decoder_block"):
    def infer(
        self,
        x: Shape,
        ln1_scale: Shape,
        ln1_bias: Shape,
        wq: Shape,
        wk: Shape,
        wv: Shape,
        wo: Shape,
        ln2_scale: Shape,
        ln2_bias: Shape,
        gate: Shape,
        up: Shape,
        down: Shape,
        cos: Shape,
        sin: Shape,
        mask: Shape | None,
        *,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int,
        eps: float,
        mask_kind: str,
        window: int | None,
    ) -> Shape:
        if x.rank != 3:
            raise ShapeError(f"x must be [B, S, E], got {x}")
        check_weights(x, x.dims[2], ln1_scale=ln1_scale, ln1_bias=ln1_bias, ln2_scale=ln2_scale, ln2_bias=ln2_bias)
        for name, weight, heads in (("wq", wq, num_heads), ("wk", wk, num_kv_heads), ("wv", wv, num_kv_heads)):
            if weight.dims != (x.dims[2], heads * head_dim):
                raise ShapeError(f"{name} must be [{x.dims[2]}, {heads * head_dim}], got {weight}")
        q, k, v = (linear_shape(x, w) for w in (wq, wk, wv))
        for part in (q, k):
            Rope().infer(part, cos, sin, head_dim=head_dim, n_rot=head_dim, style="neox")
        if mask_kind in ("custom", "bias") and mask is None:
            raise ShapeError(f"mask_kind '{mask_kind}' needs 15 operands, got 14: the mask is missing")
        if mask_kind not in ("custom", "bias") and mask is not None:
            raise ShapeError(f"mask_kind '{mask_kind}' needs 14 operands, got 15: it takes no mask")
        kind = {"num_heads": num_heads, "head_dim": head_dim, "mask_kind": mask_kind, "window": window}
        attended = Attention().infer(q, k, v, mask, **kind)
        _residual(x, linear_shape(attended, wo))
        if up.dims != gate.dims:
            raise ShapeError(f"up {up} and gate {gate} must have one shape")
        same_dtype(x, gate, up, down)
        return _residual(x, linear_shape(linear_shape(x, up), down))

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        ln1_scale: Tensor,
        ln1_bias: Tensor,
        wq: Tensor,
        wk: Tensor,
        wv: Tensor,
        wo: Tensor,
        ln2_scale: Tensor,
        ln2_bias: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        *,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int,
        eps: float,
        mask_kind: str,
        window: int | None,
    ) -> Tensor:
        normal = b.rms_norm(x, ln1_scale, ln1_bias, eps=eps)
        q = b.rope(b.matmul(normal, wq), cos, sin, head_dim)
        k = b.rope(b.matmul(normal, wk), cos, sin, head_dim)
        v = b.matmul(normal, wv)
        kind = {"num_heads": num_heads, "head_dim": head_dim, "mask_kind": mask_kind, "window": window}
        h = x + b.matmul(b.attention(q, k, v, mask, **kind), wo)
        normal = b.rms_norm(h, ln2_scale, ln2_bias, eps=eps)
        return h + b.swiglu_ffn(normal, up, gate, down)

    def samples(self) -> Any:
        def case(x: Any, table: Any, mask: Any = None, **attributes: Any) -> Any:
            e, f, q, kv = 8, 12, 8, 4
            weights = [(e,), (e,), (e, q), (e, kv), (e, kv), (q, e), (e,), (e,), (e, f), (e, f), (f, e)]
            sizes = {"num_heads": 4, "head_dim": 2, "num_kv_heads": 2}
            operands = [SampleOperand(w, low=-0.7, high=0.7) for w in weights]
            return sample(x, *operands, table, table, mask, **sizes, **attributes)

        yield case((2, 5, 8), (5, 1), dtypes=("f32", "f16", "bf16", "f64"), tolerance=8)
        yield case((2, 5, 8), (5, 1), SampleOperand((2, 5), low=0, high=1), mask_kind="custom", dtypes=("f32",))
        yield case((2, 5, 8), (5, 1), SampleOperand((2, 4, 5, 5)), mask_kind="bias", dtypes=("f32",))
        yield case((2, 5, 8), (5, 1), mask_kind="sliding_window", window=2, dtypes=("f32",))
        yield case((2, 5, 8), (5, 1), mask_kind="none", eps=0.1, dtypes=("f32",))
        yield case(("batch", "seq", 8), ("seq", 1), dtypes=("f32",))


class TransformerEncoderBlock(Card, op="transformer_encoder_block"):
    def infer(
        self,
        x: Shape,
        wq: Shape,
        bq: Shape,
        wk: Shape,
        bk: Shape,
        wv: Shape,
        bv: Shape,
        wo: Shape,
        bo: Shape,
        ln1_scale: Shape,
        ln1_bias: Shape,
        w_up: Shape,
        b_up: Shape,
        w_down: Shape,
        b_down: Shape,
        ln2_scale: Shape,
        ln2_bias: Shape,
        mask: Shape | None,
        *,
        num_heads: int,
        activation: str,
        eps: float,
        mask_kind: str,
    ) -> Shape:
        if x.rank != 3:
            raise ShapeError(f"x must be [B, S, E], got {x}")
        check_weights(x, x.dims[2], ln1_scale=ln1_scale, ln1_bias=ln1_bias, ln2_scale=ln2_scale, ln2_bias=ln2_bias)
        q, k, v = (linear_shape(x, w, bias) for w, bias in ((wq, bq), (wk, bk), (wv, bv)))
        attended = Attention().infer(q, k, v, mask, **_attention(q, num_heads, mask_kind), window=None)
        _residual(x, linear_shape(attended, wo, bo))
        return _residual(x, linear_shape(linear_shape(x, w_up, b_up), w_down, b_down))

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        wq: Tensor,
        bq: Tensor,
        wk: Tensor,
        bk: Tensor,
        wv: Tensor,
        bv: Tensor,
        wo: Tensor,
        bo: Tensor,
        ln1_scale: Tensor,
        ln1_bias: Tensor,
        w_up: Tensor,
        b_up: Tensor,
        w_down: Tensor,
        b_down: Tensor,
        ln2_scale: Tensor,
        ln2_bias: Tensor,
        mask: Tensor | None,
        *,
        num_heads: int,
        activation: str,
        eps: float,
        mask_kind: str,
    ) -> Tensor:
        q, k, v = (b.linear(x, w, bias) for w, bias in ((wq, bq), (wk, bk), (wv, bv)))
        attended = b.attention(q, k, v, mask, **_attention(q.shape, num_heads, mask_kind))
        h = b.layer_norm(b.linear(attended, wo, bo) + x, ln1_scale, ln1_bias, eps=eps)
        wide = b.linear(h, w_up, b_up, activation=activation)
        return b.layer_norm(b.linear(wide, w_down, b_down) + h, ln2_scale, ln2_bias, eps=eps)

    def samples(self) -> Any:
        def case(x: Any, mask: Any = None, **attributes: Any) -> Any:
            e, f = 8, 12
            weights = [(e, e), (e,), (e, e), (e,), (e, e), (e,), (e, e), (e,), (e,), (e,)]
            weights += [(e, f), (f,), (f, e), (e,), (e,), (e,)]
            return sample(x, *[SampleOperand(w, low=-0.7, high=0.7) for w in weights], mask, num_heads=2, **attributes)

        yield case((2, 5, 8), dtypes=("f32", "f16", "bf16", "f64"), tolerance=8)
        yield case((2, 5, 8), SampleOperand((2, 5), "i32", low=0, high=2), mask_kind="custom", dtypes=("f32",))
        yield case((2, 5, 8), mask_kind="causal", activation="relu", eps=1e-5, dtypes=("f32",))
        yield case((2, 5, 8), SampleOperand((2, 2, 5, 5)), mask_kind="bias", dtypes=("f32",))
        yield case(
            ("batch", "seq", 8),
            SampleOperand(("batch", "seq"), "f32", low=0, high=1),
            mask_kind="custom",
            dtypes=("f32",),
        )


def _attention(q: Shape, num_heads: int, mask_kind: str) -> dict[str, Any]:
    width = q.dims[2]
    if type(width) is not int or num_heads < 1 or width % num_heads:
        raise ShapeError(f"{q} does not divide into {num_heads} heads")
    return {
        "num_heads": num_heads,
        "head_dim": width // num_heads,
        "mask_kind": mask_kind,
    }
