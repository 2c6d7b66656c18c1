"""Multi-token prediction heads, which predict further tokens from the last hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

from rlx.blocks.linear import SwigluFfn
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.attention.attention import Attention
from rlx.ops.attention.rope import Rope, RopeLayout
from rlx.ops.lift import same_dtype
from rlx.ops.norm import check_weights
from rlx.ops.recurrent import expect_dims, sizes_of
from rlx.ops.shape.index import Embedding, Gather, GatherBatched

_INDICES = ("input_ids", "last_token_idx")


class Qwen35MtpHead(Card, op="qwen35_mtp_head"):
    def infer(
        self, *operands: Shape, num_heads: int, num_kv_heads: int, head_dim: int, n_rot: int, eps: float
    ) -> Shape:
        p = self._by_name(operands)
        same_dtype(*(shape for name, shape in vars(p).items() if name not in _INDICES))
        batch, length, width = sizes_of("h_pre_norm", p.h_pre_norm, "BSE")
        expect_dims("input_ids", p.input_ids, batch, length)
        expect_dims("last_token_idx", p.last_token_idx, batch, 1)
        expect_dims("embed_w", p.embed_w, sizes_of("embed_w", p.embed_w, "VE")[0], width)
        for name in ("hnorm", "enorm", "attn_norm", "post_norm", "head_norm"):
            _check_norm(p, name, p.h_pre_norm, width)
        expect_dims("eh_w", p.eh_w, 2 * width, width)
        expect_dims("q_gate_w", p.q_gate_w, width, num_heads * 2 * head_dim)
        for name in ("k_w", "v_w"):
            expect_dims(name, getattr(p, name), width, num_kv_heads * head_dim)
        for name in ("q_norm", "k_norm"):
            _check_norm(p, name, p.h_pre_norm, head_dim)
        expect_dims("o_w", p.o_w, num_heads * head_dim, width)
        Embedding().infer(p.embed_w, p.input_ids)
        row = GatherBatched().infer(p.h_pre_norm, p.last_token_idx, axis=1)
        keys = p.h_pre_norm.with_dims((batch, length, num_kv_heads * head_dim))
        Rope().infer(keys, p.cos, p.sin, **RopeLayout(head_dim, n_rot, "neox").named)
        expect_dims("cos", p.cos, length, n_rot // 2)
        query = row.with_dims((batch, 1, num_heads * head_dim))
        heads = {"num_heads": num_heads, "head_dim": head_dim}
        Attention().infer(query, keys, keys, None, **heads, mask_kind="none", window=None)
        expect_dims("down_w", p.down_w, sizes_of("down_w", p.down_w, "FE")[0], width)
        SwigluFfn().infer(row, p.up_w, p.gate_w, p.down_w)
        vocabulary = sizes_of("lm_head_w", p.lm_head_w, "EV")[1]
        expect_dims("lm_head_w", p.lm_head_w, width, vocabulary)
        return row.with_dims((batch, 1, vocabulary))

    def requires(self, *operands: Shape, **_: Any) -> Any:
        p = self._by_name(operands)
        tokens = Gather().requires(p.embed_w, p.input_ids, axis=0)
        return chain(tokens, GatherBatched().requires(p.h_pre_norm, p.last_token_idx, axis=1))

    def decompose(
        self,
        b: Builder,
        *operands: Tensor,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        n_rot: int,
        eps: float,
    ) -> Tensor:
        p = self._by_name(operands)

        def normal(x: Tensor, name: str) -> Tensor:
            return b.rms_norm(x, getattr(p, f"{name}_w"), getattr(p, f"{name}_b"), eps=eps)

        def turned(x: Tensor, name: str, cos: Tensor, sin: Tensor) -> Tensor:
            """Return heads `[B, S, H, D]`, normalised, rotated and packed."""
            joined = b.reshape(normal(x, name), (*x.shape.dims[:2], x.shape.dims[2] * head_dim))
            return b.rope(joined, cos, sin, head_dim, n_rot)

        tokens = normal(b.embedding(p.embed_w, p.input_ids), "enorm")
        x = b.matmul(b.concat([tokens, normal(p.h_pre_norm, "hnorm")], -1), p.eh_w)
        attended = normal(x, "attn_norm")
        batch, length, _ = x.shape.dims
        k = b.reshape(b.matmul(attended, p.k_w), (batch, length, num_kv_heads, head_dim))
        k = turned(k, "k_norm", p.cos, p.sin)
        v = b.matmul(attended, p.v_w)

        # The result needs only the last token of each sequence. The other tokens contribute only keys and values.
        x, attended = (b.gather_batched(t, p.last_token_idx, axis=1) for t in (x, attended))
        q_gate = b.reshape(b.matmul(attended, p.q_gate_w), (batch, 1, num_heads, 2 * head_dim))
        cos, sin = (b.gather(t, p.last_token_idx, axis=0) for t in (p.cos, p.sin))
        q = turned(b.narrow(q_gate, -1, 0, head_dim), "q_norm", cos, sin)
        gate = b.reshape(b.narrow(q_gate, -1, head_dim, head_dim), q.shape.dims)
        mask = _up_to(b, p.last_token_idx, length)
        mixed = b.attention(q, k, v, mask, num_heads=num_heads, head_dim=head_dim, mask_kind="custom")
        h = x + b.matmul(mixed * b.sigmoid(gate), p.o_w)
        h = h + b.swiglu_ffn(normal(h, "post_norm"), p.up_w, p.gate_w, p.down_w)
        return b.matmul(normal(h, "head_norm"), p.lm_head_w)

    def _by_name(self, operands: Sequence[Any]) -> Any:
        """Return the operands by their names in the record."""
        return SimpleNamespace(**dict(zip((o.name for o in self.spec.operands), operands, strict=True)))

    def samples(self) -> Any:
        yield _case(2, 5, n_rot=2, dtypes=FLOATS)
        yield _case("batch", "seq", n_rot=4, eps=1e-2, dtypes=("f32",))


def _case(batch: Any, length: Any, *, n_rot: int, **options: Any) -> Any:
    e, f, heads, kv_heads, d, tokens = 6, 10, 4, 2, 4, 9
    norms, head_norms = [(e,), (e,)], [(d,), (d,)]
    weights = [(tokens, e), *norms, *norms, (2 * e, e), *norms, (e, heads * 2 * d), (e, kv_heads * d)]
    weights += [(e, kv_heads * d), *head_norms, *head_norms, (heads * d, e), *norms]
    weights += [(e, f), (e, f), (f, e), *norms, (e, 7)]
    return sample(
        (batch, length, e),
        SampleOperand((batch, length), "i32", low=0, high=tokens),
        (length, n_rot // 2),
        (length, n_rot // 2),
        SampleOperand((batch, 1), "i64", low=-1, high=6),
        *[SampleOperand(w, low=-0.7, high=0.7) for w in weights],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=d,
        n_rot=n_rot,
        **options,
    )


def _check_norm(p: Any, name: str, x: Shape, size: Dim) -> None:
    """Check scale and shift of a norm."""
    check_weights(x, size, **{f"{name}_{part}": getattr(p, f"{name}_{part}") for part in "wb"})


def _up_to(b: Builder, index: Tensor, length: Dim) -> Tensor:
    """Return which of `length` positions are at most `index [B, 1]`, clamped to the range: bool `[B, length]`."""
    position = b.gather(b.iota((length,), axis=0), index, axis=0)
    return b.iota((1, length), axis=1) <= position
