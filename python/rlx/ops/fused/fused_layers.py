"""Fused layers: attention with its projections, and a whole encoder layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, OpSample, SampleOperand, sample
from rlx.ir.shape import DimLike, Shape
from rlx.ops.attention.attention import Attention
from rlx.ops.attention.rope import Rope, RopeLayout
from rlx.ops.fused.fused import linear_shape, project
from rlx.ops.norm import check_weights
from rlx.support.errors import ShapeError

V = TypeVar("V")


def _all_or_none(**operands: object) -> None:
    """Check that optional operands are either all present or all absent.

    Raises:
        ShapeError: Only some are present.
    """
    missing = [name for name, value in operands.items() if value is None]
    if missing and len(missing) < len(operands):
        raise ShapeError(f"{', '.join(operands)} are all there or none of them; {', '.join(missing)} is missing")


@dataclass(frozen=True)
class AttentionHeads(ArgumentGroup):
    """The number of heads of a fused attention, and the size of each."""

    num_heads: int
    head_dim: int

    @property
    def width(self) -> int:
        """The sizes of all heads together."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True)
class AttentionBlockOperands(ArgumentGroup, Generic[V]):
    """The operands of a `fused_attention_block`: shapes or tensors."""

    hidden: V
    qkv_w: V
    out_w: V
    mask: V | None
    qkv_b: V | None
    out_b: V | None
    cos: V | None
    sin: V | None


class FusedAttentionBlock(Card, op="fused_attention_block"):
    def infer(self, operands: AttentionBlockOperands[Shape], *, heads: AttentionHeads, mask_kind: str) -> Shape:
        return _attention_block(operands, heads, mask_kind)

    def decompose(
        self, b: Builder, operands: AttentionBlockOperands[Tensor], *, heads: AttentionHeads, mask_kind: str
    ) -> Tensor:
        qkv, width = project(b, operands.hidden, operands.qkv_w, operands.qkv_b), heads.width
        q, k, v = (b.narrow(qkv, -1, i * width, width) for i in range(3))
        cos, sin = operands.cos, operands.sin
        if cos is not None and sin is not None:
            q, k = (b.rope(x, cos, sin, heads.head_dim) for x in (q, k))
        attended = b.attention(q, k, v, operands.mask, **_attention(heads, mask_kind))
        return project(b, attended, operands.out_w, operands.out_b)

    def build(
        self,
        b: Builder,
        hidden: Tensor,
        qkv_w: Tensor,
        out_w: Tensor,
        mask: TensorLike | None = None,
        qkv_b: TensorLike | None = None,
        out_b: TensorLike | None = None,
        cos: TensorLike | None = None,
        sin: TensorLike | None = None,
        *,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "custom",
    ) -> Tensor:
        operands = (hidden, qkv_w, out_w, mask, qkv_b, out_b, cos, sin)
        attributes: Attributes = {"num_heads": num_heads, "head_dim": head_dim, "mask_kind": mask_kind}
        return b.emit("fused_attention_block", operands, **attributes)

    def samples(self) -> Iterable[OpSample]:
        def case(
            hidden: tuple[DimLike, ...], mask: SampleOperand | None, *biases_and_tables: object, **options: Any
        ) -> OpSample:
            weights = [SampleOperand(dims, low=-0.7, high=0.7) for dims in ((6, 24), (8, 6))]
            optional = [*biases_and_tables, *(None,) * (4 - len(biases_and_tables))]
            return sample(hidden, *weights, mask, *optional, num_heads=2, head_dim=4, **options)

        keep = SampleOperand((2, 5), "f32", low=0, high=1)
        yield case((2, 5, 6), keep, (24,), (6,), (5, 2), (5, 2), dtypes=FLOATS, tolerance=8)
        yield case((2, 5, 6), SampleOperand((2, 5), "bool"), dtypes=("f32",))
        yield case(
            (2, 5, 6), SampleOperand((2, 1, 5, 5), "i32", low=0, high=2), None, None, (5, 2), (5, 2), dtypes=("f32",)
        )
        yield case(("b", "s", 6), SampleOperand(("b", "s"), "f32", low=0, high=1), (24,), (6,), dtypes=("f32",))
        yield case((2, 5, 6), None, None, (6,), mask_kind="causal", dtypes=("f32",))
        yield case((2, 5, 6), None, (24,), mask_kind="none", dtypes=("f32",))
        yield case((2, 5, 6), SampleOperand((5, 5)), mask_kind="bias", dtypes=("f32",))


def _attention_block(operands: AttentionBlockOperands[Shape], heads: AttentionHeads, mask_kind: str) -> Shape:
    """The result of a `fused_attention_block`."""
    hidden, qkv_w, cos, sin = operands.hidden, operands.qkv_w, operands.cos, operands.sin
    _all_or_none(cos=cos, sin=sin)
    if hidden.rank != 3:
        raise ShapeError(f"hidden must be [B, S, E], got {hidden}")
    qkv = linear_shape(hidden, qkv_w, operands.qkv_b, "qkv_w")
    num_heads, head_dim, width = heads.num_heads, heads.head_dim, heads.width
    if num_heads < 1 or head_dim < 1 or qkv.dims[2] != 3 * width:
        expected = f"three times {num_heads} heads of {head_dim}"
        raise ShapeError(f"qkv_w {qkv_w} must have as many columns as {expected}, all at least 1")
    third = qkv.with_dims((*qkv.dims[:2], width))
    if cos is not None and sin is not None:
        Rope().infer(third, cos, sin, **RopeLayout(head_dim, head_dim, "neox").named)
    attended = Attention().infer(third, third, third, operands.mask, **_attention(heads, mask_kind))
    return linear_shape(attended, operands.out_w, operands.out_b, "out_w")


def _attention(heads: AttentionHeads, mask_kind: str) -> dict[str, Any]:
    """Return the attributes of a fused op's attention."""
    return {**heads.named, "mask_kind": mask_kind, "window": None, "score_scale": None, "softcap": None}


@dataclass(frozen=True)
class TransformerLayerOperands(ArgumentGroup, Generic[V]):
    """The operands of a `fused_transformer_layer`: shapes or tensors."""

    hidden: V
    qkv_w: V
    out_w: V
    ln1_scale: V
    ln1_shift: V
    up_w: V
    down_w: V
    ln2_scale: V
    ln2_shift: V
    mask: V
    qkv_b: V | None
    out_b: V | None
    up_b: V | None
    down_b: V | None

    @property
    def attention(self) -> AttentionBlockOperands[V]:
        """The operands of its `fused_attention_block`, which has no rotary embedding."""
        biases = self.qkv_b, self.out_b
        return AttentionBlockOperands(self.hidden, self.qkv_w, self.out_w, self.mask, *biases, None, None)


class FusedTransformerLayer(Card, op="fused_transformer_layer"):
    def infer(self, operands: TransformerLayerOperands[Shape], *, heads: AttentionHeads, **_: object) -> Shape:
        o, hidden = operands, operands.hidden
        _all_or_none(qkv_b=o.qkv_b, out_b=o.out_b, up_b=o.up_b, down_b=o.down_b)
        attended = _attention_block(o.attention, heads, "custom")
        norms = {name: getattr(o, name) for name in ("ln1_scale", "ln1_shift", "ln2_scale", "ln2_shift")}
        check_weights(hidden, hidden.dims[2], **norms)
        fed_forward = linear_shape(linear_shape(hidden, o.up_w, o.up_b, "up_w"), o.down_w, o.down_b, "down_w")
        for name, part in (("the attention block", attended), ("the feed-forward part", fed_forward)):
            if part.dims != hidden.dims:
                raise ShapeError(f"{name} gives {part}, which cannot be added to hidden {hidden}")
        return hidden

    def decompose(
        self,
        b: Builder,
        operands: TransformerLayerOperands[Tensor],
        *,
        heads: AttentionHeads,
        eps1: float,
        eps2: float,
        activation: str,
    ) -> Tensor:
        o = operands
        parts = tuple(o.attention.named.values())
        attended = b.emit("fused_attention_block", parts, **heads.named, mask_kind="custom")
        h = b.fused_residual_layer_norm(attended, o.hidden, None, o.ln1_scale, o.ln1_shift, eps=eps1)
        fed_forward = project(b, project(b, h, o.up_w, o.up_b, activation), o.down_w, o.down_b)
        return b.fused_residual_layer_norm(fed_forward, h, None, o.ln2_scale, o.ln2_shift, eps=eps2)

    def build(
        self,
        b: Builder,
        hidden: Tensor,
        qkv_w: Tensor,
        out_w: Tensor,
        ln1_scale: Tensor,
        ln1_shift: Tensor,
        up_w: Tensor,
        down_w: Tensor,
        ln2_scale: Tensor,
        ln2_shift: Tensor,
        mask: Tensor,
        qkv_b: TensorLike | None = None,
        out_b: TensorLike | None = None,
        up_b: TensorLike | None = None,
        down_b: TensorLike | None = None,
        *,
        num_heads: int,
        head_dim: int,
        eps1: float = 1e-12,
        eps2: float = 1e-12,
        activation: str = "gelu",
    ) -> Tensor:
        norms_and_weights = (ln1_scale, ln1_shift, up_w, down_w, ln2_scale, ln2_shift)
        operands = (hidden, qkv_w, out_w, *norms_and_weights, mask, qkv_b, out_b, up_b, down_b)
        attributes: Attributes = {"num_heads": num_heads, "head_dim": head_dim, "eps1": eps1, "eps2": eps2}
        return b.emit("fused_transformer_layer", operands, **attributes, activation=activation)

    def samples(self) -> Iterable[OpSample]:
        def case(
            hidden: tuple[DimLike, ...], mask: SampleOperand | None, biases: bool = True, **options: Any
        ) -> OpSample:
            e, f, width = 6, 10, 8
            weights = [(e, 3 * width), (width, e), (e,), (e,), (e, f), (f, e), (e,), (e,)]
            added = [(3 * width,), (e,), (f,), (e,)]
            required, optional = (
                [SampleOperand(dims, low=-0.7, high=0.7) for dims in shapes] for shapes in (weights, added)
            )
            operands = (hidden, *required, mask, *(optional if biases else (None,) * 4))
            return sample(*operands, num_heads=2, head_dim=4, **options)

        keep = SampleOperand((2, 5), "f32", low=0, high=1)
        yield case((2, 5, 6), keep, dtypes=FLOATS, tolerance=8)
        yield case((2, 5, 6), keep, biases=False, activation="silu", eps1=1e-3, eps2=1e-5, dtypes=("f32",))
        yield case((1, 5, 6), SampleOperand((1, 2, 5, 5), "i32", low=0, high=2), activation="relu", dtypes=("f32",))
        yield case(("b", "s", 6), SampleOperand(("b", "s"), "f32", low=0, high=1), dtypes=("f32",))
