"""Kernels of running sums, products and maxima along an axis."""

from __future__ import annotations

from rlx.ir.dtype import f32, f64
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel, KernelRegister
from rlx.kernels.library.rows import COLUMNS, rows_per_workgroup, strip_width, strips
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_DTYPES = ("f32", "f64", "i32", "i64", "u32", "u64")


def _takes_numbers(case: KernelCase) -> bool:
    return case.are_all(*_DTYPES) and case.tensors[0].rank > 0


@kernel("cumsum", takes=_takes_numbers)
def running_sum(k: Kernel, x: Buffer, y: Buffer, *, axis: int, exclusive: bool) -> None:
    """The sums of the first elements along an axis."""
    _scan(k, x, y, axis, "add", exclusive)


@kernel("cumprod", takes=_takes_numbers)
def running_product(k: Kernel, x: Buffer, y: Buffer, *, axis: int, exclusive: bool) -> None:
    """The products of the first elements along an axis."""
    _scan(k, x, y, axis, "mul", exclusive)


@kernel("cummax", takes=_takes_numbers)
def running_maximum(k: Kernel, x: Buffer, y: Buffer, *, axis: int) -> None:
    """The greatest of the first elements along an axis."""
    _scan(k, x, y, axis, "max", exclusive=False)


def _scan(k: Kernel, x: Buffer, y: Buffer, axis: int, kind: str, exclusive: bool) -> None:
    before, count, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    outer, inner = product(before), product(after)
    if not after:
        _scan_rows(k, x.view(outer, count), y.view(outer, count), kind, exclusive)
    else:
        height = product([outer, count])
        _scan_columns(k, x.view(height, inner), y.view(height, inner), kind, (outer, count, exclusive))


def _scan_rows(k: Kernel, x: Buffer, y: Buffer, kind: str, exclusive: bool) -> None:
    """Scan the elements of each vector in log2(lanes) steps, and join them with the last element before the vector."""
    rows, columns = x.shape
    neutral = k.neutral(kind, x.element)
    join, lanes = k.join(kind), k.cpu.lanes(x.element)
    for i in k.parallel(rows, rows_per_workgroup(columns)):
        carry = k.register(neutral)
        for c in k.vectors(columns, x.element):
            value = x[i, c] if c.mask is None else k.where(c.mask, x[i, c], neutral)
            total = join(carry.value, _scanned(value, neutral, kind, k))
            y[i, c] = _shifted(total, carry) if exclusive else total
            carry.value = total.shuffle(total, [lanes - 1] * lanes)


def _scanned(value: Value, neutral: Value, kind: str, k: Kernel) -> Value:
    """The joined elements up to each lane of a vector."""
    join, lanes, distance = k.join(kind), value.lanes or 1, 1
    while distance < lanes:
        indices = [lanes + i - distance if i >= distance else i for i in range(lanes)]
        value = join(neutral.shuffle(value, indices), value)
        distance *= 2
    return value


def _shifted(total: Value, carry: KernelRegister) -> Value:
    """The elements of a vector one lane to the right, after the carry."""
    lanes = total.lanes or 1
    return carry.value.shuffle(total, [0, *range(lanes, 2 * lanes - 1)])


def _scan_columns(k: Kernel, x: Buffer, y: Buffer, kind: str, form: tuple[Size, Size, bool]) -> None:
    """Scan the rows of strips of columns from top to bottom."""
    outer, count, exclusive = form
    inner = x.shape[1]
    per_row = strips(inner)
    # Sums of f32 are kept in f64: in order, the rounding errors of f32 would grow with the number of rows.
    element = f64 if kind == "add" and x.element is f32 else x.element
    join, totals, neutral = k.join(kind), k.scratch(COLUMNS, element=element), k.neutral(kind, element)
    for n in k.parallel(product([outer, per_row])):
        top, first = n // per_row * count, n % per_row * COLUMNS
        width = strip_width(k, inner, first)
        for c in k.vectors(width, element):
            totals[c] = neutral
        for row in k.range(top, top + count):
            for c in k.vectors(width, x.element):
                total = join(totals[c], x[row, c + first].to(element))
                y[row, c + first] = (totals[c] if exclusive else total).to(x.element)
                totals[c] = total
