"""Attention ops of ONNX Runtime (`com.microsoft`): joined weights, multi-head and grouped-query, with caches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx.importers.onnx.attention import RotaryAttributes, rotary_embedding
from rlx.importers.onnx.rules import Static, Unknown, extent, imports, static_dims
from rlx.importers.onnx.shape import tensor_scatter
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _split_heads(g: Graph, x: Tensor, heads: int) -> Tensor:
    """Return [batch, sequence, heads · head_dim] as [batch, heads, sequence, head_dim]."""
    batch, length, _ = x.shape.dims
    (width,) = static_dims(x, 2)
    return g.transpose(g.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _joined_heads(g: Graph, x: Tensor) -> Tensor:
    batch, heads, length, width = x.shape.dims
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (batch, length, heads * width))


def _scores(g: Graph, q: Tensor, k: Tensor, scale: float | None, softcap: float = 0.0) -> Tensor:
    """Products of queries and keys, [batch, heads, sequence, head_dim]; keys may have fewer heads."""
    groups = static_dims(q, 1)[0] // static_dims(k, 1)[0]
    k = g.repeat(k, groups, 1) if groups > 1 else k
    factor = scale or 1 / math.sqrt(static_dims(q, -1)[0])
    scores = g.mul(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), factor)
    return g.mul(g.tanh(g.div(scores, softcap)), softcap) if softcap else scores


def _weighted(g: Graph, scores: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None) -> Tensor:
    """Values by the softmax of scores, [batch, sequence, heads · head_dim]; values may have fewer heads."""
    groups = static_dims(scores, 1)[0] // static_dims(v, 1)[0]
    v = g.repeat(v, groups, 1) if groups > 1 else v
    scores = scores if bias is None else g.add(scores, bias)
    scores = scores if allowed is None else g.where(allowed, scores, -math.inf)
    return _joined_heads(g, g.matmul(g.softmax(scores, -1), v))


def _causal(g: Graph, rows: Dim, columns: Dim) -> Tensor:
    """Return which keys a query may attend to. The queries are the last positions of the sequence."""
    last = g.add(g.iota((rows, 1), 0), extent(g, columns - rows, "i32"))
    return g.le(g.iota((1, columns), 1), last)


def _mask_bias(g: Graph, mask: Tensor, total: Dim, filter_value: float, dtype: Any) -> Tensor:
    """Return the bias for a mask: keys `[batch, total]`, queries and keys `[batch, rows, total]`, or lengths `[batch]`."""
    if mask.shape.rank == 1:
        ends = g.reshape(g.cast(mask, "i32"), (-1, 1, 1, 1))
        seen = g.lt(g.iota((1, 1, 1, total), 3), ends)
    else:
        shape = (mask.shape.dims[0], *(1,) * (4 - mask.shape.rank), *mask.shape.dims[1:])
        seen = g.ne(g.reshape(mask, shape), 0)
    return g.where(seen, g.constant(0.0, dtype=dtype), filter_value)


def _sum(g: Graph, *biases: Tensor | None) -> Tensor | None:
    total: Tensor | None = None
    for bias in biases:
        total = bias if total is None else total if bias is None else g.add(total, bias)
    return total


@dataclass(frozen=True, kw_only=True)
class MultiHeadAttributes(ArgumentGroup):
    """The attributes of attention of many heads, with ONNX Runtime's names."""

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
    unidirectional: int = 0

    def attended(self, g: Graph, qkv: Sequence[Tensor], mask: Tensor | None, added: Tensor | None) -> Tensor:
        """The result for queries, keys and values, with a mask and a bias of the scores."""
        q, k, v = qkv
        rows, total = q.shape.dims[2], k.shape.dims[2]
        if mask is not None and mask.shape.rank == 1 and not dim.same(mask.shape.dims[0], q.shape.dims[0]):
            raise UnsupportedError("with a mask of ends and starts cannot be imported")
        masked = None if mask is None else _mask_bias(g, mask, total, self.mask_filter_value, q.dtype)
        allowed = _causal(g, rows, total) if self.unidirectional else None
        return _weighted(g, _scores(g, q, k, self.scale), v, _sum(g, masked, added), allowed)


@dataclass(frozen=True)
class JoinedAttentionOperands(ArgumentGroup):
    """The operands of attention whose queries, keys and values are one product."""

    x: Tensor
    weights: Tensor
    bias: Tensor | None = None
    mask: Tensor | None = None
    past: Tensor | None = None
    added: Tensor | None = None
    past_length: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class JoinedAttentionAttributes(MultiHeadAttributes):
    """The attributes of attention whose queries, keys and values are one product, with ONNX Runtime's names."""

    do_rotary: int = 0
    past_present_share_buffer: int = 0

    def attention(
        self, g: Graph, operands: JoinedAttentionOperands, outputs: int, widths: Sequence[int] | None = None
    ) -> list[Tensor]:
        """The results, with queries, keys and values of these widths; without them a third each."""
        if self.do_rotary or self.past_present_share_buffer:
            raise UnsupportedError("with rotations or a shared cache cannot be imported")
        (whole,) = static_dims(operands.weights, 1)
        widths = widths or (whole // 3,) * 3
        joined = g.matmul(operands.x, operands.weights)
        joined = joined if operands.bias is None else g.add(joined, operands.bias)
        starts = (0, widths[0], widths[0] + widths[1])
        parts = [g.narrow(joined, 2, at, width) for at, width in zip(starts, widths, strict=True)]
        q, k, v = (_split_heads(g, p, self.num_heads) for p in parts)
        past = operands.past
        if past is not None:
            k, v = (g.concat([g.squeeze(g.narrow(past, 0, i, 1), 0), t], 2) for i, t in enumerate((k, v)))
        result = self.attended(g, (q, k, v), operands.mask, operands.added)
        return [result, g.stack([k, v], 0)][:outputs] if outputs > 1 else [result]


@imports("com.microsoft.Attention")
def attention(
    g: Graph,
    operands: JoinedAttentionOperands,
    *,
    outputs: int,
    heads: JoinedAttentionAttributes,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
) -> list[Tensor]:
    """Return the attention of one tensor. A product with joined weights gives the queries, keys and values."""
    return heads.attention(g, operands, outputs, qkv_hidden_sizes)


@dataclass(frozen=True)
class MultiHeadOperands(ArgumentGroup):
    """The operands of `MultiHeadAttention`, in its order; the query may hold keys and values as well."""

    query: Tensor
    key: Tensor | None = None
    value: Tensor | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None
    added: Tensor | None = None
    past_key: Tensor | None = None
    past_value: Tensor | None = None

    def parts(self, g: Graph) -> list[Tensor]:
        """Queries, keys and values, with their bias."""
        query, key, value = self.query, self.key, self.value
        if query.shape.rank == 5:
            parts = [g.squeeze(g.narrow(query, 3, i, 1), 3) for i in range(3)]
            query, key, value = (g.reshape(p, (*p.shape.dims[:2], p.shape.dims[2] * p.shape.dims[3])) for p in parts)
        elif key is not None and key.shape.rank == 5:
            parts = [g.squeeze(g.narrow(key, 3, i, 1), 3) for i in range(2)]
            key, value = (g.reshape(p, (*p.shape.dims[:2], p.shape.dims[2] * p.shape.dims[3])) for p in parts)
        if key is None or value is None:
            raise UnsupportedError("without keys and values cannot be imported")
        tensors, at = [query, key, value], 0
        for i, tensor in enumerate(tensors):
            if self.bias is not None and tensor.shape.rank == 3:
                (width,) = static_dims(tensor, 2)
                tensors[i] = g.add(tensor, g.narrow(self.bias, 0, at, width))
                at += width
        return tensors


@imports("com.microsoft.MultiHeadAttention")
def multi_head_attention(
    g: Graph, operands: MultiHeadOperands, *, outputs: int, heads: MultiHeadAttributes
) -> list[Tensor]:
    tensors = operands.parts(g)
    q, k, v = (_split_heads(g, t, heads.num_heads) if t.shape.rank == 3 else t for t in tensors)
    if operands.past_key is not None and operands.past_value is not None:
        k, v = g.concat([operands.past_key, k], 2), g.concat([operands.past_value, v], 2)
    return [heads.attended(g, (q, k, v), operands.mask, operands.added), k, v][:outputs]


@dataclass(frozen=True, kw_only=True)
class MicrosoftRotaryAttributes(RotaryAttributes):
    """The attributes of ONNX Runtime's own `RotaryEmbedding`."""

    is_packed_batching: int = 0
    scale: float = 1.0


@imports("com.microsoft.RotaryEmbedding")
def microsoft_rotary_embedding(
    g: Graph, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, *, rotation: MicrosoftRotaryAttributes
) -> Tensor:
    """Apply rotary embeddings. Positions are given for each element, or as the first position of all sequences."""
    if rotation.is_packed_batching:
        raise UnsupportedError("of packed batches cannot be imported")
    batch, length = x.shape.dims[0], x.shape.dims[1 if x.shape.rank == 3 else 2]
    if positions.shape.rank == 1:
        row = g.add(g.iota((1, length), 1, positions.dtype), g.reshape(positions, (1, 1)))
        positions = g.broadcast_to(row, (batch, length))
    if x.shape.rank == 3 and not rotation.num_heads:
        (width,) = static_dims(x, 2)
        rotation = replace(rotation, num_heads=width // (2 * static_dims(cos, 1)[0]))
    return rotary_embedding(g, x, cos, sin, positions, rotation=rotation)


def _cached(g: Graph, past: Tensor | None, new: Tensor, starts: Tensor, room: Dim) -> Tensor:
    """Return a cache with the new rows of each sequence written at its start position."""
    if past is None:
        return new
    more = room - past.shape.dims[2]
    wide = past if dim.same(more, 0) else g.pad(past, [(0, 0), (0, 0), (0, more), (0, 0)])
    return tensor_scatter(g, wide, new, starts, axis=2)


@dataclass(frozen=True)
class GroupQueryOperands(ArgumentGroup):
    """The operands of `GroupQueryAttention`, in its order; the query may hold keys and values as well."""

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    past_key: Tensor | None
    past_value: Tensor | None
    lengths: Tensor
    total_length: Tensor
    cos: Tensor | None = None
    sin: Tensor | None = None
    position_ids: Tensor | None = None
    added: Tensor | None = None

    def parts(self, g: Graph, heads: int, kv_heads: int) -> list[Tensor]:
        """Queries, keys and values by their heads; those of a tensor that has all three are parts of it."""
        query = self.query
        if self.key is None or self.value is None:
            (whole,) = static_dims(query, 2)
            size = whole // (heads + 2 * kv_heads)
            ends = (heads * size, (heads + kv_heads) * size)
            parts = (query[..., : ends[0]], query[..., ends[0] : ends[1]], query[..., ends[1] :])
        else:
            parts = (query, self.key, self.value)
        return [_split_heads(g, t, n) for t, n in zip(parts, (heads, kv_heads, kv_heads), strict=True)]

    def starts(self, g: Graph, batch: Dim, rows: Dim) -> Tensor:
        """The position of the first of the new rows of each sequence."""
        ends = g.add(g.reshape(g.cast(self.lengths, "i32"), (batch,)), 1)
        # A prompt begins at 0 even where the sequence is shorter: the remaining rows are padding after it.
        starts = g.zeros((batch,), dtype="i32")
        return starts if self.past_key is None else g.maximum(g.sub(ends, extent(g, rows, "i32")), starts)

    def rotated(self, g: Graph, x: Tensor, starts: Tensor, interleaved: int) -> Tensor:
        """Queries or keys, rotated by their positions where there are tables."""
        if self.cos is None or self.sin is None:
            return x
        positions = self.position_ids
        if positions is None:
            batch, rows = x.shape.dims[0], x.shape.dims[2]
            positions = g.add(g.reshape(starts, (batch, 1)), g.iota((1, rows), 1))
        width = 2 * static_dims(self.cos, 1)[0]
        rotation = RotaryAttributes(interleaved=interleaved, rotary_embedding_dim=width)
        return rotary_embedding(g, x, self.cos, self.sin, positions, rotation=rotation)


@dataclass(frozen=True, kw_only=True)
class GroupQueryAttributes(ArgumentGroup):
    """The attributes of `GroupQueryAttention`, with ONNX Runtime's names."""

    kv_num_heads: int
    num_heads: int
    do_rotary: int = 0
    local_window_size: int = -1
    rotary_interleaved: int = 0
    scale: float = 0.0
    smooth_softmax: int = 0
    softcap: float = 0.0


@imports("com.microsoft.GroupQueryAttention")
def group_query_attention(
    g: Graph, operands: GroupQueryOperands, *, static: Static, outputs: int, heads: GroupQueryAttributes
) -> list[Tensor]:
    """Return causal attention. `lengths` are total lengths minus 1. New rows are written in place if the cache has room."""
    if heads.smooth_softmax == 1:
        raise UnsupportedError("with a smooth softmax cannot be imported")
    q, k, v = operands.parts(g, heads.num_heads, heads.kv_num_heads)
    batch, rows = q.shape.dims[0], q.shape.dims[2]
    starts, past = operands.starts(g, batch, rows), operands.past_key
    if heads.do_rotary:
        q, k = (operands.rotated(g, t, starts, heads.rotary_interleaved) for t in (q, k))
    room = rows if past is None else _room(past.shape.dims[2], rows, static[6])
    k, v = _cached(g, past, k, starts, room), _cached(g, operands.past_value, v, starts, room)
    place = g.add(g.reshape(starts, (batch, 1, 1, 1)), g.iota((1, 1, rows, 1), 2))
    seen = g.iota((1, 1, 1, room), 3)
    allowed = g.le(seen, place)
    if heads.local_window_size > 0:
        allowed = g.logical_and(allowed, g.gt(seen, g.sub(place, heads.local_window_size)))
    scores = _scores(g, q, k, heads.scale, heads.softcap)
    return [_weighted(g, scores, v, operands.added, allowed), k, v][:outputs]


def _room(past: Dim, rows: Dim, total: Any) -> Dim:
    """Return the length of the cache after the op. A cache with room for the total length keeps its length."""
    if total is None or isinstance(total, Unknown):
        return past + rows
    known = total.array.reshape(-1)[0] if not hasattr(total, "item") else int(total.item())
    return dim.maximum(past, known)
