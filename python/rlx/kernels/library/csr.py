"""Kernels of products with sparse matrices in rows (CSR)."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import i64
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_ROWS = 8192  # of a workgroup, which takes some 20 µs


def _position(value: Value) -> Value:
    return value.to(i64).to(INDEX)


def _is_real(case: KernelCase) -> bool:
    numbers = [t for t in (*case.tensors, *case.results) if t.dtype.name not in ("i32", "i64")]
    return all(t.dtype.name in ("f32", "f64") for t in numbers)


def _has_rows(case: KernelCase) -> bool:
    """Whether there is a row whose workgroup also writes the entries outside of all rows."""
    offsets = case.tensors[1].dims[0]
    return _is_real(case) and isinstance(offsets, int) and offsets > 1


class _SparseRows:
    """The rows of a matrix.

    Args:
        k: The kernel.
        indices: The columns of the entries.
        indptr: The offsets of the rows.
        columns: The number of columns.
        width: As in `csr_matmul`. If it is 0, offsets are limited to those of entries.
    """

    def __init__(self, k: Kernel, indices: Buffer, indptr: Buffer, columns: Size, width: int):
        self._kernel, self._indices, self._indptr = k, indices, indptr
        self._columns, self._is_known = k.index(columns), width > 0

    def entries(self, i: Value) -> Iterator[tuple[Value, Value]]:
        """Loop over the entries of a row whose column exists: their positions and columns.

        The branches cost nothing where they are always taken, whereas limited positions would delay each read.
        """
        k, start, stop = self._kernel, _position(self._indptr[i]), _position(self._indptr[i + 1])
        if self._is_known:
            yield from self._loop(start, stop)
            return
        (entries,) = self._indices.shape
        is_inside = (start >= 0) & (stop <= k.index(entries))
        for _ in k.when(is_inside):
            yield from self._loop(start, stop)
        for _ in k.when(~is_inside):
            yield from self._loop(start.maximum(0), stop.minimum(entries))

    def _loop(self, start: Value, stop: Value) -> Iterator[tuple[Value, Value]]:
        for j in self._kernel.range(start, stop):
            column = _position(self._indices[j])
            for _ in self._kernel.when((column >= 0) & (column < self._columns)):
                yield j, column


@kernel("csr_matmul", name="csr_rows", takes=_is_real)
def csr_rows(k: Kernel, data: Buffer, indices: Buffer, indptr: Buffer, x: Buffer, y: Buffer, *, width: int) -> None:
    """Each row of the result, as a sum over the entries of the row of the matrix."""
    columns, inner = x.shape[0], product(x.shape[1:])
    rows = _SparseRows(k, indices, indptr, columns, width)
    for i in k.parallel(y.shape[0], _ROWS):
        if x.rank == 1:
            total = k.register(0.0, y.element)
            for j, column in rows.entries(i):
                total.value = data[j] * x[column] + total.value
            y[i] = total.value
            continue
        source, target = x.view(columns, inner), y.view(y.shape[0], inner)
        for c in k.vectors(inner, y.element):
            sums = k.register(0.0, y.element, k.cpu.lanes(y.element))
            for j, column in rows.entries(i):
                sums.value = source[column, c] * data[j] + sums.value
            target[i, c] = sums.value


@kernel("csr_matmul_transposed", name="csr_columns", takes=_is_real)
def csr_columns(
    k: Kernel,
    data: Buffer,
    indices: Buffer,
    indptr: Buffer,
    x: Buffer,
    y: Buffer,
    *,
    columns: tuple[Dim],
    width: int,
) -> None:
    """The rows of x, each added to the rows of the result that its entries name, one after another."""
    flat = y.view(product(y.shape))
    for c in k.vectors(flat.shape[0], y.element):
        flat[c] = k.constant(0, y.element, k.cpu.lanes(y.element))
    inner = product(x.shape[1:])
    source, target = x.view(x.shape[0], inner), y.view(y.shape[0], inner)
    rows = _SparseRows(k, indices, indptr, y.shape[0], width)
    for i in k.range(x.shape[0]):
        if x.rank == 1:
            value = x[i]
            for j, column in rows.entries(i):
                y[column] = data[j] * value + y[column]
            continue
        for j, column in rows.entries(i):
            for c in k.vectors(inner, y.element):
                target[column, c] = source[i, c] * data[j] + target[column, c]


@kernel("csr_sampled_matmul", name="csr_entries", takes=_has_rows)
def csr_entries(k: Kernel, indices: Buffer, indptr: Buffer, x: Buffer, y: Buffer, z: Buffer, *, width: int) -> None:
    """The inner product of two rows for each entry. The first and the last row clear the entries outside of all rows."""
    (entries,), columns, inner = indices.shape, y.shape[0], product(x.shape[1:])
    left, right = x.view(x.shape[0], inner), y.view(columns, inner)
    rows, last = _SparseRows(k, indices, indptr, columns, width), k.index(x.shape[0]) - 1
    for i in k.parallel(x.shape[0], _ROWS):
        start, stop = (_position(indptr[i + n]).maximum(0).minimum(entries) for n in (0, 1))
        for j in k.range(k.where(i == 0, 0, start), k.where(i == last, k.index(entries), stop)):
            z[j] = k.constant(0, z.element)
        for j, column in rows.entries(i):
            if x.rank == 1:
                z[j] = x[i] * y[column]
                continue
            total = k.accumulator("add", z.element)
            for c in k.vectors(inner, z.element):
                total.include(c, left[i, c] * right[column, c])
            z[j] = total.result()
