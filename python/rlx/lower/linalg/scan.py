"""Running sums."""

from __future__ import annotations

from typing import Any

from rlx.ir.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.lower.linalg.contraction import accumulator, rounded
from rlx.lower.linalg.loops import PARALLEL, REDUCTION, Loops, product_of, storage_type
from rlx.lower.linalg.rules import Lowered, lowers
from rlx.lower.linalg.scalars import Scalars
from rlx.lower.linalg.shape import extract

# Within a block every sum is added up by itself: vector code, for as much work as the block has elements.
_BLOCK = 8
# Nested blocks where the size is not known; what is left after that many is summed pair by pair.
_UNKNOWN_LEVELS = 4


@lowers("cumsum")
def cumsum(low: Loops, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> Any:
    dims, dtype = x.shape.dims, x.shape.dtype
    if 0 in dims:
        return low.empty(dims, storage_type(dtype))
    flat = product_of(dims[:axis]), dims[axis], product_of(dims[axis + 1 :])
    value = low.reshape(x.value, dims, flat)
    sums = _running(low, value, flat, dtype, exclusive)
    return low.reshape(rounded(low, sums, flat, dtype), flat, dims)


def _running(
    low: Loops, value: Any, dims: tuple[Dim, Dim, Dim], dtype: DType, exclusive: bool, levels: int = _UNKNOWN_LEVELS
) -> Any:
    """Running sums along the middle axis, in the dtype that contractions of `dtype` accumulate in."""
    before, size, after = dims
    if size <= 2 * _BLOCK if type(size) is int else levels == 0:
        split = (before, 1, size, after)
        sums = _direct(low, low.reshape(value, dims, split), split, dtype, exclusive)
        return low.reshape(sums, split, dims)
    count = (size + _BLOCK - 1) // _BLOCK
    whole, split = (before, count * _BLOCK, after), (before, count, _BLOCK, after)
    value = low.reshape(low.padded(value, dims, whole, 0), whole, split)
    local = _direct(low, value, split, dtype, exclusive)
    wide = accumulator(dtype)
    totals = _totals(low, value, split, dtype)
    offsets = _running(low, totals, (before, count, after), wide, True, levels - 1)
    s = Scalars(low, wide)
    out = (low.empty(split, storage_type(wide)), (0, 1, 2, 3))
    inputs = [(local, (0, 1, 2, 3)), (offsets, (0, 1, 3))]
    sums = low.generic(inputs, [out], [PARALLEL] * 4, lambda a, b, _: s.add(b, a))
    return extract(low, low.reshape(sums, split, whole), (0, 0, 0), dims, (1, 1, 1))


def _direct(low: Loops, value: Any, dims: tuple[Dim, ...], dtype: DType, exclusive: bool) -> Any:
    """Running sums along the third of four axes, each added up by itself."""
    s, element = Scalars(low, dtype), storage_type(accumulator(dtype))
    predicate = low.arith.CmpIPredicate.ult if exclusive else low.arith.CmpIPredicate.ule

    def body(v: Any, total: Any) -> Any:
        counts = low.arith.cmpi(predicate, low.scalar_index(4), low.scalar_index(2))
        return s.add(total, low.arith.select(counts, s.enter(v), s.constant(0)))

    out = (low.filled(dims, element, 0), (0, 1, 2, 3))
    return low.generic([(value, (0, 1, 4, 3))], [out], [PARALLEL] * 4 + [REDUCTION], body)


def _totals(low: Loops, value: Any, dims: tuple[Dim, ...], dtype: DType) -> Any:
    """Sums over the third of four axes."""
    s = Scalars(low, dtype)
    out = (low.filled((dims[0], dims[1], dims[3]), storage_type(accumulator(dtype)), 0), (0, 1, 3))
    iterators = [PARALLEL, PARALLEL, REDUCTION, PARALLEL]
    return low.generic([(value, (0, 1, 2, 3))], [out], iterators, lambda v, total: s.add(total, s.enter(v)))
