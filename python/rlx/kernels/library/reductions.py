"""Kernels of reductions over adjacent axes.

A tensor is seen as `[outer, count, inner]`, and the axis in the middle is reduced. If nothing is inside of it, rows are
reduced, else columns, several rows at once, because memory is read in long pieces then.
"""

from __future__ import annotations

from rlx.ir.dtype import f32, f64
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.kernel import Accumulator, Kernel, joined_in_pairs
from rlx.kernels.library.rows import COLUMNS, are_fewer, is_short, rows_per_workgroup, strip_width, strips
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_JOINS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}
_DTYPES = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_SUMS = 8  # of a row, because an addition takes the time of eight others
_ROWS = 8  # rows that are added to each other before they are added to a sum: three additions deep
_LONGEST = 4096  # the longest sum of f32 that is accumulated in f32


def _axes(case: KernelCase) -> tuple[int, ...]:
    return case.attributes["axes"]


def _reduces_adjacent_axes(case: KernelCase) -> bool:
    axes = _axes(case)
    is_adjacent = bool(axes) and axes == tuple(range(axes[0], axes[-1] + 1))
    return is_adjacent and case.are_all(*_DTYPES) and (case.attributes["kind"] != "mean" or case.are_all("f32", "f64"))


def _reduces_long_pieces(case: KernelCase) -> bool:
    """Whether at least 4096 elements are read, in rows of 32 elements or more."""
    x = case.tensors[0]
    return not are_fewer(x.dims[_start_of_row(case) :], 32) and not are_fewer(x.dims, 4096)


def _start_of_row(case: KernelCase) -> int:
    """The first axis of the rows that are read: of what is reduced, or of what is inside of it."""
    axes = _axes(case)
    return axes[0] if axes[-1] == case.tensors[0].rank - 1 else axes[-1] + 1


def _is_long(case: KernelCase) -> bool:
    """Whether a sum of f32 is accumulated in f64."""
    x, axes = case.tensors[0], _axes(case)
    is_sum = x.dtype is f32 and _JOINS[case.attributes["kind"]] == "add"
    return is_sum and not are_fewer(x.dims[axes[0] : axes[-1] + 1], _LONGEST + 1)


def _open_axes(case: KernelCase) -> list[Axes]:
    """All axes except those of short rows."""
    x, axes, keeps = case.tensors[0], _axes(case), case.attributes["keep_dims"]
    start = _start_of_row(case)
    open_axes: list[Axes] = []
    for axis in range(start if is_short(x.dims[start:]) else x.rank):
        kept = [(1, axis if keeps or axis < axes[0] else axis - len(axes))]
        open_axes.append([(0, axis), *(() if axis in axes else kept)])
    return open_axes


@kernel("reduce", takes=_reduces_adjacent_axes, pays=_reduces_long_pieces, plan=_is_long, open_axes=_open_axes)
def reduce(k: Kernel, x: Buffer, y: Buffer, *, plan: bool, kind: str, axes: tuple[int, ...], keep_dims: bool) -> None:
    """The sum, mean, product, maximum or minimum over adjacent axes."""
    before, count, after = x.shape[: axes[0]], product(x.shape[axes[0] : axes[-1] + 1]), x.shape[axes[-1] + 1 :]
    outer, inner = product(before), product(after)
    if not after:
        _reduce_rows(k, x.view(outer, count), y.view(outer), kind, is_long=plan)
    else:
        tensors = x.view(product([outer, count]), inner), y.view(outer, inner)
        _reduce_columns(k, tensors, kind, count, is_long=plan)


def _reduce_rows(k: Kernel, x: Buffer, y: Buffer, kind: str, *, is_long: bool) -> None:
    rows, columns = x.shape
    for i in k.parallel(rows, rows_per_workgroup(columns)):
        total = k.accumulator(_JOINS[kind], x.element, _SUMS)
        if is_long:
            result = _long_sum(k, x, i, total).to(f32)
        else:
            for c in k.vectors(columns, x.element, unroll=_SUMS):
                total.include(c, x[i, c])
            result = total.result()
        y[i] = result / k.number(columns, x.element) if kind == "mean" else result


def _long_sum(k: Kernel, x: Buffer, i: Value, rest: Accumulator) -> Value:
    """The sum of a row of f32 as f64: vectors are added in groups of eight, and their sums in f64."""
    columns, lanes = x.shape[1], k.cpu.lanes(f32)
    step = _ROWS * lanes
    grouped = columns // step * step
    total = k.register(0.0, f64, lanes)
    for j in k.range(0, grouped, step):
        parts = [x[i, k.at(j + r * lanes if r else j)] for r in range(_ROWS)]
        total.value = total.value + joined_in_pairs(parts, k.join("add")).to(f64)
    for c in k.vectors(columns, start=grouped):
        rest.include(c, x[i, c])
    return total.value.sum() + rest.result().to(f64)


def _reduce_columns(k: Kernel, tensors: tuple[Buffer, Buffer], kind: str, count: Size, *, is_long: bool) -> None:
    x, y = tensors
    outer, inner = y.shape
    per_row = strips(inner)
    totals = k.scratch(COLUMNS, element=f64 if is_long else x.element)
    for n in k.parallel(product([outer, per_row])):
        i, first = n // per_row, n % per_row * COLUMNS
        width = strip_width(k, inner, first)
        start = k.neutral(_JOINS[kind], totals.element)
        for c in k.vectors(width, totals.element):
            totals[c] = start
        _add_rows(k, x, i * count, count, (first, width), totals, kind)
        for c in k.vectors(width, x.element):
            result = totals[c].to(x.element)
            y[i, c + first] = result / k.number(count, x.element) if kind == "mean" else result


def _add_rows(
    k: Kernel, x: Buffer, top: Value, count: Size, strip: tuple[Value, Size], totals: Buffer, kind: str
) -> None:
    """Join the rows of a strip to its totals: groups of eight first."""
    first, width = strip
    join = k.join(_JOINS[kind])
    grouped = count // _ROWS * _ROWS

    def add(row: Value, number: int) -> None:
        for c in k.vectors(width, x.element, unroll=1):
            parts = [x[row + r if r else row, c + first] for r in range(number)]
            totals[c] = join(totals[c], joined_in_pairs(parts, join).to(totals.element))

    for r in k.range(0, grouped, _ROWS):
        add(top + r, _ROWS)
    for r in k.range(grouped, count):
        add(top + r, 1)
