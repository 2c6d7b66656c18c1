"""Patterns for attention with scaled queries or keys, repeated heads, or heads that are split and joined."""

from __future__ import annotations

import math
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.origins import without_scale
from rlx.passes.pattern import Rewriter, feeder, pattern, producer

_HEADS_FIRST = (0, 2, 1, 3)  # [B, S, H, D] to [B, H, S, D], and back


@pattern
def scaled_operands(op: views.Attention, rewriter: Rewriter) -> Any:
    """Queries or keys that are multiplied by a number: the factor becomes part of the scale of the scores."""
    scale = op.head_dim**-0.5 if op.score_scale is None else op.score_scale
    query, key = _descaled(rewriter, op.q), _descaled(rewriter, op.k)
    if query is None and key is None:
        return None
    q, query_scale = query or (op.q, 1.0)
    k, key_scale = key or (op.k, 1.0)
    scale *= query_scale * key_scale
    usual = math.isclose(scale, op.head_dim**-0.5, rel_tol=1e-6)
    attributes = {**op.attributes, "score_scale": None if usual else scale}
    return rewriter.emit("attention", [q, k, op.v, op.mask], **attributes)


def _descaled(rewriter: Rewriter, value: mlir.Value) -> tuple[Any, float] | None:
    """Return the factor of a value and the value without it, also through a transpose or reshape."""
    scaled = without_scale(value)
    if scaled is not None:
        return scaled if scaled[0].type == value.type and math.isfinite(scaled[1]) else None
    view = producer(value, views.Transpose) or producer(value, views.Reshape)
    inner = None if view is None else _descaled(rewriter, view.x)
    if view is None or inner is None:
        return None
    return rewriter.emit(view.spec.name, [inner[0]], **view.attributes), inner[1]


@pattern
def grouped_heads(op: views.Attention, rewriter: Rewriter) -> Any:
    """Keys and values with consecutively repeated heads: `attention` reads each head for a group of queries."""
    if shape_of(op.q).rank != 4:
        return None
    key, value = _unrepeated(rewriter, op.k), _unrepeated(rewriter, op.v)
    if key is None or value is None or shape_of(key).dims[1] != shape_of(value).dims[1]:
        return None
    return rewriter.emit("attention", [op.q, key, value, op.mask], **op.attributes)


def _unrepeated(rewriter: Rewriter, value: mlir.Value) -> Any:
    """Return `[B, Hkv, T, D]` for `[B, H, T, D]` with repeated heads, before or after a transpose."""
    transpose = producer(value, views.Transpose)
    if transpose is not None and tuple(transpose.perm) == _HEADS_FIRST:
        source = _before_repeat(transpose.x, 2)
        return (
            None if source is None else rewriter.emit("transpose", [_without(rewriter, source, 3)], perm=_HEADS_FIRST)
        )
    source = _before_repeat(value, 1)
    return None if source is None else _without(rewriter, source, 2)


def _before_repeat(value: mlir.Value, axis: int) -> mlir.Value | None:
    """Return the heads `[…, Hkv, 1, …]` that are repeated to `[…, Hkv, G, …]` and joined to `[…, H, …]`."""
    joined = producer(value, views.Reshape)
    expand = None if joined is None else producer(joined.x, views.Expand)
    if joined is None or expand is None:
        return None
    dims, repeated, source = shape_of(value).dims, shape_of(joined.x).dims, shape_of(expand.x).dims
    if len(dims) != 4 or len(repeated) != 5 or len(source) != 5:
        return None
    same = repeated[: axis + 1] == source[: axis + 1] and repeated[axis + 2 :] == source[axis + 2 :]
    kept = dims[:axis] == repeated[:axis] and dims[axis + 1 :] == repeated[axis + 2 :]
    return expand.x if same and kept and source[axis + 1] == 1 else None


def _without(rewriter: Rewriter, value: mlir.Value, axis: int) -> Any:
    dims = shape_of(value).dims
    return rewriter.emit("reshape", [value], shape=(*dims[:axis], *dims[axis + 1 :]))


@pattern
def packed_heads(op: views.Reshape, rewriter: Rewriter) -> Any:
    """Heads that are split off `[B, S, H·D]` before an attention and joined after it: attention takes them packed."""
    merged = feeder(op, op.x, views.Transpose)
    attention = None if merged is None else feeder(merged, merged.x, views.Attention)
    if merged is None or attention is None or tuple(merged.perm) != _HEADS_FIRST or shape_of(attention.q).rank != 4:
        return None
    rows, heads, queries, width = shape_of(attention.result).dims
    if shape_of(op.result).dims != (rows, queries, heads * width):
        return None
    packed = [_unsplit(v) for v in (attention.q, attention.k, attention.v)]
    if any(v is None for v in packed):
        return None
    return rewriter.emit("attention", [*packed, attention.mask], **attention.attributes)


def _unsplit(value: mlir.Value) -> mlir.Value | None:
    """Return `[B, S, H·D]` if `[B, H, S, D]` are its heads."""
    transpose = producer(value, views.Transpose)
    split = None if transpose is None else producer(transpose.x, views.Reshape)
    if transpose is None or split is None or tuple(transpose.perm) != _HEADS_FIRST:
        return None
    rows, length, heads, width = shape_of(split.result).dims
    return split.x if shape_of(split.x).dims == (rows, length, heads * width) else None
