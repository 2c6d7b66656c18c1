"""The kernel of attention of one query to a cache of keys and values, for the decoding of text.

The heads that share keys and values are computed together, so that the cache is read once. Scores of some keys at a time are
in scratch memory, with a running maximum as in the kernel for many queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f16, f32
from rlx.kernels.buffer import Buffer, greatest, product
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import exp2_of_nonpositive, tanh, transposed
from rlx.kernels.kernel import Kernel, KernelRegister, joined_in_pairs
from rlx.kernels.library.cache_rows import KEYS_AT_ONCE, CacheRows, has_pages_for_kernels, sizes_of_cache
from rlx.kernels.library.narrow_floats import Floats, floats
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_WIDEST = 256  # head
_MOST_HEADS = 16  # that share keys


def _takes(case: KernelCase) -> bool:
    q, k, v = case.tensors[:3]
    heads, lanes = sizes_of_cache(case), case.cpu.lanes(f32)
    is_taken = (
        has_pages_for_kernels(case)
        and q.dims[1] == 1
        and q.dtype is f32
        and k.dtype is v.dtype
        and k.dtype in (f32, f16)
    )
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
) -> None:
    """Attention of one query of each text to the filled part of its cache."""
    key_width = keys.shape[2]
    assert isinstance(key_width, int)
    kv_heads = key_width // head_dim
    group = num_heads // kv_heads
    lanes, rows = k.cpu.lanes(f32), CacheRows(k, keys.shape[1], pages, keys.shape[0])
    value_width = values.shape[2]
    assert isinstance(value_width, int)
    sizes = _Sizes(lanes, group, head_dim, value_width // kv_heads)
    scale = head_dim**-0.5 if score_scale is None else score_scale
    attention = _HeadGroup(k, sizes, (q.rows(), floats(keys.rows()), floats(values.rows())), y.rows(), scale, softcap)
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
        tensors: Queries, keys and values, as rows.
        y: The results.
        scale: The factor of the scores.
        softcap: The softcap of the scores, or None.
    """

    def __init__(
        self,
        k: Kernel,
        sizes: _Sizes,
        tensors: tuple[Buffer, Floats, Floats],
        y: Buffer,
        scale: float,
        softcap: float | None,
    ) -> None:
        self.k, self.sizes, self.y, self.softcap = k, sizes, y, softcap
        self.q, self.keys, self.values = tensors
        # Scores are powers of 2, because these take less to compute.
        self.scale = scale if softcap is not None else scale * math.log2(math.e)
        self.queries = k.scratch(sizes.heads, sizes.key)
        self.powers = k.scratch(sizes.heads, KEYS_AT_ONCE)
        self.sums = k.scratch(sizes.heads, sizes.value)

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
            for j in k.range(0, number, lanes):
                self._scores(row, h, j, number, first - key)
            fades = self._powers(number, tops, totals)
            self._add_values(row, h, number, fades)
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
        rows = [row + k.least(j + i, number - 1) for i in range(lanes)]
        # Two keys at a time, with a sum for each head.
        parts: list[list[Value]] = [[] for _ in range(sizes.heads)]
        for r in rows:
            totals = [k.register(k.constant(0.0, f32, lanes)) for _ in range(sizes.heads)]
            for d in k.range(0, sizes.key, lanes):
                vector = self.keys[r, k.at(h * sizes.key + d)]
                for head, total in enumerate(totals):
                    total.value = vector.fma(self.queries[head, k.at(d)], total.value)
            for part, total in zip(parts, totals, strict=True):
                part.append(total.value)
        keys = k.constants(range(lanes), "index") + j
        is_inside = (keys < number) & (keys >= first)
        for head, part in enumerate(parts):
            score = joined_in_pairs(transposed(part), k.join("add"))
            if self.softcap is not None:
                score = tanh(score * (1.0 / self.softcap)) * (self.softcap * math.log2(math.e))
            self.powers[head, k.at(j)] = k.where(is_inside, score, -math.inf)

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

    def _add_values(self, row: Value, h: Value, number: Value, fades: Sequence[Value]) -> None:
        """Add values, weighted by the powers, to the faded sums: a vector of columns for all heads at a time."""
        k, sizes, lanes = self.k, self.sizes, self.sizes.lanes
        for d in k.range(0, sizes.value, lanes):
            sums = [k.register(self.sums[head, k.at(d)] * fade) for head, fade in enumerate(fades)]
            for j in k.range(number):
                vector = self.values[row + j, k.at(h * sizes.value + d)]
                for head, total in enumerate(sums):
                    total.value = vector.fma(self.powers[head, j].splat(lanes), total.value)
            for head, total in enumerate(sums):
                self.sums[head, k.at(d)] = total.value
