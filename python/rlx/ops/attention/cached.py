"""Caches of keys and values that are partly filled: writing rows, and attention."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import ARITHMETIC, FLOATS, i32, i64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops.attention.heads import Heads
from rlx.ops.lift import cast, same_dtype, tensor_like
from rlx.ops.shape.index import clamp_indices
from rlx.support.errors import ShapeError


class UpdateCache(Card, op="update_cache"):
    def infer(self, cache: Shape, rows: Shape, start: Shape) -> Shape:
        same_dtype(cache, rows)
        if cache.rank != 3 or rows.rank != 3 or cache.dims[::2] != rows.dims[::2]:
            raise ShapeError(f"expected cache [B, T, W] and rows [B, S, W], got {cache} and {rows}")
        if type(cache.dims[0]) is not int:
            raise ShapeError(f"the number of texts must be an integer, got {cache.dims[0]}")
        if start.dims != cache.dims[:1]:
            raise ShapeError(f"start must be [{cache.dims[0]}], one position for each text, got {start}")
        (_, length, _), (_, count, _) = cache.dims, rows.dims
        if type(length) is int and type(count) is int and count > length:
            raise ShapeError(f"{count} rows do not fit into a cache of {length}")
        return cache

    def requires(self, cache: Shape, rows: Shape, start: Shape) -> Iterable[tuple[Dim, str]]:
        yield cache.dims[1] - rows.dims[1], f"rows {rows} do not fit into the cache {cache}"

    def evaluate(self, cache: np.ndarray, rows: np.ndarray, start: np.ndarray) -> np.ndarray:
        result, count = cache.copy(), rows.shape[1]
        for b, first in enumerate(np.clip(start, 0, cache.shape[1] - count)):
            result[b, first : first + count] = rows[b]
        return result

    def decompose(self, b: Builder, cache: Tensor, rows: Tensor, start: Tensor) -> Tensor:
        (batch, length, _), count = cache.shape.dims, rows.shape.dims[1]
        first = b.reshape(clamp_indices(b, start, length - count + 1), (batch, 1))
        places = first + b.reshape(b.iota((count,), dtype=i64), (1, count))
        entries = b.iota((batch, count), axis=0, dtype=i64)
        return b.scatter_nd(cache, b.stack([entries, places], axis=-1), rows, reduction="set")

    def build(self, b: Builder, cache: Tensor, rows: TensorLike, start: TensorLike) -> Tensor:
        return b.emit("update_cache", (cache, tensor_like(b, rows, cache.dtype), tensor_like(b, start, i32)))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 2 * operands[1].size_bytes)

    def samples(self) -> Iterable[OpSample]:
        def case(cache: tuple[int | str, ...], count: int | str, last: int) -> tuple[SampleOperand, ...]:
            start = SampleOperand(cache[:1], "i32", low=-2, high=last)
            return SampleOperand(cache), SampleOperand((cache[0], count, cache[2])), start

        yield sample(*case((2, 7, 5), 3, 9), dtypes=ARITHMETIC)
        yield sample(*case((1, 9, 4), 1, 9), dtypes=("f32", "f16"))
        yield sample(*case((1, "t+s", 4), "s", 6), dtypes=("f32",))
        yield sample(*case((3, 4, 2), 4, 2), dtypes=("f32",))
        yield sample(*case((0, 4, 2), 0, 2), dtypes=("f32",))


class CachedAttention(Card, op="cached_attention"):
    def infer(
        self,
        q: Shape,
        k: Shape,
        v: Shape,
        start: Shape,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None,
        score_scale: float | None,
        softcap: float | None,
    ) -> Shape:
        if q.rank != 3:
            raise ShapeError(f"q must be [B, S, {num_heads}·{head_dim}], got {q}")
        heads = Heads(q, k.with_dtype(q.dtype), v.with_dtype(q.dtype), num_heads, head_dim)
        if start.dims != q.dims[:1]:
            raise ShapeError(f"start must be [{q.dims[0]}], one position for each entry of q {q}, got {start}")
        return q.with_dims((*q.dims[:-1], num_heads * heads.value_dim))

    def decompose(
        self,
        b: Builder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        start: Tensor,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None,
        score_scale: float | None,
        softcap: float | None,
    ) -> Tensor:
        batch, queries, keys = q.shape.dims[0], q.shape.dims[1], k.shape.dims[1]
        square: tuple[Dim, ...] = (1, 1, queries, keys)
        own = b.reshape(start, (batch, 1, 1, 1)) + b.iota(square, axis=2, dtype="i32")
        distance = own - b.iota(square, axis=3, dtype="i32")
        seen = distance >= 0
        if window is not None:
            seen = seen & (distance <= window)
        return b.attention(
            q,
            cast(b, k, q.dtype),
            cast(b, v, q.dtype),
            seen,
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind="custom",
            score_scale=score_scale,
            softcap=softcap,
        )

    def build(
        self,
        b: Builder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        start: TensorLike,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        return b.emit(
            "cached_attention",
            (q, k, v, tensor_like(b, start, i32)),
            num_heads=num_heads,
            head_dim=head_dim,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
        )

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        q, k = operands[:2]
        flops = 2 * results[0].num_elements * k.dims[1] + 2 * q.num_elements * k.dims[1]
        return Cost(flops, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(
            q: tuple[int | str, ...], k: tuple[int | str, ...], v: tuple[int | str, ...], heads: int, last: int
        ) -> tuple[SampleOperand, ...]:
            start = SampleOperand(q[:1], "i32", low=0, high=last)
            return SampleOperand(q), SampleOperand(k), SampleOperand(v), start

        yield sample(*case((2, 3, 12), (2, 9, 12), (2, 9, 12), 3, 7), num_heads=3, head_dim=4, dtypes=FLOATS)
        yield sample(
            *case((2, 1, 16), (2, 20, 8), (2, 20, 6), 4, 20), num_heads=4, head_dim=4, window=5, dtypes=("f32",)
        )
        yield sample(
            *case((1, "s", 8), (1, "t", 8), (1, "t", 8), 2, 4),
            num_heads=2,
            head_dim=4,
            score_scale=0.3,
            softcap=1.5,
            dtypes=("f32",),
        )
