"""Lowering rules for cumulative sums, products and maxima."""

from __future__ import annotations

from collections.abc import Callable

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.targets.linalg.contraction import accumulator, round_to_result
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, LoopEmitter, product_of
from rlx.targets.linalg.reduce import COMBINE, neutral
from rlx.targets.linalg.rules import Lowered, lowers
from rlx.targets.linalg.shape import extract

# Within a block, each result is computed separately. This is vector code, with a factor of the block size more work.
_BLOCK = 8
# The levels of nested blocks for dynamic sizes. The remaining elements are combined sequentially.
_UNKNOWN_LEVELS = 4


@lowers("cumsum")
def cumsum(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> mlir.Value:
    return _scan(low, x, "sum", axis, exclusive)


@lowers("cumprod")
def cumprod(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> mlir.Value:
    return _scan(low, x, "prod", axis, exclusive)


@lowers("cummax")
def cummax(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int) -> mlir.Value:
    return _scan(low, x, "max", axis, False)


def _scan(low: LoopEmitter, x: Lowered, kind: str, axis: int, exclusive: bool) -> mlir.Value:
    dims, dtype = x.shape.dims, x.shape.dtype
    if 0 in dims:
        return low.empty(dims, storage_type(dtype))
    flat = product_of(dims[:axis]), dims[axis], product_of(dims[axis + 1 :])
    value = low.reshape(x.value, dims, flat)
    running = _BlockedScan(low, kind, exclusive).of(value, flat, dtype)
    return low.reshape(round_to_result(low, running, flat, dtype), flat, dims)


class _BlockedScan:
    """Cumulative reductions in blocks.

    Args:
        low: The emitter.
        kind: The reduction.
        exclusive: Leave out the element itself.
    """

    def __init__(self, low: LoopEmitter, kind: str, exclusive: bool):
        self.low, self.kind, self.exclusive = low, kind, exclusive

    def of(
        self, value: mlir.Value, dims: tuple[Dim, Dim, Dim], dtype: DType, levels: int = _UNKNOWN_LEVELS
    ) -> mlir.Value:
        """Reduce along the middle axis, in the accumulator of contractions of `dtype`."""
        low = self.low
        before, size, after = dims
        if size <= 2 * _BLOCK if type(size) is int else levels == 0:
            split = (before, 1, size, after)
            return low.reshape(self._direct(low.reshape(value, dims, split), split, dtype), split, dims)
        count = (size + _BLOCK - 1) // _BLOCK
        whole, split = (before, count * _BLOCK, after), (before, count, _BLOCK, after)
        value = low.reshape(low.padded(value, dims, whole, neutral(self.kind, dtype)), whole, split)
        wide = accumulator(dtype)
        blocks = _BlockedScan(low, self.kind, exclusive=True)
        offsets = blocks.of(self._totals(value, split, dtype), (before, count, after), wide, levels - 1)
        combine = self._combine(Scalars(wide))
        out = (low.empty(split, storage_type(wide)), (0, 1, 2, 3))
        inputs = [(self._direct(value, split, dtype), (0, 1, 2, 3)), (offsets, (0, 1, 3))]
        running = low.generic(inputs, [out], [PARALLEL] * 4, lambda own, offset, _: combine(offset, own))
        return extract(low, low.reshape(running, split, whole), (0, 0, 0), dims, (1, 1, 1))

    def _combine(self, s: Scalars) -> Callable[[mlir.Value, mlir.Value], mlir.Value]:
        return getattr(s, COMBINE[self.kind])

    def _direct(self, value: mlir.Value, dims: tuple[Dim, ...], dtype: DType) -> mlir.Value:
        """Reduce along the third of four axes, each result separately."""
        low, s = self.low, Scalars(dtype)
        combine, start = self._combine(s), neutral(self.kind, dtype)
        predicate = low.arith.CmpIPredicate.ult if self.exclusive else low.arith.CmpIPredicate.ule

        def body(v: mlir.Value, total: mlir.Value) -> mlir.Value:
            counts = low.arith.cmpi(predicate, low.scalar_index(4), low.scalar_index(2))
            return combine(total, low.arith.select(counts, s.enter(v), s.constant(start)))

        out = (low.filled(dims, storage_type(accumulator(dtype)), start), (0, 1, 2, 3))
        return low.generic([(value, (0, 1, 4, 3))], [out], [PARALLEL] * 4 + [REDUCTION], body)

    def _totals(self, value: mlir.Value, dims: tuple[Dim, ...], dtype: DType) -> mlir.Value:
        """The total over the third of four axes."""
        low, s = self.low, Scalars(dtype)
        combine, element = self._combine(s), storage_type(accumulator(dtype))
        out = (low.filled((dims[0], dims[1], dims[3]), element, neutral(self.kind, dtype)), (0, 1, 3))
        iterators = [PARALLEL, PARALLEL, REDUCTION, PARALLEL]
        return low.generic([(value, (0, 1, 2, 3))], [out], iterators, lambda v, total: combine(total, s.enter(v)))
