"""Kernels of the positions of extremes: the greatest number of a row, then the first position that has it."""

from __future__ import annotations

from rlx.ir.dtype import i32
from rlx.kernels.buffer import Buffer, product
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.rows import rows_per_workgroup
from rlx.kernels.registry import KernelCase, kernel

_SHORTEST_ROW = 32  # that pays


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
    lanes, last = k.cpu.lanes(x.element), 2**31 - 1
    for i in k.parallel(rows, rows_per_workgroup(columns)):
        extreme = k.accumulator(kind, x.element)
        for c in k.vectors(columns, x.element):
            extreme.include(c, source[i, c])
        found, first = extreme.result().splat(lanes), k.accumulator("min", i32)
        for c in k.vectors(columns, x.element):
            value = source[i, c]
            is_found = value == found
            if x.element.is_float:
                is_found = is_found | (value != value)  # NaN
            position = k.index(c.start).to(i32).splat(lanes) + k.constants(range(lanes), i32)
            first.include(c, k.where(is_found, position, last))
        target[i] = first.result()
