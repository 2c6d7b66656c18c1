"""Attention, for every mask kind and for grouped heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, Groups, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.attention.attention_gradient import AttentionGradient
from rlx.ops.attention.heads import (
    Heads,
    attention_weights,
    grouped_mask,
    merge_heads,
    scaled_queries,
    scores_of,
    softcap_slope,
    split_heads,
    split_keys,
    split_values,
    weighted_values,
    weights_slope,
)
from rlx.ops.lift import cast


class Attention(Card, op="attention"):
    def infer(self, q: Shape, k: Shape, v: Shape, mask: Shape | None, **attributes: Any) -> Shape:
        heads = Heads(q, k, v, attributes["num_heads"], attributes["head_dim"])
        heads.check_mask(mask, attributes["mask_kind"], attributes["window"])
        width = heads.num_heads * heads.value_dim if heads.packed else heads.value_dim
        return q.with_dims((*q.dims[:-1], width))

    def evaluate(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, **attributes: Any
    ) -> np.ndarray:
        shapes = [Shape(t.shape, t.dtype) for t in (q, k, v)]
        heads = Heads(shapes[0], shapes[1], shapes[2], attributes["num_heads"], attributes["head_dim"])
        split = [_split_array(t, n) for t, n in ((q, heads.num_heads), (k, heads.kv_heads), (v, heads.kv_heads))]
        query, key, value = (t.astype(np.float64) for t in split)
        key, value = np.repeat(key, heads.group, 1), np.repeat(value, heads.group, 1)
        scale = attributes["score_scale"]
        scores = np.einsum("bhsd,bhtd->bhst", query, key) * (heads.head_dim**-0.5 if scale is None else scale)
        if attributes["softcap"] is not None:
            scores = attributes["softcap"] * np.tanh(scores / attributes["softcap"])
        if attributes["mask_kind"] == "bias":
            assert mask is not None
            scores = scores + mask.astype(np.float64)
        else:
            scores = np.where(_visible(scores.shape, mask, attributes), scores, -np.inf)
        top = np.max(scores, -1, keepdims=True, initial=-np.inf)
        guarded = attributes["mask_kind"] != "none" and attributes["empty_rows"] == "zeros"
        unseeing = (top == -np.inf) & guarded
        weights = np.exp(scores - np.where(unseeing, 0, top))
        total = weights.sum(-1, keepdims=True)
        result = np.einsum("bhst,bhtd->bhsd", weights / np.where(unseeing, 1, total), value)
        if heads.packed:
            result = result.transpose(0, 2, 1, 3).reshape(*q.shape[:2], heads.num_heads * heads.value_dim)
        return result.astype(q.dtype)

    def decompose(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **attributes: Any) -> Tensor:
        heads = Heads(q.shape, k.shape, v.shape, attributes["num_heads"], attributes["head_dim"])
        scores = scores_of(b, scaled_queries(b, heads, q, attributes["score_scale"]), split_keys(b, heads, k))
        weights = cast(b, attention_weights(b, heads, scores, mask, attributes), v.dtype)
        result = weighted_values(b, weights, split_heads(b, heads, v, heads.kv_heads, heads.value_dim))
        return merge_heads(b, heads, result, heads.num_heads, heads.queries)

    def build(
        self,
        b: Builder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: TensorLike | None = None,
        *,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "none",
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
        empty_rows: str = "zeros",
    ) -> Tensor:
        return b.emit(
            "attention",
            (q, k, v, mask),
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=mask_kind,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
            empty_rows=empty_rows,
        )

    def jvp(self, b: Builder, operands: Groups, tangents: Groups, results: Tensors, **attributes: Any) -> Tensor | None:
        (q, k, v, mask), (dq, dk, dv, dmask) = operands, tangents
        heads = Heads(q.shape, k.shape, v.shape, attributes["num_heads"], attributes["head_dim"])
        queries, keys = scaled_queries(b, heads, q, attributes["score_scale"]), split_keys(b, heads, k)
        scores = scores_of(b, queries, keys)
        weights = attention_weights(b, heads, scores, mask, attributes)
        moved = rules.total(
            b,
            (
                None if dq is None else scores_of(b, scaled_queries(b, heads, dq, attributes["score_scale"]), keys),
                None if dk is None else scores_of(b, queries, split_keys(b, heads, dk)),
            ),
        )
        if moved is not None and attributes["softcap"] is not None:
            moved = moved * softcap_slope(b, scores, attributes["softcap"])
        if dmask is not None and attributes["mask_kind"] == "bias":
            moved = rules.total(b, (moved, cast(b, grouped_mask(b, heads, dmask), weights.dtype)))
        moved = (
            None if moved is None else weighted_values(b, weights_slope(b, weights, moved), split_values(b, heads, v))
        )
        result = rules.total(
            b, (moved, None if dv is None else weighted_values(b, weights, split_values(b, heads, dv)))
        )
        if result is None:  # only the mask has a tangent, and it only hides keys
            return None
        return merge_heads(b, heads, cast(b, result, v.dtype), heads.num_heads, heads.queries)

    def vjp(
        self, b: Builder, operands: Groups, results: Tensors, cotangents: Tensors, **attributes: Any
    ) -> rules.Cotangents:
        gradient = AttentionGradient(b, operands, cotangents[0], attributes)
        of_mask = gradient.of_mask if attributes["mask_kind"] == "bias" else None
        return gradient.of_query, gradient.of_key, gradient.of_value, of_mask

    def vmap(self, b: Builder, operands: Groups, batched: Groups, *, size: Dim, **attributes: Any) -> Tensor:
        (*arrays, mask), (*flags, mask_batched) = operands, batched
        kind, along = attributes["mask_kind"], arrays[0].rank - 3
        if flags == [True, False, False] and not mask_batched and _hides_alike(mask, kind):
            # All queries of a row see the same keys, so the queries of all entries can share one call.
            queries = arrays[0].shape.dims[along + 1]
            result = b.emit("attention", (rules.folded(b, arrays[0], along), *arrays[1:], mask), **attributes)
            return rules.unfolded(b, result, along, size, queries)
        arrays = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(arrays, flags, strict=True)]
        rows = arrays[0].shape.dims[1]
        if mask is not None:
            mask = _folded_mask(b, mask, bool(mask_batched), size, rows, kind)
        result = b.emit("attention", (*(rules.folded(b, x, 0) for x in arrays), mask), **attributes)
        return rules.unfolded(b, result, 0, size, rows)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        q, k, v = operands[:3]
        heads = Heads(q, k, v, attributes["num_heads"], attributes["head_dim"])
        pairs = heads.batch * heads.num_heads * heads.queries * heads.keys
        return Cost(pairs * (2 * heads.head_dim + 2 * heads.value_dim + 14), moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        packed, split = ((2, 5, 12),) * 3, ((2, 3, 5, 4),) * 3
        sizes: Attributes = {"num_heads": 3, "head_dim": 4}
        for kind in ("none", "causal"):
            yield sample(*packed, None, mask_kind=kind, **sizes, dtypes=FLOATS)
            yield sample(*split, None, mask_kind=kind, **sizes, dtypes=("f32",))
        yield sample(*packed, None, mask_kind="sliding_window", window=2, **sizes, dtypes=FLOATS)
        yield sample(*packed, SampleOperand((2, 5), "f32", low=0, high=1), mask_kind="custom", **sizes, dtypes=FLOATS)
        yield sample(*packed, SampleOperand((2, 5), "bool"), mask_kind="custom", **sizes, dtypes=("f32",))
        yield sample(
            *split, SampleOperand((2, 1, 5, 5), "i32", low=0, high=2), mask_kind="custom", **sizes, dtypes=("f32",)
        )
        yield sample(*packed, SampleOperand((2, 3, 5, 5)), mask_kind="bias", **sizes, dtypes=FLOATS)
        yield sample(*split, SampleOperand((5, 5), "f32"), mask_kind="bias", **sizes, dtypes=("f32",))
        # fewer queries than keys, fewer key heads than query heads, values of a different width
        yield sample((2, 2, 16), (2, 5, 8), (2, 5, 6), None, num_heads=4, head_dim=4, mask_kind="causal", dtypes=FLOATS)
        yield sample((2, 6, 2, 4), (2, 1, 5, 4), (2, 1, 5, 4), None, num_heads=6, head_dim=4, dtypes=("f32",))
        # more queries than keys: the first queries see no key
        yield sample(
            (1, 5, 8), (1, 3, 8), (1, 3, 8), None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",)
        )
        yield sample(*packed, None, score_scale=0.3, softcap=1.5, **sizes, dtypes=("f32", "f16"))
        yield sample(*split, None, mask_kind="causal", empty_rows="nan", **sizes, dtypes=("f32",))
        dims = ("batch", "seq", 8)
        yield sample(dims, dims, dims, None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",))
        past = ("batch", "past+seq", 8)
        yield sample(dims, past, past, None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",))


def _split_array(x: np.ndarray, heads: int) -> np.ndarray:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _visible(shape: tuple[int, ...], mask: np.ndarray | None, attributes: Attributes) -> np.ndarray:
    kind = attributes["mask_kind"]
    _, _, queries, keys = shape
    if kind == "none":
        return np.ones((), bool)
    if kind == "custom":
        assert mask is not None
        keep: np.ndarray = mask >= 0.5 if mask.dtype.kind not in "biu" else mask != 0
        return keep[:, None, None, :] if keep.ndim == 2 else keep
    query = np.arange(queries)[:, None] + keys - queries
    key = np.arange(keys)[None, :]
    visible = key <= query
    return visible if kind == "causal" else visible & (key >= query - attributes["window"])


# --- batches ----------------------------------------------------------------------------------------


def _hides_alike(mask: Tensor | None, kind: str) -> bool:
    """Whether the mask hides the same keys from all queries of a row."""
    if mask is None:
        return kind == "none"
    return (kind == "custom" and mask.rank == 2) or mask.rank < 2 or mask.shape.dims[-2] == 1


def _folded_mask(b: Builder, mask: Tensor, batched: bool, size: Dim, rows: Dim, kind: str) -> Tensor:
    """Return the mask for a batch that is folded into the rows: one mask for each row of each entry, or one for all."""
    rank = mask.rank - batched
    if kind == "custom" and rank == 2:  # [B, T]
        return rules.folded(b, rules.batch(b, mask, batched, size), 0)
    dims = (1,) * (4 - rank) + mask.shape.dims[int(batched) :]
    if not batched and dims[0] == 1:
        return mask
    per_entry = b.reshape(mask, (size, *dims)) if batched else rules.batch(b, mask, False, size)
    return rules.folded(b, b.expand(per_entry, (size, rows, *dims[1:])), 0)
