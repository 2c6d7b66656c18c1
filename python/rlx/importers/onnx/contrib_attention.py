"""Attention ops of ONNX Runtime (`com.microsoft`): joined weights, multi-head and grouped-query, with caches."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.onnx.attention import rotary_embedding
from rlx.importers.onnx.rules import Static, Unknown, extent, imports, static_dims
from rlx.importers.onnx.shape import tensor_scatter
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError


def _split_heads(g: Any, x: Tensor, heads: int) -> Tensor:
    """Return [batch, sequence, heads · head_dim] as [batch, heads, sequence, head_dim]."""
    batch, length, _ = x.shape.dims
    (width,) = static_dims(x, 2)
    return g.transpose(g.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _joined_heads(g: Any, x: Tensor) -> Tensor:
    batch, heads, length, width = x.shape.dims
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (batch, length, heads * width))


def _attend(
    g: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    bias: Tensor | None,
    allowed: Tensor | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """Return the attention of q, k and v, [batch, heads, sequence, head_dim]. Keys and values may have fewer heads."""
    groups = static_dims(q, 1)[0] // static_dims(k, 1)[0]
    if groups > 1:
        k, v = g.repeat(k, groups, 1), g.repeat(v, groups, 1)
    factor = scale or 1 / math.sqrt(static_dims(q, -1)[0])
    scores = g.mul(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), factor)
    scores = g.mul(g.tanh(g.div(scores, softcap)), softcap) if softcap else scores
    scores = scores if bias is None else g.add(scores, bias)
    scores = scores if allowed is None else g.where(allowed, scores, -math.inf)
    return g.matmul(g.softmax(scores, -1), v)


def _causal(g: Any, rows: Dim, columns: Dim) -> Tensor:
    """Return which keys a query may attend to. The queries are the last positions of the sequence."""
    last = g.add(g.iota((rows, 1), 0), extent(g, columns - rows, "i32"))
    return g.le(g.iota((1, columns), 1), last)


def _mask_bias(g: Any, mask: Tensor, total: Dim, filter_value: float, dtype: Any) -> Tensor:
    """Return the bias for a mask: keys `[batch, total]`, queries and keys `[batch, rows, total]`, or lengths `[batch]`."""
    if mask.shape.rank == 1:
        ends = g.reshape(g.cast(mask, "i32"), (-1, 1, 1, 1))
        seen = g.lt(g.iota((1, 1, 1, total), 3), ends)
    else:
        shape = (mask.shape.dims[0], *(1,) * (4 - mask.shape.rank), *mask.shape.dims[1:])
        seen = g.ne(g.reshape(mask, shape), 0)
    return g.where(seen, g.constant(0.0, dtype=dtype), filter_value)


def _sum(g: Any, *biases: Tensor | None) -> Tensor | None:
    total: Tensor | None = None
    for bias in biases:
        total = bias if total is None else total if bias is None else g.add(total, bias)
    return total


@imports("com.microsoft.Attention")
def attention(
    g: Any,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    added: Tensor | None = None,
    past_length: Tensor | None = None,
    *,
    outputs: int,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Any = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Tensor]:
    """Return the attention of one tensor. A product with joined weights gives the queries, keys and values."""
    if do_rotary or past_present_share_buffer:
        raise UnsupportedError("with rotations or a shared cache cannot be imported")
    (whole,) = static_dims(weights, 1)
    widths = qkv_hidden_sizes or (whole // 3,) * 3
    joined = g.matmul(x, weights)
    joined = joined if bias is None else g.add(joined, bias)
    starts = (0, widths[0], widths[0] + widths[1])
    parts = [g.narrow(joined, 2, at, width) for at, width in zip(starts, widths, strict=True)]
    q, k, v = (_split_heads(g, p, num_heads) for p in parts)
    if past is not None:
        k, v = (g.concat([g.squeeze(g.narrow(past, 0, i, 1), 0), t], 2) for i, t in enumerate((k, v)))
    rows, total = q.shape.dims[2], k.shape.dims[2]
    if mask is not None and mask.shape.rank == 1 and not dim.same(mask.shape.dims[0], x.shape.dims[0]):
        raise UnsupportedError("with a mask of ends and starts cannot be imported")
    masked = None if mask is None else _mask_bias(g, mask, total, mask_filter_value, x.dtype)
    allowed = _causal(g, rows, total) if unidirectional else None
    result = _joined_heads(g, _attend(g, q, k, v, scale, _sum(g, masked, added), allowed))
    return [result, g.stack([k, v], 0)][:outputs] if outputs > 1 else [result]


@imports("com.microsoft.MultiHeadAttention")
def multi_head_attention(
    g: Any,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    added: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    outputs: int,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Tensor]:
    """Return the attention of queries, keys and values. They may be one tensor `[batch, sequence, heads, 3, head_dim]`."""
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
        if bias is not None and tensor.shape.rank == 3:
            (width,) = static_dims(tensor, 2)
            tensors[i] = g.add(tensor, g.narrow(bias, 0, at, width))
            at += width
    q, k, v = (_split_heads(g, t, num_heads) if t.shape.rank == 3 else t for t in tensors)
    if past_key is not None and past_value is not None:
        k, v = g.concat([past_key, k], 2), g.concat([past_value, v], 2)
    rows, total = q.shape.dims[2], k.shape.dims[2]
    if mask is not None and mask.shape.rank == 1 and not dim.same(mask.shape.dims[0], q.shape.dims[0]):
        raise UnsupportedError("with a mask of ends and starts cannot be imported")
    masked = None if mask is None else _mask_bias(g, mask, total, mask_filter_value, q.dtype)
    allowed = _causal(g, rows, total) if unidirectional else None
    result = _joined_heads(g, _attend(g, q, k, v, scale, _sum(g, masked, added), allowed))
    return [result, k, v][:outputs]


@imports("com.microsoft.RotaryEmbedding")
def microsoft_rotary_embedding(
    g: Any,
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Apply rotary embeddings. Positions are given for each element, or as the first position of all sequences."""
    if is_packed_batching:
        raise UnsupportedError("of packed batches cannot be imported")
    batch, length = x.shape.dims[0], x.shape.dims[1 if x.shape.rank == 3 else 2]
    if positions.shape.rank == 1:
        row = g.add(g.iota((1, length), 1, positions.dtype), g.reshape(positions, (1, 1)))
        positions = g.broadcast_to(row, (batch, length))
    heads = num_heads
    if x.shape.rank == 3 and not heads:
        (width,) = static_dims(x, 2)
        heads = width // (2 * static_dims(cos, 1)[0])
    return rotary_embedding(
        g, x, cos, sin, positions, interleaved=interleaved, num_heads=heads, rotary_embedding_dim=rotary_embedding_dim
    )


def _cached(g: Any, past: Tensor | None, new: Tensor, starts: Tensor, room: Dim) -> Tensor:
    """Return a cache with the new rows of each sequence written at its start position."""
    if past is None:
        return new
    more = room - past.shape.dims[2]
    wide = past if dim.same(more, 0) else g.pad(past, [(0, 0), (0, 0), (0, more), (0, 0)])
    return tensor_scatter(g, wide, new, starts, axis=2)


def _parts(
    g: Any, query: Tensor, key: Tensor | None, value: Tensor | None, num_heads: int, kv_num_heads: int
) -> list[Tensor]:
    """Return queries, keys and values split into heads. They may be slices of one packed tensor."""
    if key is None or value is None:
        (whole,) = static_dims(query, 2)
        size = whole // (num_heads + 2 * kv_num_heads)
        ends = (num_heads * size, (num_heads + kv_num_heads) * size)
        parts = (query[..., : ends[0]], query[..., ends[0] : ends[1]], query[..., ends[1] :])
    else:
        parts = (query, key, value)
    return [_split_heads(g, t, n) for t, n in zip(parts, (num_heads, kv_num_heads, kv_num_heads), strict=True)]


@imports("com.microsoft.GroupQueryAttention")
def group_query_attention(
    g: Any,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total_length: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    added: Tensor | None = None,
    *,
    static: Static,
    outputs: int,
    kv_num_heads: int,
    num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> list[Tensor]:
    """Return causal attention. `lengths` are total lengths minus 1. New rows are written in place if the cache has room."""
    if smooth_softmax == 1:
        raise UnsupportedError("with a smooth softmax cannot be imported")
    q, k, v = _parts(g, query, key, value, num_heads, kv_num_heads)
    batch, rows = q.shape.dims[0], q.shape.dims[2]
    ends = g.add(g.reshape(g.cast(lengths, "i32"), (batch,)), 1)
    # A prompt starts at 0 even if the sequence is shorter: the remaining rows are padding at its end.
    starts = g.zeros((batch,), dtype="i32")
    if past_key is not None:
        starts = g.maximum(g.sub(ends, extent(g, rows, "i32")), starts)
    if do_rotary and cos is not None and sin is not None:
        positions = position_ids
        if positions is None:
            positions = g.add(g.reshape(starts, (batch, 1)), g.iota((1, rows), 1))
        q, k = (
            rotary_embedding(
                g,
                t,
                cos,
                sin,
                positions,
                interleaved=rotary_interleaved,
                rotary_embedding_dim=2 * static_dims(cos, 1)[0],
            )
            for t in (q, k)
        )
    room = rows if past_key is None else _room(past_key.shape.dims[2], rows, static[6])
    k, v = _cached(g, past_key, k, starts, room), _cached(g, past_value, v, starts, room)
    place = g.add(g.reshape(starts, (batch, 1, 1, 1)), g.iota((1, 1, rows, 1), 2))
    seen = g.iota((1, 1, 1, room), 3)
    allowed = g.le(seen, place)
    if local_window_size > 0:
        allowed = g.logical_and(allowed, g.gt(seen, g.sub(place, local_window_size)))
    result = _joined_heads(g, _attend(g, q, k, v, scale, added, allowed, softcap))
    return [result, k, v][:outputs]


def _room(past: Dim, rows: Dim, total: Any) -> Dim:
    """Return the length of the cache after the op. A cache with room for the total length keeps its length."""
    if total is None or isinstance(total, Unknown):
        return past + rows
    known = total.array.reshape(-1)[0] if not hasattr(total, "item") else int(total.item())
    return dim.maximum(past, known)
