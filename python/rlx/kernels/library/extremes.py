"""Kernels of the positions of extremes."""

from __future__ import annotations

from collections.abc import Callable

from rlx.ir.dtype import f32, i32
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import UNROLLED, Kernel, joined_in_pairs
from rlx.kernels.library.rows import rows_per_workgroup
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_SHORTEST_ROW = 32  # that pays
_VECTORS = 32  # of a block
_LAST = 2**31 - 1


def _is_last_axis(case: KernelCase) -> bool:
    x = case.tensors[0]
    return x.dtype.name in ("f32", "i32") and x.rank > 0 and case.attributes["axis"] == x.rank - 1


def _has_long_rows(case: KernelCase) -> bool:
    columns = case.tensors[0].dims[-1]
    return not isinstance(columns, int) or columns >= _SHORTEST_ROW


@kernel("argmax", name="row_argmax", takes=_is_last_axis, pays=_has_long_rows)
def row_argmax(k: Kernel, x: Buffer, y: Buffer, *, axis: int, keep_dims: bool) -> None:
    """The first position of the greatest element of each row, or of NaN."""
    _first_position(k, x, y, "max")


@kernel("argmin", name="row_argmin", takes=_is_last_axis, pays=_has_long_rows)
def row_argmin(k: Kernel, x: Buffer, y: Buffer, *, axis: int, keep_dims: bool) -> None:
    """The first position of the smallest element of each row, or of NaN."""
    _first_position(k, x, y, "min")


def _first_position(k: Kernel, x: Buffer, y: Buffer, kind: str) -> None:
    source, target = x.rows(), y.view(product(y.shape))
    rows, columns = source.shape
    step = _VECTORS * k.cpu.lanes(x.element)
    grouped = columns // step * step
    for i in k.parallel(rows, rows_per_workgroup(columns)):
        search = _RowSearch(k, source, i, kind)
        if not isinstance(grouped, int) or grouped:
            for start in k.range(0, grouped, step):
                search.add_block(start)
        target[i] = search.result(grouped)


class _RowSearch:
    """The search in a row: whole blocks of vectors are compared by their extremes, then the best block is searched.

    Args:
        k: The kernel.
        x: The rows.
        i: The row.
        kind: `"max"` or `"min"`.
    """

    def __init__(self, k: Kernel, x: Buffer, i: Value, kind: str) -> None:
        self.k, self.x, self.i, self.kind = k, x, i, kind
        self.lanes, self.is_float = k.cpu.lanes(x.element), x.element.is_float
        self.worst = k.neutral(kind, x.element)
        self.extreme, self.start = k.register(self.worst.lane(0)), k.register(k.index(0))
        self.first_nan = k.register(_LAST, i32)

    def add_block(self, start: Value) -> None:
        """Compare the extreme of a block with that of the blocks before."""
        k, lanes = self.k, self.lanes
        extremes = [k.register(self.worst) for _ in range(UNROLLED)]
        # A sum of numbers that are not NaN is NaN only if there are infinities of both signs, which is rare.
        sums = [k.register(k.neutral("add", f32)) for _ in range(UNROLLED if self.is_float else 0)]
        for v in k.range(0, _VECTORS * lanes, UNROLLED * lanes):
            for u, own in enumerate(extremes):
                value = self.x[self.i, k.at(start + (v + u * lanes))]
                own.value = self._better(value, own.value)
                if self.is_float:
                    sums[u].value = sums[u].value + value
        found = joined_in_pairs([own.value for own in extremes], self._better).joined(self._better)
        for _ in k.when(self._is_better(found, self.extreme.value)):
            self.extreme.value, self.start.value = found, start
        if self.is_float:
            total = joined_in_pairs([own.value for own in sums], k.join("add"))
            for _ in k.when(k.any_lane(total != total)):
                self.first_nan.value = self.first_nan.value.minimum(self._first_in_block(start, lambda v: v != v))

    def result(self, grouped: Size) -> Value:
        """The position, after all blocks. The elements from `grouped` on belong to none."""
        k, columns = self.k, self.x.shape[1]
        rest, first = k.accumulator(self.kind, self.x.element), k.accumulator("min", i32)
        for c in k.vectors(columns, self.x.element, start=grouped):
            rest.include(c, self.x[self.i, c])
        extreme = rest.result()
        for c in k.vectors(columns, self.x.element, start=grouped):
            value = self.x[self.i, c]
            is_found = (value == extreme.splat(self.lanes)) | (value != value)
            first.include(c, k.where(is_found, self._positions(c.start), _LAST))
        position = k.register(first.result())
        if not isinstance(grouped, int) or grouped:
            is_in_block = ~(self._is_better(extreme, self.extreme.value) | (extreme != extreme)) & (
                k.index(grouped) > 0
            )
            best = self.extreme.value.splat(self.lanes)
            for _ in k.when(is_in_block):
                position.value = self._first_in_block(self.start.value, lambda v: v == best)
        nan = self.first_nan.value
        return k.where(nan < _LAST, nan, position.value)

    def _better(self, a: Value, b: Value) -> Value:
        """The better one of two values, or b if one is NaN."""
        return a.greater_or_second(b) if self.kind == "max" else a.less_or_second(b)

    def _is_better(self, a: Value, b: Value) -> Value:
        return a > b if self.kind == "max" else a < b

    def _positions(self, start: Size) -> Value:
        """The positions of the lanes of a vector that begins at a position."""
        return self.k.index(start).to(i32).splat(self.lanes) + self.k.constants(range(self.lanes), i32)

    def _first_in_block(self, start: Value, is_found: Callable[[Value], Value]) -> Value:
        """The first position in a block whose element meets a condition."""
        k = self.k
        first = k.register(_LAST, i32, self.lanes)
        for v in k.range(0, _VECTORS * self.lanes, self.lanes):
            position = k.where(is_found(self.x[self.i, k.at(start + v)]), self._positions(start + v), _LAST)
            first.value = first.value.minimum(position)
        return first.value.joined(k.join("min"))
