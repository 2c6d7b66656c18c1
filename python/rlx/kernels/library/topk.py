"""A kernel of the greatest elements of rows: a sort if they are many, else a search.

The best elements so far are in a heap whose root is the least of them. Vectors are compared with the root: most have no element
that is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from rlx.ir.dtype import i32, i64, u64
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import UNROLLED, Kernel
from rlx.kernels.library.order import DTYPES, Key, RowSort, fits_scratch, order_key, rows_sorted_together, scratch_of
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_LARGEST = 8192  # entries of a heap in scratch memory
_SORTED = 10  # rows up to this multiple of the number of elements are sorted
_POSITION = 0xFFFFFFFF  # the bits of an entry with the position, inverted


def _takes_numbers(case: KernelCase) -> bool:
    """Whether the elements are 4-byte numbers, and the heap fits scratch memory."""
    return case.tensors[0].dtype.name in DTYPES and 0 < case.attributes["k"] <= _LARGEST


@kernel("topk", takes=_takes_numbers)
def row_topk(code: Kernel, x: Buffer, values: Buffer, indices: Buffer, *, k: int) -> None:
    """The greatest elements of rows, in descending order, and their positions."""
    element = x.element
    x, values, indices = x.rows().bits(i32), values.rows().bits(i32), indices.rows()
    columns = x.shape[1]
    if fits_scratch(columns) and columns < _SORTED * k:
        _sort(code, x, order_key(element, descending=True), values, indices)
    else:
        _Search(code, x, order_key(element), code.scratch(k, element=i64), k).run(values, indices)


def _sort(k: Kernel, x: Buffer, key: Key, values: Buffer, indices: Buffer) -> None:
    """Sort rows, and write the first elements."""
    rows, columns = x.shape
    order = scratch_of(k, columns, i32)
    whole = RowSort(k, x, key, order, [scratch_of(k, columns, u64) for _ in range(2)], True)
    for i in k.parallel(rows, rows_sorted_together(columns)):
        whole.sort(i)
        for j in k.range(values.shape[1]):
            position = order[0, j]
            values[i, j], indices[i, j] = x[i, position], position


@dataclass(frozen=True)
class _Search:
    """The search for the greatest elements of rows.

    An entry of the heap is an element's key, then its inverted position: of equal elements, the first has the greatest entry.

    Attributes:
        k: The kernel.
        x: The rows, as bits of i32.
        key: The function from bits to numbers of i32 in order.
        heap: The best entries so far. An entry is at most its children, `2·p + 1` and `2·p + 2`.
        count: The number of entries.
    """

    k: Kernel
    x: Buffer
    key: Key
    heap: Buffer
    count: int

    def run(self, values: Buffer, indices: Buffer) -> None:
        """Emit the search, which writes the rows of the results."""
        k, (rows, columns) = self.k, self.x.shape
        for i in k.parallel(rows, rows_sorted_together(columns)):
            for j in k.range(self.count):
                self.heap[j] = self._entry(i, j)
            for j in k.range(self.count // 2):
                place = self.count // 2 - 1 - j
                self._sift(self.heap[place], place, self.count)
            self._scan(i)
            for j in k.range(self.count):
                place = self.count - 1 - j
                position = (self.heap[0] ^ _POSITION).to(i32)
                values[i, place], indices[i, place] = self.x[i, position], position
                for _ in k.when(place > 0):
                    self._sift(self.heap[place], 0, place)

    def _scan(self, i: Value) -> None:
        """Offer all other elements to the heap."""
        k, columns, lanes = self.k, self.x.shape[1], self.k.cpu.lanes(i32)
        step = UNROLLED * lanes
        end = (columns - self.count) // step * step + self.count
        for start in k.range(self.count, end, step):
            least = (self.heap[0] >> 32).to(i32)
            starts = [start + n * lanes for n in range(UNROLLED)]
            better = [self.key(self.x[i, k.at(s, i32)]) > least for s in starts]
            for _ in k.when(k.any_lane(reduce(or_, better))):
                for first, condition in zip(starts, better, strict=True):
                    for lane in k.lanes_where(condition):
                        self._offer(i, first + lane)
        for j in k.range(end, columns):
            self._offer(i, j)

    def _offer(self, i: Value, j: Value) -> None:
        """Replace the least entry by an element's, if that is greater."""
        entry = self._entry(i, j)
        for _ in self.k.when(entry > self.heap[0]):
            self._sift(entry, 0, self.count)

    def _entry(self, i: Value, j: Value) -> Value:
        return (self.key(self.x[i, j]).to(i64) << 32) | (j.to(i64) ^ _POSITION)

    def _sift(self, entry: Value, place: Size, size: Size) -> None:
        """Put an entry in a place of the heap or, while a child is less, move the lesser child up and go to its place."""
        k, heap = self.k, self.heap
        hole = k.register(k.index(place))
        for _ in k.repeat():
            left, right = hole.value * 2 + 1, hole.value * 2 + 2
            has_child = left < size
            left = k.where(has_child, left, 0)
            right = k.where(right < size, right, left)
            child = k.where(heap[right] < heap[left], right, left)
            goes_down = has_child & (heap[child] < entry)
            for _ in k.when(goes_down):
                heap[hole.value] = heap[child]
                hole.value = child
            k.stop_unless(goes_down)
        heap[hole.value] = entry
