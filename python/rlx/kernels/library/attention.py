"""The kernel of attention: softmax(q·kᵀ)·v with a running maximum, so that no matrix of scores is in memory.

A lane of a vector is a query. The maxima and sums of a query then need no step across lanes, and keys and values are read in
their own order, one element for all queries at a time. The running softmax is that of Dao and others, FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.ir.dtype import f32, i32
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import KernelCase
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import exp2_of_nonpositive, transposed
from rlx.kernels.kernel import Kernel, KernelRegister
from rlx.kernels.library.cache_rows import (
    BLOCK,
    KEYS_AT_ONCE,
    CacheRows,
    has_caches_for_kernels,
    has_pages_for_kernels,
    row_elements,
    sizes_of_cache,
    unpacked_tile,
)
from rlx.kernels.library.narrow_floats import Floats, floats
from rlx.kernels.machine import LARGEST_SCRATCH
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.attention.heads import Heads

_AT_ONCE = 4  # keys, or columns of values, whose sums are in registers
_WIDEST = 256  # head
_MASK_DTYPES = ("f32", "bool", "i8", "u8", "i32", "i64")


def heads_of(case: KernelCase) -> Heads:
    q, k, v = case.tensors[:3]
    return Heads(
        q, k.with_dtype(q.dtype), v.with_dtype(q.dtype), case.attributes["num_heads"], case.attributes["head_dim"]
    )


def _takes(case: KernelCase) -> bool:
    heads, mask = heads_of(case), case.operands[3]
    is_taken = all(shape.dtype is f32 for shape in case.tensors[:3]) and case.attributes["softcap"] is None
    widths = [w for w in (heads.head_dim, heads.value_dim) if isinstance(w, int)]
    if not is_taken or len(widths) != 2 or max(widths) > _WIDEST or _vectors(case.cpu, sum(widths)) < 1:
        return False
    if mask is None:
        return True
    assert isinstance(mask, Shape)
    is_for_all_queries = mask.rank < 2 or mask.dims[-2] == 1 or (mask.rank == 2 and _is_custom(case.attributes))
    return mask.dtype.name in _MASK_DTYPES and is_for_all_queries


def _vectors(cpu: CpuModel, widths: int, tiles: int = 0) -> int:
    """The vectors of queries of a workgroup, for which there are registers and scratch memory.

    Args:
        cpu: The CPU.
        widths: The elements of a query and of a value.
        tiles: The elements of other scratch memory.
    """
    floats_of_lane = widths + KEYS_AT_ONCE
    fitting = (LARGEST_SCRATCH // 4 - tiles) // (cpu.lanes(f32) * floats_of_lane)
    return min(4 if cpu.registers >= 32 else 3, fitting)


def _tile_elements(width: int) -> int:
    """The elements of scratch memory for unpacked keys and values, with heads of a width."""
    return _AT_ONCE * width + KEYS_AT_ONCE * BLOCK


def _is_custom(attributes: Mapping[str, Any]) -> bool:
    return attributes["mask_kind"] == "custom"


def _pays(case: KernelCase) -> bool:
    """Whether there are enough queries to fill two vectors, unless their number is unknown."""
    queries = heads_of(case).queries
    return not isinstance(queries, int) or queries >= 2 * case.cpu.lanes(f32)


@kernel("attention", takes=_takes, pays=_pays)
def flash_attention(
    k: Kernel, q: Buffer, keys: Buffer, values: Buffer, mask: Buffer | None, y: Buffer, **attributes: Any
) -> None:
    """Attention for blocks of queries of one head."""
    _Block(k, (q, keys, values, y), mask, attributes).run_all()


def _takes_cache(case: KernelCase) -> bool:
    heads = sizes_of_cache(case)
    is_taken = case.tensors[0].dtype is f32 and case.attributes["softcap"] is None
    widths = [w for w in (heads.head_dim, heads.value_dim) if isinstance(w, int)]
    if not is_taken or len(widths) != 2 or max(widths) > _WIDEST:
        return False
    tiles = 0 if case.attributes["scheme"] is None else _tile_elements(heads.head_dim)
    return has_pages_for_kernels(case) and has_caches_for_kernels(case) and _vectors(case.cpu, sum(widths), tiles) >= 1


def _has_several_queries(case: KernelCase) -> bool:
    return case.tensors[0].dims[1] != 1


@kernel("cached_attention", name="flash_cached_attention", takes=_takes_cache, pays=_has_several_queries)
def flash_cached_attention(
    k: Kernel,
    q: Buffer,
    keys: Buffer,
    values: Buffer,
    start: Buffer,
    pages: Buffer | None,
    y: Buffer,
    **attributes: Any,
) -> None:
    """Attention for blocks of queries of one head to the filled part of a cache."""
    kind = "causal" if attributes["window"] is None else "sliding_window"
    options = attributes | {"mask_kind": kind, "empty_rows": "zeros"}
    rows = CacheRows(k, keys.shape[1], pages, keys.shape[0])
    _Block(k, (q, keys, values, y), None, options, _FilledCache(start, rows)).run_all()


@dataclass(frozen=True)
class _FilledCache:
    """A cache: the position of the first query of each entry, and those of the keys in memory."""

    starts: Buffer
    rows: CacheRows


class _Block:
    """The computation for a block of queries.

    Args:
        k: The kernel.
        tensors: Queries, keys, values and results, all `[B, S, H·D]` or all `[B, H, S, D]`.
        mask: The mask, which is the same for all queries, or None.
        attributes: The attributes of the op.
        cache: The cache with the keys and values; None if all keys are in order, and the queries are the last positions.
    """

    def __init__(
        self,
        k: Kernel,
        tensors: tuple[Buffer, ...],
        mask: Buffer | None,
        attributes: Mapping[str, Any],
        cache: _FilledCache | None = None,
    ) -> None:
        q, keys, values, _ = tensors
        self.cache = cache
        self.k, self.mask, self.attributes = k, mask, attributes
        self.num_heads, self.dim = attributes["num_heads"], attributes["head_dim"]
        self.packed = q.rank == 3
        self.batch, self.queries = q.shape[0], q.shape[-2]
        self.count = keys.shape[-2] if cache is None else cache.rows.keys
        scheme = None if cache is None else attributes["scheme"]
        kv_heads = row_elements(keys, scheme) // self.dim if self.packed else keys.shape[1]
        value_width = row_elements(values, scheme) // kv_heads if self.packed else values.shape[-1]
        assert isinstance(kv_heads, int) and isinstance(value_width, int)
        self.kv_heads, self.value_dim = kv_heads, value_width
        self.q, self.y = q.rows(), tensors[3].rows()
        self.keys, self.values = floats(keys.rows()), floats(values.rows())
        self.key_tile = self.value_tile = None
        if scheme is not None:
            self.key_tile = unpacked_tile(k, keys, self.dim, (_AT_ONCE, self.dim))
            self.value_tile = unpacked_tile(k, values, value_width, (KEYS_AT_ONCE, BLOCK))
        self.lanes = k.cpu.lanes(f32)
        tiles = 0 if scheme is None else _tile_elements(self.dim)
        self.vectors = _vectors(k.cpu, self.dim + self.value_dim, tiles)
        self.width = self.vectors * self.lanes
        self.query_columns = k.scratch(self.dim, self.width)
        self.powers = k.scratch(KEYS_AT_ONCE, self.width)
        self.sums = k.scratch(self.value_dim, self.width)
        # Scores are powers of 2, because these take less to compute.
        scale = attributes["score_scale"]
        self.scale = (self.dim**-0.5 if scale is None else scale) * math.log2(math.e)

    def run_all(self) -> None:
        """Emit the loop over all blocks."""
        blocks = (self.queries + (self.width - 1)) // self.width
        for n in self.k.parallel(product([self.batch, self.num_heads, blocks])):
            self.run(n // blocks // self.num_heads, n // blocks % self.num_heads, n % blocks * self.width)

    def _position(self, b: Value, query: Value) -> Value:
        """The position of a query of an entry of the batch among the keys."""
        if self.cache is None:
            return query + (self.count - self.queries)
        return query + self.cache.starts[b].to(INDEX)

    def _key_row(self, b: Value, h: Value, key: Value) -> Value:
        """The row of the first key of those that are computed together."""
        if self.cache is None:
            return self._row(b, h, self.kv_heads, self.count) + key
        return self.cache.rows.row_of(b, key)

    def run(self, b: Value, h: Value, first: Value) -> None:
        """Emit the results of the queries from `first` on, of head `h` of batch entry `b`."""
        k, zero, least = self.k, self._all(0.0), self._all(-math.inf)
        group = self.num_heads // self.kv_heads
        self._load_queries(self._row(b, h, self.num_heads, self.queries), self._column(h, self.dim), first)
        for d in k.range(self.value_dim):
            for u in range(self.vectors):
                self.sums[d, k.at(u * self.lanes)] = zero
        tops = [k.register(least) for _ in range(self.vectors)]
        totals = [k.register(zero) for _ in range(self.vectors)]
        start, stop = self._seen(self._position(b, first))
        for key in k.range(start, stop, KEYS_AT_ONCE):
            row, number = self._key_row(b, h // group, key), k.least(KEYS_AT_ONCE, k.index(stop) - key)
            before = [top.value for top in tops]
            for j, many in self._groups(number):
                self._scores((b, h, first), (row, h // group), key, j, many, tops)
            # A query that has seen no key has no maximum yet.
            bases = [k.where(top.value == -math.inf, 0.0, top.value) for top in tops]
            fades = [exp2_of_nonpositive(old - base) for old, base in zip(before, bases, strict=True)]
            self._take_powers(number, bases, fades, totals)
            self._add_values(row, h // group, number, fades)
        self._store(self._row(b, h, self.num_heads, self.queries), self._column(h, self.value_dim), first, totals)

    def _all(self, number: float) -> Value:
        return self.k.constant(number, f32, self.lanes)

    def _row(self, b: Value, h: Value, heads: int, count: Size) -> Value:
        """The first row of a head."""
        return b * count if self.packed else (b * heads + h) * count

    def _column(self, h: Value, width: int) -> Value:
        """The first column of a head."""
        return h * width if self.packed else self.k.index(0)

    def _seen(self, own: Value) -> tuple[Size, Size]:
        """The keys that any query of a block may see: a multiple of the keys at a time, and an end.

        Args:
            own: The position of the first query.
        """
        kind, k = self.attributes["mask_kind"], self.k
        if kind not in ("causal", "sliding_window"):
            return 0, self.count
        stop = k.least(own + self.width, self.count)
        if kind == "causal":
            return 0, stop
        start = own - self.attributes["window"]
        return k.where(start > 0, start, 0) // KEYS_AT_ONCE * KEYS_AT_ONCE, stop

    def _groups(self, number: Size) -> Any:
        """Yield the positions of groups of keys, with their sizes."""
        whole = number // _AT_ONCE * _AT_ONCE
        for j in self.k.range(0, whole, _AT_ONCE):
            yield j, _AT_ONCE
        for j in self.k.range(whole, number):
            yield j, 1

    def _load_queries(self, row: Value, column: Value, first: Value) -> None:
        """Store scaled queries as columns. Queries after the last one are copies of it."""
        k, last = self.k, self.queries - 1
        whole = self.dim // self.lanes * self.lanes
        for m in k.range(0, self.width, self.lanes):
            rows = [row + k.least(first + m + r, last) for r in range(self.lanes)]
            for d in k.range(0, whole, self.lanes):
                block = [self.q[r, k.at(column + d)] * self.scale for r in rows]
                for i, vector in enumerate(transposed(block)):
                    self.query_columns[d + i, k.at(m)] = vector
            for d in k.range(whole, self.dim):
                for r, position in enumerate(rows):
                    self.query_columns[d, m + r] = self.q[position, column + d] * self.scale

    def _scores(
        self,
        block: tuple[Value, Value, Value],
        source: tuple[Value, Value],
        key: Value,
        j: Value,
        many: int,
        tops: Sequence[KernelRegister],
    ) -> None:
        """Store the scores of some keys, and raise the maxima of the queries."""
        k, (row, head), tile = self.k, source, self.key_tile
        column = self._column(head, self.dim)
        if tile is not None:
            tile.unpack(row + j, head, k.index(0), many)
        sums = [[k.register(self._all(0.0)) for _ in tops] for _ in range(many)]
        for d in k.range(self.dim):
            queries = [self.query_columns[d, k.at(u * self.lanes)] for u in range(self.vectors)]
            for r, of_key in enumerate(sums):
                element = self.keys[row + j + r, column + d] if tile is None else tile.memory[r, d]
                for total, query in zip(of_key, queries, strict=True):
                    total.value = query.fma(element.splat(self.lanes), total.value)
        for r, of_key in enumerate(sums):
            scores = self._masked([total.value for total in of_key], block, key + j + r)
            for u, (score, top) in enumerate(zip(scores, tops, strict=True)):
                self.powers[j + r, k.at(u * self.lanes)] = score
                top.value = top.value.greater_or_second(score)

    def _masked(self, scores: list[Value], block: tuple[Value, Value, Value], key: Value) -> list[Value]:
        """The scores of one key, minus infinity for the queries that do not see it."""
        kind, k, (b, h, first) = self.attributes["mask_kind"], self.k, block
        if kind == "none":
            return scores
        if self.mask is not None:
            given = self._mask_element(self.mask, b, h, key)
            if kind == "bias":
                return [score + given.to(f32) * math.log2(math.e) for score in scores]
            is_seen = given if given.element.is_bool else given >= 0.5 if given.element.is_float else given != 0
            return [k.where(is_seen, score, -math.inf) for score in scores]
        result: list[Value] = []
        own = self._position(b, first).to(i32)
        for u, score in enumerate(scores):
            queries = k.constants(range(u * self.lanes, (u + 1) * self.lanes), i32) + own
            is_seen = key.to(i32) <= queries
            if kind == "sliding_window":
                is_seen = is_seen & (key.to(i32) >= queries - self.attributes["window"])
            result.append(k.where(is_seen, score, -math.inf))
        return result

    def _mask_element(self, mask: Buffer, b: Value, h: Value, key: Value) -> Value:
        """The element of a mask `[B, T]`, or one that is broadcast to `[B, H, S, T]`, for all queries."""
        if mask.rank == 2 and self.attributes["mask_kind"] == "custom":
            return mask[b, key]
        positions = [b, h, self.k.index(0), key][4 - mask.rank :]
        return mask[tuple(0 if _is_one(s) else p for s, p in zip(mask.shape, positions, strict=True))]

    def _take_powers(
        self, number: Size, bases: Sequence[Value], fades: Sequence[Value], totals: Sequence[KernelRegister]
    ) -> None:
        """Replace scores by powers of 2, and add these to the sums of the queries."""
        k = self.k
        for total, fade in zip(totals, fades, strict=True):
            total.value = total.value * fade
        for j in k.range(number):
            for u, (base, total) in enumerate(zip(bases, totals, strict=True)):
                power = exp2_of_nonpositive(self.powers[j, k.at(u * self.lanes)] - base)
                self.powers[j, k.at(u * self.lanes)] = power
                total.value = total.value + power

    def _add_values(self, row: Value, head: Value, number: Size, fades: Sequence[Value]) -> None:
        """Add values, weighted by the powers, to the faded sums."""
        k, tile, column = self.k, self.value_tile, self._column(head, self.value_dim)
        if tile is not None:
            for block in k.range(self.value_dim // BLOCK):
                tile.unpack(row, head, block, number)
                for d in k.range(0, BLOCK, _AT_ONCE):
                    self._add_columns((tile.memory, k.index(0), d), number, block * BLOCK + d, _AT_ONCE, fades)
            return
        whole = self.value_dim // _AT_ONCE * _AT_ONCE
        for d in k.range(0, whole, _AT_ONCE):
            self._add_columns((self.values, row, column + d), number, d, _AT_ONCE, fades)
        for d in k.range(whole, self.value_dim):
            self._add_columns((self.values, row, column + d), number, d, 1, fades)

    def _add_columns(
        self, source: tuple[Floats, Value, Value], number: Size, d: Value, many: int, fades: Sequence[Value]
    ) -> None:
        """Add some columns of values.

        Args:
            source: The values, and the row and the column of the first one.
            number: The number of keys.
            d: The first column in the head.
            many: The number of columns.
            fades: The factors of earlier sums.
        """
        k, (values, row, column) = self.k, source
        sums = [
            [k.register(self.sums[d + r, k.at(u * self.lanes)] * fade) for u, fade in enumerate(fades)]
            for r in range(many)
        ]
        for j in k.range(number):
            powers = [self.powers[j, k.at(u * self.lanes)] for u in range(self.vectors)]
            for r, of_column in enumerate(sums):
                element = values[row + j, column + r].splat(self.lanes)
                for total, power in zip(of_column, powers, strict=True):
                    total.value = power.fma(element, total.value)
        for r, of_column in enumerate(sums):
            for u, total in enumerate(of_column):
                self.sums[d + r, k.at(u * self.lanes)] = total.value

    def _store(self, row: Value, column: Value, first: Value, totals: Sequence[KernelRegister]) -> None:
        """Divide the sums by the sums of powers, and store them as rows."""
        k = self.k
        guarded = self.attributes["mask_kind"] != "none" and self.attributes["empty_rows"] == "zeros"
        factors = [1.0 / total.value for total in totals]
        if guarded:
            factors = [k.where(t.value == 0.0, 0.0, f) for t, f in zip(totals, factors, strict=True)]
        for d in k.range(self.value_dim):
            for u, factor in enumerate(factors):
                self.sums[d, k.at(u * self.lanes)] = self.sums[d, k.at(u * self.lanes)] * factor
        whole = self.value_dim // self.lanes * self.lanes
        for m in k.range(0, self.width, self.lanes):
            for d in k.range(0, whole, self.lanes):
                block = [self.sums[d + i, k.at(m)] for i in range(self.lanes)]
                for i, vector in enumerate(transposed(block)):
                    for _ in k.when(first + m + i < self.queries):
                        self.y[row + first + m + i, k.at(column + d)] = vector
            for d in k.range(whole, self.value_dim):
                for i in range(self.lanes):
                    for _ in k.when(first + m + i < self.queries):
                        self.y[row + first + m + i, column + d] = self.sums[d, m + i]


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1
