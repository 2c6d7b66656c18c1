"""Kernels that sort the last axis.

Short rows are sorted by ranks: the rank of an element is the number of elements before it in order, which vectors count. Longer
rows are sorted by the digits of their keys, from the lowest digit to the highest one. Both are stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from rlx.ir.dtype import bool_, f32, i32, u32, u64
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX, Element
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value, where

Key = Callable[[Value], Value]
DTYPES = ("f32", "i32", "u32")
_INFINITY = 0x7F800000  # the bits of the greatest f32
_ELEMENTS = 4096  # of a workgroup, if rows are shorter
_SCRATCH = 4096  # the size of the longest rows whose items are in scratch memory between passes
_RANKED = 16  # vectors in the longest rows that are sorted by ranks
# Bits of digits: rows up to a size have short ones, because the numbers of all digits are summed up.
_LONG_DIGIT, _SHORT_DIGIT, _SHORT_ROW = 11, 8, 1500


def order_key(element: Element, descending: bool = False) -> Key:
    """Return the function from the bits of elements, as i32, to numbers of i32 in their order.

    Zeros are equal, and NaN is the greatest.
    """

    def key(bits: Value) -> Value:
        if element is u32:
            bits = bits ^ i32.min
        elif element is f32:
            magnitude, sign = bits & i32.max, bits >> 31
            bits = where(magnitude > _INFINITY, i32.max, (magnitude ^ sign) - sign)
        return ~bits if descending else bits

    return key


def rows_sorted_together(columns: Size) -> int:
    """The number of rows of a workgroup."""
    return max(1, _ELEMENTS // max(1, columns)) if isinstance(columns, int) else 1


def _sorts_rows(case: KernelCase) -> bool:
    """Whether the op works on the last axis of 4-byte numbers."""
    x = case.tensors[0]
    return x.dtype.name in DTYPES and x.rank > 0 and case.attributes["axis"] == x.rank - 1


def _are_not_tiny(case: KernelCase) -> bool:
    """Whether rows are unknown, or have 8 elements or more."""
    columns = case.tensors[0].dims[-1]
    return not isinstance(columns, int) or columns >= 8


def _sort_memory(case: KernelCase) -> Sequence[Shape]:
    x = case.tensors[0]
    return () if fits_scratch(x.dims[-1]) else (x,)


def _argsort_memory(case: KernelCase) -> Sequence[Shape]:
    x = case.tensors[0]
    return () if fits_scratch(x.dims[-1]) else (x.with_dtype("u64"),) * 2


def fits_scratch(columns: object) -> TypeGuard[int]:
    """Whether the items of a row fit scratch memory."""
    return isinstance(columns, int) and columns <= _SCRATCH


def scratch_of(k: Kernel, columns: Size, element: Element) -> Buffer:
    """Scratch memory for the items of a row."""
    assert isinstance(columns, int)
    return k.scratch(1, max(1, columns), element=element)


@kernel("sort", takes=_sorts_rows, pays=_are_not_tiny, workspace=_sort_memory)
def row_sort(k: Kernel, x: Buffer, y: Buffer, *memory: Buffer, axis: int, descending: bool) -> None:
    """Rows in order."""
    key, result = order_key(x.element, descending), y.rows().bits(i32)
    arrays = [m.rows().bits(i32) for m in memory] or [scratch_of(k, x.shape[-1], i32)]
    RowSort(k, x.rows().bits(i32), key, result, [*arrays, result], False).run()


@kernel("argsort", takes=_sorts_rows, pays=_are_not_tiny, workspace=_argsort_memory)
def row_argsort(k: Kernel, x: Buffer, y: Buffer, *memory: Buffer, axis: int, descending: bool) -> None:
    """The positions of the elements of rows in order."""
    arrays = [m.rows() for m in memory] or [scratch_of(k, x.shape[-1], u64) for _ in range(2)]
    RowSort(k, x.rows().bits(i32), order_key(x.element, descending), y.rows(), arrays, True).run()


@dataclass(frozen=True)
class RowSort:
    """A sort of rows by keys. A pass moves items: elements, or pairs of a key and a position.

    Attributes:
        k: The kernel.
        x: The rows, as bits of i32.
        key: The function from bits to numbers of i32 in the order of the result.
        y: The result, of i32: bits of elements, or positions. It has all rows, or is memory for one.
        arrays: Two arrays for items between passes. They have all rows, or are memory for one.
        gives_positions: Whether the result has positions, not elements.
    """

    k: Kernel
    x: Buffer
    key: Key
    y: Buffer
    arrays: Sequence[Buffer]
    gives_positions: bool

    def run(self) -> None:
        """Emit the sort of all rows."""
        rows, columns = self.x.shape
        for i in self.k.parallel(rows, rows_sorted_together(columns)):
            self.sort(i)

    def sort(self, i: Value) -> None:
        """Emit the sort of a row."""
        k, columns = self.k, self.x.shape[1]
        longest = _RANKED * k.cpu.lanes(i32)
        for _ in k.when(columns <= longest):
            self._sort_by_ranks(i, longest)
        for _ in k.when(columns > longest):
            self._sort_by_digits(i)

    # --- ranks ------------------------------------------------------------------------------------

    def _sort_by_ranks(self, i: Value, longest: int) -> None:
        k, columns = self.k, self.x.shape[1]
        keys, ranks = k.scratch(longest, element=i32), k.scratch(longest, element=i32)
        for c in k.vectors(columns, i32):
            key = self.key(self.x[i, c])
            keys[k.at(c.start, i32)] = key if c.mask is None else where(c.mask, key, i32.max)
        for start in k.range(0, columns, k.cpu.lanes(i32)):
            ranks[k.at(start, i32)] = self._ranks(keys, start)
        for j in k.range(columns):
            self.y[_row(self.y, i), ranks[j]] = j.to(i32) if self.gives_positions else self.x[i, j]

    def _ranks(self, keys: Buffer, start: Value) -> Value:
        """The number of elements of a row before each element of a vector in order."""
        k, columns, own = self.k, self.x.shape[1], keys[self.k.at(start, i32)]
        lanes = own.lanes or 1
        rank = k.register(0, i32, lanes)
        for j in k.range(start):
            rank.value = rank.value + (keys[j] <= own).to(i32)
        for lane in range(lanes):
            key, is_later = own.lane(lane), k.constants([other > lane for other in range(lanes)], bool_)
            rank.value = rank.value + ((key < own) | ((key == own) & is_later)).to(i32)
        for j in k.range(start + lanes, columns):
            rank.value = rank.value + (keys[j] < own).to(i32)
        return rank.value

    # --- digits -----------------------------------------------------------------------------------

    def _sort_by_digits(self, i: Value) -> None:
        k, columns = self.k, self.x.shape[1]
        is_short = isinstance(columns, int) and columns <= _SHORT_ROW
        width = _SHORT_DIGIT if is_short else _LONG_DIGIT
        lowest_bits = range(0, 32, width)
        starts = self._starts(i, lowest_bits, 1 << width)
        source = None
        for number, lowest in enumerate(lowest_bits):
            is_last = lowest == lowest_bits[-1]
            target = self.y if is_last else self.arrays[(len(lowest_bits) - number) % 2]
            for j in k.range(columns):
                item = self._item(i, j) if source is None else source[_row(source, i), j]
                bucket = _digit(self._item_key(item), lowest, 1 << width)
                place = starts[number, bucket]
                starts[number, bucket] = place + 1
                target[_row(target, i), place] = self._result(item) if is_last else item
            source = target

    def _starts(self, i: Value, lowest_bits: Sequence[int], buckets: int) -> Buffer:
        """The number of elements with lower digits for each digit of keys."""
        k, numbers = self.k, range(len(lowest_bits))
        starts = k.scratch(len(lowest_bits), buckets, element=u32)
        for number in numbers:
            for c in k.vectors(buckets, u32):
                starts[number, c] = 0
        for j in k.range(self.x.shape[1]):
            key = self._unsigned_key(self.x[i, j])
            for number, lowest in enumerate(lowest_bits):
                bucket = _digit(key, lowest, buckets)
                starts[number, bucket] = starts[number, bucket] + 1
        totals = [k.register(0, u32) for _ in numbers]
        for bucket in k.range(buckets):
            for number, total in zip(numbers, totals, strict=True):
                count = starts[number, bucket]
                starts[number, bucket] = total.value
                total.value = total.value + count
        return starts

    def _item(self, i: Value, j: Value) -> Value:
        if not self.gives_positions:
            return self.x[i, j]
        return (self._unsigned_key(self.x[i, j]).to(u64) << 32) | j.to(u64)

    def _item_key(self, item: Value) -> Value:
        return (item >> 32).to(u32) if self.gives_positions else self._unsigned_key(item)

    def _result(self, item: Value) -> Value:
        return item.to(u32).bits(i32) if self.gives_positions else item

    def _unsigned_key(self, value: Value) -> Value:
        return (self.key(value) ^ i32.min).bits(u32)


def _digit(key: Value, lowest: int, buckets: int) -> Value:
    digit = (key >> lowest) if lowest else key
    return (digit & (buckets - 1)).to(INDEX)


def _row(array: Buffer, i: Value) -> Size:
    """The number of a row in an array of all rows, or of one."""
    return 0 if isinstance(array.shape[0], int) and array.shape[0] == 1 else i
