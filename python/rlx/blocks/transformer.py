"""Transformer layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.blocks.linear import linear_shape
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.attention.attention import Attention
from rlx.ops.attention.rope import Rope, RopeLayout
from rlx.ops.lift import same_dtype
from rlx.ops.norm import check_weights
from rlx.support.errors import ShapeError

V = TypeVar("V")


def _residual(x: Shape, result: Shape) -> Shape:
    if result.dims != x.dims:
        raise ShapeError(f"the layer gives {result}, which cannot be added to its input {x}")
    return x


@dataclass(frozen=True)
class LlamaWeights(ArgumentGroup, Generic[V]):
    """The weights of a `llama_decoder_block`: shapes or tensors."""

    ln1_scale: V
    ln1_bias: V
    wq: V
    wk: V
    wv: V
    wo: V
    ln2_scale: V
    ln2_bias: V
    gate: V
    up: V
    down: V


@dataclass(frozen=True)
class PositionInputs(ArgumentGroup, Generic[V]):
    """The operands of a decoder block that depend on positions: the tables of its rotary embedding, and a mask."""

    cos: V
    sin: V
    mask: V | None


@dataclass(frozen=True)
class GroupedAttention(ArgumentGroup):
    """The attributes of the attention of a decoder block, whose keys and values may have fewer heads."""

    num_heads: int
    head_dim: int
    num_kv_heads: int
    mask_kind: str
    window: int | None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of its `attention`, which finds the heads of keys and values by their width."""
        return {name: value for name, value in self.named.items() if name != "num_kv_heads"}


class LlamaDecoderBlock(Card, op="llama_decoder_block"):
    def infer(
        self,
        x: Shape,
        weights: LlamaWeights[Shape],
        positions: PositionInputs[Shape],
        *,
        attention: GroupedAttention,
        **_: Any,
    ) -> Shape:
        if x.rank != 3:
            raise ShapeError(f"x must be [B, S, E], got {x}")
        _check_norms(x, weights)
        head_dim, kv_heads, projections = attention.head_dim, attention.num_kv_heads, ("wq", "wk", "wv")
        shapes: list[Shape] = [getattr(weights, name) for name in projections]
        for name, weight, heads in zip(projections, shapes, (attention.num_heads, kv_heads, kv_heads), strict=True):
            if weight.dims != (x.dims[2], heads * head_dim):
                raise ShapeError(f"{name} must be [{x.dims[2]}, {heads * head_dim}], got {weight}")
        q, k, v = (linear_shape(x, w) for w in shapes)
        rotated = RopeLayout(head_dim, head_dim, "neox")
        for part in (q, k):
            Rope().infer(part, positions.cos, positions.sin, **rotated.named)
        mask, mask_kind = positions.mask, attention.mask_kind
        if mask_kind in ("custom", "bias") and mask is None:
            raise ShapeError(f"mask_kind '{mask_kind}' needs 15 operands, got 14: the mask is missing")
        if mask_kind not in ("custom", "bias") and mask is not None:
            raise ShapeError(f"mask_kind '{mask_kind}' needs 14 operands, got 15: it takes no mask")
        attended = Attention().infer(q, k, v, mask, **attention.attributes)
        _residual(x, linear_shape(attended, weights.wo))
        gate, up, down = weights.gate, weights.up, weights.down
        if up.dims != gate.dims:
            raise ShapeError(f"up {up} and gate {gate} must have one shape")
        same_dtype(x, gate, up, down)
        return _residual(x, linear_shape(linear_shape(x, up), down))

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        weights: LlamaWeights[Tensor],
        positions: PositionInputs[Tensor],
        *,
        attention: GroupedAttention,
        eps: float,
    ) -> Tensor:
        w, cos, sin = weights, positions.cos, positions.sin
        normal = b.rms_norm(x, w.ln1_scale, w.ln1_bias, eps=eps)
        q = b.rope(b.matmul(normal, w.wq), cos, sin, attention.head_dim)
        k = b.rope(b.matmul(normal, w.wk), cos, sin, attention.head_dim)
        v = b.matmul(normal, w.wv)
        h = x + b.matmul(b.attention(q, k, v, positions.mask, **attention.attributes), w.wo)
        normal = b.rms_norm(h, w.ln2_scale, w.ln2_bias, eps=eps)
        return h + b.swiglu_ffn(normal, w.up, w.gate, w.down)

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


@dataclass(frozen=True)
class EncoderWeights(ArgumentGroup, Generic[V]):
    """The weights of a `transformer_encoder_block`: shapes or tensors."""

    wq: V
    bq: V
    wk: V
    bk: V
    wv: V
    bv: V
    wo: V
    bo: V
    ln1_scale: V
    ln1_bias: V
    w_up: V
    b_up: V
    w_down: V
    b_down: V
    ln2_scale: V
    ln2_bias: V

    @property
    def projections(self) -> tuple[tuple[V, V], ...]:
        """Weights and biases of queries, keys and values."""
        return (self.wq, self.bq), (self.wk, self.bk), (self.wv, self.bv)


@dataclass(frozen=True)
class EncoderOptions(ArgumentGroup):
    """The attributes of a `transformer_encoder_block`."""

    num_heads: int
    activation: str
    eps: float
    mask_kind: str

    def attention(self, q: Shape) -> dict[str, Any]:
        """The attributes of its attention, for queries of a shape."""
        width = q.dims[2]
        if type(width) is not int or self.num_heads < 1 or width % self.num_heads:
            raise ShapeError(f"{q} does not divide into {self.num_heads} heads")
        return {"num_heads": self.num_heads, "head_dim": width // self.num_heads, "mask_kind": self.mask_kind}


class TransformerEncoderBlock(Card, op="transformer_encoder_block"):
    def infer(self, x: Shape, weights: EncoderWeights[Shape], mask: Shape | None, *, options: EncoderOptions) -> Shape:
        if x.rank != 3:
            raise ShapeError(f"x must be [B, S, E], got {x}")
        w = weights
        _check_norms(x, w)
        q, k, v = (linear_shape(x, *projection) for projection in w.projections)
        attended = Attention().infer(q, k, v, mask, **options.attention(q), window=None)
        _residual(x, linear_shape(attended, w.wo, w.bo))
        return _residual(x, linear_shape(linear_shape(x, w.w_up, w.b_up), w.w_down, w.b_down))

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        weights: EncoderWeights[Tensor],
        mask: Tensor | None,
        *,
        options: EncoderOptions,
    ) -> Tensor:
        w, eps = weights, options.eps
        q, k, v = (b.linear(x, *projection) for projection in w.projections)
        attended = b.attention(q, k, v, mask, **options.attention(q.shape))
        h = b.layer_norm(b.linear(attended, w.wo, w.bo) + x, w.ln1_scale, w.ln1_bias, eps=eps)
        wide = b.linear(h, w.w_up, w.b_up, activation=options.activation)
        return b.layer_norm(b.linear(wide, w.w_down, w.b_down) + h, w.ln2_scale, w.ln2_bias, eps=eps)

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


def _check_norms(x: Shape, weights: LlamaWeights[Shape] | EncoderWeights[Shape]) -> None:
    """Check the weights of both norms of a layer."""
    names = ("ln1_scale", "ln1_bias", "ln2_scale", "ln2_bias")
    check_weights(x, x.dims[2], **{name: getattr(weights, name) for name in names})
