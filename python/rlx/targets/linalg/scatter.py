"""Lowering rules for scatters: loops over the updates. Updates with indices out of range have no effect."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim, minimum
from rlx.ir.dtype import DType, i32
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.targets.linalg.contraction import accumulator, round_to_result
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, product_of, sized_tensor_type
from rlx.targets.linalg.reduce import neutral
from rlx.targets.linalg.rules import Lowered, lowers
from rlx.targets.linalg.shape import extract

_COMBINE = {"add": "add", "mul": "mul", "max": "max", "min": "min"}
_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@lowers("scatter_nd")
def scatter_nd(
    low: LoopEmitter, results: list[Shape], x: Lowered, indices: Lowered, updates: Lowered, *, reduction: str
) -> mlir.Value:
    if 0 in x.shape.dims or 0 in updates.shape.dims:
        return x.value
    dims, (*places, count) = x.shape.dims, indices.shape.dims
    assert type(count) is int
    positions, width, number = product_of(dims[:count]), product_of(dims[count:]), product_of(places)
    table = low.reshape(x.value, dims, (positions, width))
    rows = _rows(low, updates, number, width)
    tuples = low.reshape(indices.value, indices.shape.dims, (number, count))
    targets = _targets(low, tuples, indices.shape.dtype, dims[:count], number)
    if type(positions) is not int:
        # An empty table, which may be known only at run time, has no updates.
        kept = minimum(number, number * positions)
        targets = extract(low, targets, (0,), (kept,), (1,))
        rows, number = extract(low, rows, (0, 0), (kept, width), (1, 1)), kept
    scatter = _LoweredScatter(low, x.shape.dtype, positions, width, number)
    found = scatter.last(table, targets, rows) if reduction == "set" else scatter.all(table, targets, rows, reduction)
    return low.reshape(found, (positions, width), dims)


def _rows(low: LoopEmitter, updates: Lowered, number: Dim, width: Dim) -> mlir.Value:
    """The updates as `[number, width]`."""
    if (number, width) != (1, 1) or updates.shape.rank != 1:
        return low.reshape(updates.value, updates.shape.dims, (number, width))
    # A copy instead of a reshape: compilers fold a reshape of a slice of a single element to an invalid slice.
    out = (low.empty((1, 1), updates.value.type.element_type), (0, 1))
    return low.generic([(updates.value, (0,))], [out], [PARALLEL] * 2, lambda element, _: element)


def _targets(low: LoopEmitter, tuples: mlir.Value, dtype: DType, sizes: tuple[Dim, ...], number: Dim) -> mlir.Value:
    """`[number]` integers: the row of each tuple, or -1 if any of its indices is out of range."""
    arith, i64 = low.arith, low.ir.IntegerType.get_signless(64)
    predicate, positions = arith.CmpIPredicate, product_of(sizes)
    # Not every device can store i64.
    fits = type(positions) is int and positions <= i32.max
    stored = storage_type(i32) if fits else i64

    def body(_: mlir.Value) -> mlir.Value:
        place, row = low.scalar_index(0), low.constant(0, i64)
        inside = low.constant(1, low.ir.IntegerType.get_signless(1))
        for k, size in enumerate(sizes):
            index = low.tensor.extract(tuples, [place, low.size(k)])
            if dtype.itemsize < 8:
                index = (arith.extsi if dtype.is_signed else arith.extui)(i64, index)
            extent = arith.index_cast(i64, low.size(size))
            # As unsigned integers, negative indices are too large.
            inside = arith.andi(inside, arith.cmpi(predicate.ult, index, extent))
            row = arith.addi(arith.muli(row, extent), index)
        row = arith.select(inside, row, low.constant(-1, i64))
        return arith.trunci(stored, row) if fits else row

    return low.generic([], [(low.empty((number,), stored), (0,))], [PARALLEL], body)


class _LoweredScatter:
    """A scatter of rows into a table.

    Args:
        low: The emitter.
        dtype: The dtype of the elements.
        positions: The number of rows of the table.
        width: The size of a row.
        number: The number of updates.
    """

    def __init__(self, low: LoopEmitter, dtype: DType, positions: Dim, width: Dim, number: Dim):
        self.low, self.dtype = low, dtype
        self.positions, self.width, self.number = positions, width, number

    def last(self, table: mlir.Value, targets: mlir.Value, rows: mlir.Value) -> mlir.Value:
        """Replace rows, each by its last update: the one with the greatest number."""
        low, arith = self.low, self.low.arith
        index = storage_type(i32)

        def numbered(target: mlir.Value, _: mlir.Value) -> mlir.Value:
            own = arith.index_cast(index, low.scalar_index(0))
            return arith.select(self._is_inside(target), own, low.constant(-1, index))

        out = (low.empty((self.number, 1), index), (0, 1))
        numbers = low.generic([(targets, (0,))], [out], [PARALLEL] * 2, numbered)
        none = low.filled((self.positions, 1), index, -1)
        latest = _LoweredScatter(low, i32, self.positions, 1, self.number).combined(none, targets, numbers, "max")
        latest = low.reshape(latest, (self.positions, 1), (self.positions,))

        def chosen(last: mlir.Value, own: mlir.Value, _: mlir.Value) -> mlir.Value:
            there = arith.cmpi(arith.CmpIPredicate.sge, last, low.constant(0, index))
            at = arith.index_cast(low.index_type, arith.maxsi(last, low.constant(0, index)))
            return arith.select(there, low.tensor.extract(rows, [at, low.scalar_index(1)]), own)

        out = (low.empty((self.positions, self.width), table.type.element_type), (0, 1))
        return low.generic([(latest, (0,)), (table, (0, 1))], [out], [PARALLEL] * 2, chosen)

    def all(self, table: mlir.Value, targets: mlir.Value, rows: mlir.Value, reduction: str) -> mlir.Value:
        """Combine rows with all their updates, in the accumulator of contractions."""
        low, dtype, wide = self.low, self.dtype, accumulator(self.dtype)
        s, element = Scalars(dtype), storage_type(wide)
        start = neutral(_REDUCTIONS[reduction], dtype)
        if reduction == "add" and dtype.is_inexact:
            start = complex(-0.0, -0.0) if dtype.is_complex else -0.0  # -0 + 0 is 0

        def masked(target: mlir.Value, row: mlir.Value, _: mlir.Value) -> mlir.Value:
            return low.arith.select(self._is_inside(target), s.enter(row), s.constant(start))

        out = (low.empty((self.number, self.width), element), (0, 1))
        rows = low.generic([(targets, (0,)), (rows, (0, 1))], [out], [PARALLEL] * 2, masked)
        if wide is not dtype:
            shape = Shape((self.positions, self.width), dtype)
            # A fill stays a fill, which compilers repeat for each scatter. Otherwise several scatters may write into one table
            # that is computed from constants.
            fill = low.fill_of(table)
            if fill is not None:
                table = low.linalg.fill(s.enter(fill), outs=[low.empty(shape.dims, element)])
            else:
                table = low.map(shape.dims, element, [Lowered(table, shape)], s.enter)
        found = _LoweredScatter(low, wide, self.positions, self.width, self.number).combined(
            table, targets, rows, reduction
        )
        return round_to_result(low, found, (self.positions, self.width), dtype)

    def _is_inside(self, target: mlir.Value) -> mlir.Value:
        return self.low.arith.cmpi(self.low.arith.CmpIPredicate.sge, target, self.low.constant(0, target.type))

    def combined(self, table: mlir.Value, targets: mlir.Value, rows: mlir.Value, reduction: str) -> mlir.Value:
        """Combine rows into the table sequentially. Rows without a target have no effect."""
        low, stored = self.low, targets.type.element_type
        out = (low.empty((self.number, 1), stored), (0, 1))
        safe = low.generic(
            [(targets, (0,))], [out], [PARALLEL] * 2, lambda t, _: low.arith.maxsi(t, low.constant(0, stored))
        )
        s = Scalars(self.dtype)

        def combine(update: mlir.Value, own: mlir.Value) -> mlir.Value:
            found = getattr(s, _COMBINE[reduction])(own, update)
            if not (self.dtype.is_complex and reduction == "mul"):
                return found
            # A product of an infinity with 1 + 0i would be NaN.
            return s.select(s.compare("eq", update, s.constant(1)), own, found)

        if (self.number, self.width) == (1, 1):
            return self._one_element(table, safe, rows, combine)
        return self._row_by_row(table, safe, rows, combine)

    def _one_element(self, table: mlir.Value, targets: mlir.Value, rows: mlir.Value, combine: Any) -> mlir.Value:
        """Apply one update of one element. Some compilers fold a loop over it to invalid IR."""
        low, arith = self.low, self.low.arith

        def chosen(own: mlir.Value, _: mlir.Value) -> mlir.Value:
            first = low.size(0)
            target = low.tensor.extract(targets, [first, first])
            here = arith.index_cast(target.type, low.scalar_index(0))
            updated = combine(low.tensor.extract(rows, [first, first]), own)
            return arith.select(arith.cmpi(arith.CmpIPredicate.eq, here, target), updated, own)

        out = (low.empty((self.positions, 1), table.type.element_type), (0, 1))
        return low.generic([(table, (0, 1))], [out], [PARALLEL] * 2, chosen)

    def _row_by_row(self, table: mlir.Value, targets: mlir.Value, rows: mlir.Value, combine: Any) -> mlir.Value:
        """Emit a loop over the updates. `combine` takes a scalar of an update and a scalar of the table."""
        low, width, element = self.low, self.width, table.type.element_type
        loop = mlir.dialect("scf").ForOp(low.size(0), low.size(self.number), low.size(1), [table])
        with low.ir.InsertionPoint(loop.body):
            number, into = loop.induction_variable, loop.inner_iter_args[0]
            target = low.tensor.extract(targets, [number, low.size(0)])
            target = low.arith.index_cast(low.index_type, target)
            pair = [Lowered(v, Shape((width,), self.dtype)) for v in (self._row(rows, number), self._row(into, target))]
            found = low.map((width,), element, pair, combine)
            dynamic, static = self._one_row()
            into = low.tensor.insert_slice(found, into, [target], dynamic, [], *static)
            mlir.dialect("scf").YieldOp([into])
        return loop.results[0]

    def _row(self, value: mlir.Value, place: mlir.Value) -> mlir.Value:
        dynamic, static = self._one_row()
        type_ = sized_tensor_type((self.width,), value.type.element_type)
        return self.low.tensor.extract_slice(type_, value, [place], dynamic, [], *static)

    def _one_row(self) -> tuple[list[mlir.Value], list[list[int]]]:
        """Dynamic sizes, and static offsets, sizes and strides of one row of a table."""
        unknown = self.low.ir.ShapedType.get_dynamic_size()
        if type(self.width) is int:
            return [], [[unknown, 0], [1, self.width], [1, 1]]
        return [self.low.size(self.width)], [[unknown, 0], [1, unknown], [1, 1]]
