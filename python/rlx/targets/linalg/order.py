"""Lowering rules for argmax, argmin and topk.

Elements are compared as integers with the same order. NaN is the largest key. Subnormals, which a CPU may flush to zero, are
ordered correctly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim, maximum
from rlx.ir.dtype import DType, i32, i64
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.numerics.words import FloatBits
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers

# Rows up to this size, or up to this multiple of k, are ranked by comparing all pairs.
_RANKED_SIZE = 64
_RANKED_SHARE = 2
# The block size for rows of dynamic size.
_BLOCK = 64


# --- keys -------------------------------------------------------------------------------------


def key_dtype(dtype: DType) -> DType:
    """The integer dtype of the keys of a dtype."""
    return i64 if dtype.itemsize == 8 else i32


def order_key(low: LoopEmitter, value: mlir.Value, dtype: DType) -> mlir.Value:
    """Convert a stored scalar to a signed integer key: monotonic, equal for both zeros, and the largest for every NaN."""
    arith, integer = low.arith, storage_type(key_dtype(dtype))
    if dtype.is_float:
        s = Scalars(dtype)
        return _float_key(s, s.enter(value))
    if dtype.itemsize < key_dtype(dtype).itemsize:
        return (arith.extsi if dtype.is_signed else arith.extui)(integer, value)
    if dtype.is_signed:
        return value
    return arith.xori(value, low.constant(1 << (8 * dtype.itemsize - 1), integer))


def _float_key(s: Scalars, x: mlir.Value) -> mlir.Value:
    w = FloatBits(s)
    bits, largest = w.of(x), w.constant(w.sign_mask - 1)
    # Floats are stored as sign and magnitude: for negative numbers, a larger magnitude is a smaller number.
    key = w.flipped(bits, w.both(w.right_signed(bits, w.format.width - 1), largest))
    predicate = s.arith.CmpIPredicate.eq
    key = s.select(s.arith.cmpi(predicate, bits, w.constant(w.sign_mask)), w.constant(0), key)
    is_nan = w.below(w.constant(w.bits_of_constant(math.inf)), w.both(bits, largest))
    return s.select(is_nan, largest, key)


def lowest(dtype: DType) -> int:
    return -(1 << (8 * dtype.itemsize - 1))


# --- argmax and argmin ------------------------------------------------------------------------


@lowers("argmax")
def argmax(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, keep_dims: bool) -> mlir.Value:
    return _position(low, results[0], x, axis, lambda v: order_key(low, v, x.shape.dtype))


@lowers("argmin")
def argmin(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, keep_dims: bool) -> mlir.Value:
    return _position(low, results[0], x, axis, lambda v: _reversed_numbers(low, v, x.shape.dtype))


def _reversed_numbers(low: LoopEmitter, value: mlir.Value, dtype: DType) -> mlir.Value:
    """A key that is larger for smaller numbers, and still the largest for NaN."""
    integer = storage_type(key_dtype(dtype))
    key, ones = order_key(low, value, dtype), low.constant(-1, integer)
    opposite = low.arith.xori(key, ones)
    if not dtype.is_float:
        return opposite
    largest = low.constant(key_dtype(dtype).max, integer)
    is_nan = low.arith.cmpi(low.arith.CmpIPredicate.eq, key, largest)
    return low.arith.select(is_nan, largest, opposite)


def _position(
    low: LoopEmitter, result: Shape, x: Lowered, axis: int, key: Callable[[mlir.Value], mlir.Value]
) -> mlir.Value:
    dims = x.shape.dims
    found = _first_largest(low, x.value, dims, axis, x.shape.dtype, key)
    return low.reshape(found, [d for i, d in enumerate(dims) if i != axis], result.dims)


def _first_largest(
    low: LoopEmitter,
    value: mlir.Value,
    dims: tuple[Dim, ...],
    axis: int,
    dtype: DType,
    key: Callable[[mlir.Value], mlir.Value],
) -> mlir.Value:
    """Positions of the largest keys along an axis, in two passes. One pass over pairs of key and position would not be
    vectorised, and would be ten times slower.
    """
    every = tuple(range(len(dims)))
    kept = tuple(i for i in every if i != axis)
    kept_dims = [dims[i] for i in kept]
    iterators = [REDUCTION if i == axis else PARALLEL for i in every]
    keys, positions = key_dtype(dtype), storage_type(i32)
    start = low.filled(kept_dims, storage_type(keys), lowest(keys))
    largest = low.generic([(value, every)], [(start, kept)], iterators, lambda v, most: low.arith.maxsi(most, key(v)))
    none = low.filled(kept_dims, positions, i32.max)

    def body(v: mlir.Value, most: mlir.Value, first: mlir.Value) -> mlir.Value:
        here = low.arith.index_cast(positions, low.scalar_index(axis))
        found = low.arith.cmpi(low.arith.CmpIPredicate.eq, key(v), most)
        return low.arith.minsi(first, low.arith.select(found, here, low.constant(i32.max, positions)))

    return low.generic([(value, every), (largest, kept)], [(none, kept)], iterators, body)


# --- topk -------------------------------------------------------------------------------------


@lowers("topk")
def topk(low: LoopEmitter, results: list[Shape], x: Lowered, *, k: int) -> Any:
    if 0 in results[0].dims:
        return tuple(low.empty(r.dims, storage_type(r.dtype)) for r in results)
    dtype, size = x.shape.dtype, x.shape.dims[-1]
    rows = product_of(x.shape.dims[:-1])
    flat = low.reshape(x.value, x.shape.dims, (rows, size))
    shape = Shape((rows, size), dtype)
    integer = storage_type(key_dtype(dtype))
    keys = low.map(shape.dims, integer, [Lowered(flat, shape)], lambda v: order_key(low, v, dtype))
    indices = Largest(low, rows, k, key_dtype(dtype)).of(keys, size)

    def pick(index: mlir.Value, _: mlir.Value) -> mlir.Value:
        return low.tensor.extract(flat, [low.scalar_index(0), low.arith.index_cast(low.index_type, index)])

    out = (low.empty((rows, k), storage_type(dtype)), (0, 1))
    values = low.generic([(indices, (0, 1))], [out], [PARALLEL] * 2, pick)
    return tuple(low.reshape(v, (rows, k), results[0].dims) for v in (values, indices))


class Largest:
    """Positions of the k largest keys of each row, in order. Among equal keys, the first one is first.

    Args:
        low: The emitter.
        rows: The number of rows.
        k: The number of positions, at most the size of a row.
        dtype: The dtype of the keys.
    """

    def __init__(self, low: LoopEmitter, rows: Dim, k: int, dtype: DType):
        self.low, self.rows, self.k, self.dtype = low, rows, k, dtype
        self.position = storage_type(i32)

    def of(self, keys: mlir.Value, size: Dim) -> mlir.Value:
        """`[rows, k]` i32 from keys `[rows, size]`."""
        low = self.low
        if self.k == 1:
            found = _first_largest(low, keys, (self.rows, size), 1, self.dtype, lambda key: key)
            return low.reshape(found, (self.rows,), (self.rows, 1))
        if type(size) is not int:
            # At least k blocks. Blocks of padding come last, and none of their elements is among the largest.
            return self._by_blocks(keys, size, _BLOCK, maximum((size + _BLOCK - 1) // _BLOCK, self.k))
        if size <= max(_RANKED_SIZE, _RANKED_SHARE * self.k):
            return self.ranked(keys, size)
        block = 1 << max(1, round(math.log2(size / self.k) / 2))
        return self._by_blocks(keys, size, block, -(-size // block))

    def _by_blocks(self, keys: mlir.Value, size: Dim, block: int, count: Dim) -> mlir.Value:
        """Search in the k blocks with the largest maxima. All other elements have at least k larger elements.

        With blocks of √(size/k) elements, both smaller problems have √(size·k) elements.
        """
        low, rows, k = self.low, self.rows, self.k
        element = storage_type(self.dtype)
        keys = low.padded(keys, (rows, size), (rows, count * block), lowest(self.dtype))
        blocks = low.reshape(keys, (rows, count * block), (rows, count, block))
        start = (low.filled((rows, count), element, lowest(self.dtype)), (0, 1))
        iterators = [PARALLEL, PARALLEL, REDUCTION]
        maxima = low.generic([(blocks, (0, 1, 2))], [start], iterators, low.arith.maxsi)
        static = type(count) is int
        leading = self.of(maxima, count) if static else self.ranked(maxima, count)
        chosen = self._ascending(leading)

        def candidate(index: mlir.Value, _: mlir.Value) -> mlir.Value:
            at = low.arith.index_cast(low.index_type, index)
            return low.tensor.extract(blocks, [low.scalar_index(0), at, low.scalar_index(2)])

        out = (low.empty((rows, k, block), element), (0, 1, 2))
        candidates = low.generic([(chosen, (0, 1))], [out], [PARALLEL] * 3, candidate)
        found = self.of(low.reshape(candidates, (rows, k, block), (rows, k * block)), k * block)

        def restored(index: mlir.Value, _: mlir.Value) -> mlir.Value:
            width = low.constant(block, self.position)
            at = low.arith.index_cast(low.index_type, low.arith.divui(index, width))
            origin = low.tensor.extract(chosen, [low.scalar_index(0), at])
            return low.arith.addi(low.arith.muli(origin, width), low.arith.remui(index, width))

        out = (low.empty((rows, k), self.position), (0, 1))
        return low.generic([(found, (0, 1))], [out], [PARALLEL] * 2, restored)

    def ranked(self, keys: mlir.Value, size: Dim) -> mlir.Value:
        """Rank by comparing all pairs: the rank of an element is the number of elements before it in order."""
        low, predicate = self.low, self.low.arith.CmpIPredicate

        def body(own: mlir.Value, other: mlir.Value, total: mlir.Value) -> mlir.Value:
            earlier = low.arith.cmpi(predicate.ult, low.scalar_index(2), low.scalar_index(1))
            at_least = low.arith.cmpi(predicate.sge, other, own)
            more = low.arith.cmpi(predicate.sgt, other, own)
            before = low.arith.select(earlier, at_least, more)
            return low.arith.addi(total, low.arith.extui(self.position, before))

        out = (low.filled((self.rows, size), self.position, 0), (0, 1))
        iterators = [PARALLEL, PARALLEL, REDUCTION]
        rank = low.generic([(keys, (0, 1)), (keys, (0, 2))], [out], iterators, body)
        return self._at_ranks(rank, lambda: low.arith.index_cast(self.position, low.scalar_index(2)))

    def _ascending(self, indices: mlir.Value) -> mlir.Value:
        """Sort `[rows, k]` distinct positions in ascending order."""
        low = self.low

        def body(own: mlir.Value, other: mlir.Value, total: mlir.Value) -> mlir.Value:
            before = low.arith.cmpi(low.arith.CmpIPredicate.slt, other, own)
            return low.arith.addi(total, low.arith.extui(self.position, before))

        out = (low.filled((self.rows, self.k), self.position, 0), (0, 1))
        iterators = [PARALLEL, PARALLEL, REDUCTION]
        rank = low.generic([(indices, (0, 1)), (indices, (0, 2))], [out], iterators, body)
        return self._at_ranks(rank, lambda index: index, indices)

    def _at_ranks(
        self,
        rank: mlir.Value,
        value: Callable[[], mlir.Value] | Callable[[mlir.Value], mlir.Value],
        *operands: mlir.Value,
    ) -> mlir.Value:
        """The values of the elements of ranks 0 … k - 1."""
        low = self.low

        def body(place: mlir.Value, *scalars: mlir.Value) -> mlir.Value:
            wanted = low.arith.index_cast(self.position, low.scalar_index(1))
            here = low.arith.cmpi(low.arith.CmpIPredicate.eq, place, wanted)
            zero = low.constant(0, self.position)
            return low.arith.addi(scalars[-1], low.arith.select(here, value(*scalars[:-1]), zero))

        inputs = [(rank, (0, 2)), *((operand, (0, 2)) for operand in operands)]
        out = (low.filled((self.rows, self.k), self.position, 0), (0, 1))
        return low.generic(inputs, [out], [PARALLEL, PARALLEL, REDUCTION], body)
