"""Caches of keys and values that are partly filled: writing rows, and attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import ARITHMETIC, FLOATS, f32, i32, i64, u8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops.attention.heads import Heads
from rlx.ops.lift import cast, same_dtype, tensor_like
from rlx.ops.quantization.packed import row_elements, scheme_of
from rlx.ops.shape.index import clamp, clamp_indices
from rlx.support.errors import ShapeError


class UpdateCache(Card, op="update_cache"):
    def infer(self, cache: Shape, rows: Shape, start: Shape, pages: Shape | None) -> Shape:
        same_dtype(cache, rows)
        shown = "cache [B, T, W]" if pages is None else "cache [P, T, W]"
        fits = cache.rank == rows.rank == 3 and cache.dims[2] == rows.dims[2]
        if not fits or (pages is None and cache.dims[0] != rows.dims[0]):
            raise ShapeError(f"expected {shown} and rows [B, S, W], got {cache} and {rows}")
        batch = rows.dims[0]
        if type(batch) is not int:
            raise ShapeError(f"the number of texts must be an integer, got {batch}")
        if start.dims != (batch,):
            raise ShapeError(f"start must be [{batch}], one position for each text, got {start}")
        if pages is not None:
            _check_page_count(cache, "cache")
            if pages.dims != (batch,):
                raise ShapeError(f"pages must be [{batch}], one page for each text, got {pages}")
        (_, length, _), (_, count, _) = cache.dims, rows.dims
        if type(length) is int and type(count) is int and count > length:
            raise ShapeError(f"{count} rows do not fit into a cache of {length}")
        return cache

    def requires(self, cache: Shape, rows: Shape, start: Shape, pages: Shape | None) -> Iterable[tuple[Dim, str]]:
        yield cache.dims[1] - rows.dims[1], f"rows {rows} do not fit into the cache {cache}"

    def evaluate(self, cache: np.ndarray, rows: np.ndarray, start: np.ndarray, pages: np.ndarray | None) -> np.ndarray:
        result, count = cache.copy(), rows.shape[1]
        entries = range(len(cache)) if pages is None else clamp(pages, len(cache))
        firsts = np.clip(start, 0, cache.shape[1] - count)
        for part, entry, first in zip(rows, entries, firsts, strict=True):
            result[entry, first : first + count] = part
        return result

    def decompose(self, b: Builder, cache: Tensor, rows: Tensor, start: Tensor, pages: Tensor | None) -> Tensor:
        (pool, length, _), (batch, count, _) = cache.shape.dims, rows.shape.dims
        first = b.reshape(clamp_indices(b, start, length - count + 1), (batch, 1))
        places = first + b.reshape(b.iota((count,), dtype=i64), (1, count))
        if pages is None:
            entries = b.iota((batch, count), axis=0, dtype=i64)
        else:
            entries = b.expand(b.reshape(clamp_indices(b, pages, pool), (batch, 1)), (batch, count))
        return b.scatter_nd(cache, b.stack([entries, places], axis=-1), rows, reduction="set")

    def build(
        self,
        b: Builder,
        cache: Tensor,
        rows: TensorLike,
        start: TensorLike,
        pages: TensorLike | None = None,
        scheme: str | None = None,
    ) -> Tensor:
        """Rows of floats are packed for a cache that is packed in the format `scheme`."""
        own = None if pages is None else tensor_like(b, pages, i32)
        if scheme is not None:
            rows = tensor_like(b, rows, f32)
            if not rows.dtype.is_float:
                raise ShapeError(
                    f"rows of floats are packed, got {rows.shape}", hint="leave out scheme for packed rows"
                )
            rows = b.emit("quantize_packed", (cast(b, rows, f32),), scheme=scheme)
        return b.emit("update_cache", (cache, tensor_like(b, rows, cache.dtype), tensor_like(b, start, i32), own))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 2 * operands[1].size_bytes)

    def samples(self) -> Iterable[OpSample]:
        def case(cache: tuple[int | str, ...], count: int | str, last: int, *texts: int) -> tuple[Any, ...]:
            batch = (*texts, cache[0])[0]
            start = SampleOperand((batch,), "i32", low=-2, high=last)
            pages = SampleOperand((batch,), "i32", low=-1, high=6) if texts else None
            return SampleOperand(cache), SampleOperand((batch, count, cache[2])), start, pages

        yield sample(*case((2, 7, 5), 3, 9), dtypes=ARITHMETIC)
        yield sample(*case((1, 9, 4), 1, 9), dtypes=("f32", "f16"))
        yield sample(*case((1, "t+s", 4), "s", 6), dtypes=("f32",))
        yield sample(*case((3, 4, 2), 4, 2), dtypes=("f32",))
        yield sample(*case((0, 4, 2), 0, 2), dtypes=("f32",))
        yield sample(*case((5, 4, 3), 2, 4, 2), dtypes=("f32", "f16", "i8", "u8"))
        yield sample(*case((3, "t+s", 4), "s", 6, 4), dtypes=("f32",))
        yield sample(*case(("p", 4, 2), 1, 6, 1), dtypes=("f32",))


class CachedAttention(Card, op="cached_attention"):
    def infer(
        self,
        q: Shape,
        k: Shape,
        v: Shape,
        start: Shape,
        pages: Shape | None,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None,
        score_scale: float | None,
        softcap: float | None,
        scheme: str | None,
    ) -> Shape:
        if q.rank != 3:
            raise ShapeError(f"q must be [B, S, {num_heads}·{head_dim}], got {q}")
        heads = heads_of_cache(q, k, v, pages, num_heads, head_dim, scheme)
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
        pages: Tensor | None,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None,
        score_scale: float | None,
        softcap: float | None,
        scheme: str | None,
    ) -> Tensor:
        if pages is not None:
            k, v = (_rows_of_pages(b, cache, pages) for cache in (k, v))
        if scheme is not None:
            k, v = (b.emit("dequantize_packed", (cache,), scheme=scheme) for cache in (k, v))
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
        pages: TensorLike | None = None,
        *,
        num_heads: int,
        head_dim: int,
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
        scheme: str | None = None,
    ) -> Tensor:
        return b.emit(
            "cached_attention",
            (q, k, v, tensor_like(b, start, i32), None if pages is None else tensor_like(b, pages, i32)),
            num_heads=num_heads,
            head_dim=head_dim,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
            scheme=scheme,
        )

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        q, k, v, start, *pages = operands
        keys = k.dims[1]
        if pages:
            keys = keys * pages[0].dims[1]
            k, v = (x.with_dims((q.dims[0], keys, x.dims[2])) for x in (k, v))
        flops = 2 * results[0].num_elements * keys + 2 * q.num_elements * keys
        return Cost(flops, moved_bytes((q, k, v, start, *pages), results))

    def samples(self) -> Iterable[OpSample]:
        def case(
            q: tuple[int | str, ...],
            k: tuple[int | str, ...],
            v: tuple[int | str, ...],
            last: int,
            table: int | str | None = None,
        ) -> tuple[Any, ...]:
            start = SampleOperand(q[:1], "i32", low=0, high=last)
            pages = None if table is None else SampleOperand((q[0], table), "i32", low=-1, high=6)
            return SampleOperand(q), SampleOperand(k), SampleOperand(v), start, pages

        yield sample(*case((2, 3, 12), (2, 9, 12), (2, 9, 12), 7), num_heads=3, head_dim=4, dtypes=FLOATS)
        yield sample(*case((2, 1, 16), (2, 20, 8), (2, 20, 6), 20), num_heads=4, head_dim=4, window=5, dtypes=("f32",))
        yield sample(
            *case((1, "s", 8), (1, "t", 8), (1, "t", 8), 4),
            num_heads=2,
            head_dim=4,
            score_scale=0.3,
            softcap=1.5,
            dtypes=("f32",),
        )
        yield sample(*case((2, 3, 8), (5, 4, 8), (5, 4, 8), 8, 3), num_heads=2, head_dim=4, dtypes=("f32", "f16"))
        yield sample(
            *case((2, "s", 16), (3, 4, 8), (3, 4, 6), 9, "n"), num_heads=4, head_dim=4, window=4, dtypes=("f32",)
        )
        yield from self._packed_samples()

    def _packed_samples(self) -> Iterable[OpSample]:
        # Without the top bits, so that the scales are finite.
        for dims, table in (((2, 5), None), ((3, 4), 2)):
            cache = SampleOperand((*dims, 68), "u8", low=0, high=64)
            pages = None if table is None else SampleOperand((2, table), "i32", low=-1, high=6)
            yield sample(
                *((2, 1, 128), cache, cache, SampleOperand((2,), "i32", low=0, high=7), pages),
                num_heads=4,
                head_dim=32,
                scheme="q8_0",
                dtypes=("f32", "f16"),
            )


def heads_of_cache(
    q: Shape, k: Shape, v: Shape, pages: Shape | None, num_heads: int, head_dim: int, scheme: str | None
) -> Heads:
    """Return the sizes of a call of `cached_attention`. The keys of an entry are those of all its pages.

    Raises:
        ShapeError: The operands do not fit together.
    """
    k, v = (_unpacked(x, name, scheme).with_dtype(q.dtype) for x, name in ((k, "k"), (v, "v")))
    heads = _heads(q, k, v, pages, num_heads, head_dim)
    for name, lanes in (("k", head_dim), ("v", heads.value_dim)):
        if scheme is not None and lanes % scheme_of(scheme).block:
            block = f"blocks of {scheme_of(scheme).block} elements"
            raise ShapeError(f"{name}: heads of {lanes} elements do not divide into {block}, those of {scheme}")
    return heads


def _unpacked(x: Shape, name: str, scheme: str | None) -> Shape:
    """Return the shape of a cache with elements instead of bytes."""
    if (scheme is not None) != (x.dtype is u8):
        hint = "give the format of packed rows: scheme='q8_0'" if scheme is None else None
        expected = "floats" if scheme is None else f"packed bytes (u8), since scheme is {scheme!r}"
        raise ShapeError(f"{name} must hold {expected}, got {x}", hint=hint)
    if scheme is None or not x.rank:
        return x
    return x.with_dims((*x.dims[:-1], row_elements(scheme_of(scheme), x.dims[-1])))


def _heads(q: Shape, k: Shape, v: Shape, pages: Shape | None, num_heads: int, head_dim: int) -> Heads:
    if pages is None:
        return Heads(q, k, v, num_heads, head_dim)
    if k.rank != 3 or v.rank != 3 or k.dims[:2] != v.dims[:2]:
        raise ShapeError(f"with pages, k must be [P, T, Hkv·{head_dim}] and v [P, T, Hkv·Dv], got {k} and {v}")
    _check_page_count(k, "k")
    if pages.rank != 2 or pages.dims[0] != q.dims[0]:
        raise ShapeError(f"pages must be [{q.dims[0]}, N], a list of pages for each entry of q {q}, got {pages}")
    own_k, own_v = (x.with_dims((q.dims[0], pages.dims[1] * x.dims[1], x.dims[2])) for x in (k, v))
    return Heads(q, own_k, own_v, num_heads, head_dim)


def _check_page_count(cache: Shape, name: str) -> None:
    if cache.dims[0] == 0:
        raise ShapeError(f"{name} must have at least one page, got {cache}")


def _rows_of_pages(b: Builder, cache: Tensor, pages: Tensor) -> Tensor:
    """Return the rows of the pages of each entry, `[B, N·T, W]`."""
    (_, length, width), (batch, count) = cache.shape.dims, pages.shape.dims
    return b.reshape(b.gather(cache, pages, axis=0), (batch, count * length, width))
