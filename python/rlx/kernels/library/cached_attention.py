"""The kernel of attention of one query to a cache of keys and values, for the decoding of text.

The heads that share keys and values are computed together, so that the cache is read once. Scores of some keys at a time are
in scratch memory, with a running maximum as in the kernel for many queries. Blocks of a packed cache are converted to f32 in
registers. Their scales multiply the sum of a block of keys, and the weights of a block of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, greatest, product
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import exp2_of_nonpositive, tanh, transposed
from rlx.kernels.kernel import Kernel, KernelRegister, joined_in_pairs
from rlx.kernels.library.cache_rows import (
    KEYS_AT_ONCE,
    CachedBlocks,
    CachedFloats,
    CacheRows,
    cached_heads,
    has_caches_for_kernels,
    has_pages_for_kernels,
    row_elements,
    sizes_of_cache,
)
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_WIDEST = 256  # head
_MOST_HEADS = 16  # that share keys


def _takes(case: KernelCase) -> bool:
    q = case.tensors[0]
    heads, lanes = sizes_of_cache(case), case.cpu.lanes(f32)
    has_caches = has_pages_for_kernels(case) and has_caches_for_kernels(case)
    is_taken = has_caches and q.dims[1] == 1 and q.dtype is f32
    widths = (heads.head_dim, heads.value_dim)
    return is_taken and heads.group <= _MOST_HEADS and all(w % lanes == 0 and 0 < w <= _WIDEST for w in widths)


@kernel("cached_attention", name="decoding_attention", takes=_takes)
def decoding_attention(
    k: Kernel,
    q: Buffer,
    keys: Buffer,
    values: Buffer,
    start: Buffer,
    pages: Buffer | None,
    y: Buffer,
    *,
    num_heads: int,
    head_dim: int,
    window: int | None,
    score_scale: float | None,
    softcap: float | None,
    scheme: str | None,
) -> None:
    """Attention of one query of each text to the filled part of its cache."""
    kv_heads = row_elements(keys, scheme) // head_dim
    group = num_heads // kv_heads
    lanes, rows = k.cpu.lanes(f32), CacheRows(k, keys.shape[1], pages, keys.shape[0])
    sizes = _Sizes(lanes, group, head_dim, row_elements(values, scheme) // kv_heads)
    scale = head_dim**-0.5 if score_scale is None else score_scale
    caches = (cached_heads(k, keys, sizes.key, scheme), cached_heads(k, values, sizes.value, scheme))
    attention = _HeadGroup(k, sizes, (q.rows(), y.rows()), caches, scale, softcap)
    for n in k.parallel(product([q.shape[0], kv_heads])):
        b, h = n // kv_heads, n % kv_heads
        own = start[b].to(INDEX)
        first = k.index(0) if window is None else k.index(greatest(own - window, 0))
        attention.run(b, h, rows, first, k.least(own + 1, rows.keys))


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a group of heads: the lanes of a vector, the heads, and the widths of keys and values."""

    lanes: int
    heads: int
    key: int
    value: int


class _HeadGroup:
    """The code for the heads that share keys and values.

    Args:
        k: The kernel.
        sizes: Its sizes.
        tensors: Queries and results, as rows.
        caches: Keys and values.
        scale: The factor of the scores.
        softcap: The softcap of the scores, or None.
    """

    def __init__(
        self,
        k: Kernel,
        sizes: _Sizes,
        tensors: tuple[Buffer, Buffer],
        caches: tuple[CachedFloats | CachedBlocks, CachedFloats | CachedBlocks],
        scale: float,
        softcap: float | None,
    ) -> None:
        self.k, self.sizes, self.softcap = k, sizes, softcap
        self.q, self.y = tensors
        self.keys, self.values = caches
        # Scores are powers of 2, because these take less to compute.
        self.scale = scale if softcap is not None else scale * math.log2(math.e)
        self.queries = k.scratch(sizes.heads, sizes.key)
        self.products = k.scratch(sizes.heads * sizes.lanes, sizes.lanes)
        self.powers = k.scratch(sizes.heads, KEYS_AT_ONCE)
        self.sums = k.scratch(sizes.heads, sizes.value)
        if isinstance(self.values, CachedBlocks):
            self.value_scales = k.scratch(sizes.value // self.values.block, KEYS_AT_ONCE)
            self.scaled_powers = k.scratch(sizes.heads, KEYS_AT_ONCE)

    def run(self, b: Value, h: Value, rows: CacheRows, first: Value, stop: Value) -> None:
        """Emit the results of a group.

        Args:
            b: The entry of the batch.
            h: The group.
            rows: The positions of the keys.
            first: The first key that the query sees.
            stop: The end of these keys.
        """
        k, sizes, lanes = self.k, self.sizes, self.sizes.lanes
        for head in range(sizes.heads):
            for d in k.range(0, sizes.key, lanes):
                column = (h * sizes.heads + head) * sizes.key + d
                self.queries[head, k.at(d)] = self.q[b, k.at(column)] * self.scale
            for d in k.range(0, sizes.value, lanes):
                self.sums[head, k.at(d)] = k.constant(0.0, f32, lanes)
        tops = [k.register(k.constant(-math.inf, f32)) for _ in range(sizes.heads)]
        totals = [k.register(k.constant(0.0, f32, lanes)) for _ in range(sizes.heads)]
        for key in k.range(first // KEYS_AT_ONCE * KEYS_AT_ONCE, stop, KEYS_AT_ONCE):
            row, number = rows.row_of(b, key), k.least(KEYS_AT_ONCE, stop - key)
            following = rows.row_of(b, k.least(key + KEYS_AT_ONCE, k.index(rows.keys) - 1))
            for j in k.range(0, number, lanes):
                self._scores(row, h, j, number, first - key)
            fades = self._powers(number, tops, totals)
            self._add_values((row, following), h, number, fades)
        for head, total in enumerate(totals):
            whole = total.value.sum()
            # A query that sees no key is zero.
            factor = k.where(whole == 0.0, 0.0, 1.0 / whole).splat(lanes)
            for d in k.range(0, sizes.value, lanes):
                column = (h * sizes.heads + head) * sizes.value + d
                self.y[b, k.at(column)] = self.sums[head, k.at(d)] * factor

    def _scores(self, row: Value, h: Value, j: Value, number: Value, first: Value) -> None:
        """Store the scores of as many keys as a vector has lanes, minus infinity for those that the query does not see.

        Args:
            row: The row of the first key of those that are computed together.
            h: The group.
            j: The number of the first of the lanes among these keys.
            number: The end of the keys that the query sees.
            first: The first of them; it may be negative.
        """
        k, sizes, lanes = self.k, self.sizes, self.sizes.lanes
        # A loop over keys, although their number is known: LLVM would load all keys first, and spill them.
        for i in k.range(lanes):
            r = row + k.least(j + i, number - 1)
            totals = [k.register(k.constant(0.0, f32, lanes)) for _ in range(sizes.heads)]
            for block in k.range(sizes.key // self.keys.block):
                self._add_products(r, h, block, totals)
                self.values.prefetch(r, h, block)
            for head, total in enumerate(totals):
                self.products[i + head * lanes, k.at(0)] = total.value
        keys = k.constants(range(lanes), "index") + j
        is_inside = (keys < number) & (keys >= first)
        for head in range(sizes.heads):
            part = [self.products[head * lanes + i, k.at(0)] for i in range(lanes)]
            score = joined_in_pairs(transposed(part), k.join("add"))
            if self.softcap is not None:
                score = tanh(score * (1.0 / self.softcap)) * (self.softcap * math.log2(math.e))
            self.powers[head, k.at(j)] = k.where(is_inside, score, -math.inf)

    def _add_products(self, row: Value, h: Value, block: Value, totals: Sequence[KernelRegister]) -> None:
        """Add the products of a block of a key with all queries."""
        k, lanes, keys = self.k, self.sizes.lanes, self.keys
        vectors = keys.steps(row, h, block)
        scale = keys.scale(row, h, block).splat(lanes) if isinstance(keys, CachedBlocks) else None
        for head, total in enumerate(totals):
            queries = [self.queries[head, k.at(block * keys.block + i * lanes)] for i in range(len(vectors))]
            if scale is None:
                for vector, query in zip(vectors, queries, strict=True):
                    total.value = vector.fma(query, total.value)
                continue
            part = vectors[0] * queries[0]
            for vector, query in zip(vectors[1:], queries[1:], strict=True):
                part = vector.fma(query, part)
            total.value = part.fma(scale, total.value)

    def _powers(self, number: Value, tops: Sequence[KernelRegister], totals: Sequence[KernelRegister]) -> list[Value]:
        """Replace scores by powers of 2, add these to the sums, and return the factors of earlier sums."""
        k, lanes = self.k, self.sizes.lanes
        fades: list[Value] = []
        for head, (top, total) in enumerate(zip(tops, totals, strict=True)):
            best = k.register(k.constant(-math.inf, f32, lanes))
            for j in k.range(0, number, lanes):
                best.value = best.value.greater_or_second(self.powers[head, k.at(j)])
            old = top.value
            new = old.greater_or_second(best.value.joined(lambda a, b: a.greater_or_second(b)))
            # A query that has seen no key has no maximum yet.
            base = k.where(new == -math.inf, 0.0, new)
            fade = exp2_of_nonpositive((old - base).splat(lanes))
            total.value = total.value * fade
            for j in k.range(0, number, lanes):
                power = exp2_of_nonpositive(self.powers[head, k.at(j)] - base.splat(lanes))
                self.powers[head, k.at(j)] = power
                total.value = total.value + power
            top.value = new
            fades.append(fade)
        return fades

    def _add_values(self, rows: tuple[Value, Value], h: Value, number: Value, fades: Sequence[Value]) -> None:
        """Add values, weighted by the powers, to the faded sums: a block of columns for all heads at a time.

        Args:
            rows: The row of the first key of those that are computed together, and that of the next ones.
            h: The group.
            number: The number of keys.
            fades: The factors of the sums.
        """
        k, sizes, values, (row, following) = self.k, self.sizes, self.values, rows
        blocks = sizes.value // values.block
        if isinstance(values, CachedBlocks):
            for j in k.range(number):
                for block in range(blocks):
                    self.value_scales[block, j] = values.scale(row + j, h, k.index(block))
        for block in k.range(blocks):
            powers = self.powers
            if isinstance(values, CachedBlocks):
                powers = self._scaled_powers(block, number)
            self._add_columns((row, h, block), following, number, powers, fades)

    def _scaled_powers(self, block: Value, number: Value) -> Buffer:
        """Return the powers times the scales of a block of values."""
        k, lanes = self.k, self.sizes.lanes
        for j in k.range(0, number, lanes):
            scale = self.value_scales[block, k.at(j)]
            for head in range(self.sizes.heads):
                self.scaled_powers[head, k.at(j)] = self.powers[head, k.at(j)] * scale
        return self.scaled_powers

    def _add_columns(
        self,
        source: tuple[Value, Value, Value],
        following: Value,
        number: Value,
        powers: Buffer,
        fades: Sequence[Value],
    ) -> None:
        """Add the columns of a block, and ask the CPU to load the keys that are needed next."""
        k, lanes, values, (row, h, block) = self.k, self.sizes.lanes, self.values, source
        starts = range(0, values.block, lanes)
        # Vectors of columns whose sums are in registers: a power of 2, which divides their number.
        at_once = 1 << max(k.cpu.sums // self.sizes.heads, 1).bit_length() - 1
        for begin in range(0, len(starts), at_once):
            part = slice(begin, begin + at_once)
            places = [k.at(block * values.block + start) for start in starts[part]]
            sums = [[k.register(self.sums[head, place] * fade) for place in places] for head, fade in enumerate(fades)]
            for j in k.range(number):
                vectors = values.steps(row + j, h, block)[part]
                if begin == 0:
                    self.keys.prefetch(following + j, h, block)
                for head, of_head in enumerate(sums):
                    power = powers[head, j].splat(lanes)
                    for total, vector in zip(of_head, vectors, strict=True):
                        total.value = vector.fma(power, total.value)
            for head, of_head in enumerate(sums):
                for total, place in zip(of_head, places, strict=True):
                    self.sums[head, place] = total.value
