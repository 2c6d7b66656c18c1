"""Kernels of products with a transposed matrix of f32, f16 or bf16, whose rows are read where they are.

Model files store the weights of linear layers in this way. A few rows are multiplied with each row of the matrix, which is read
once. For many rows, blocks of the matrix are transposed in scratch memory, as f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import transposed
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.library.few_rows import axes_of_columns, has_few_rows, ranges_of_columns
from rlx.kernels.library.narrow_floats import Floats, floats
from rlx.kernels.library.products import LastPanel, MatrixBlocks, Panels, axes_of_transposed, run_panels, tile
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_SUMS = 4  # of a product: they do not wait for each other
_DEPTH = 256  # terms of a block in scratch memory


def _is_known(case: KernelCase) -> bool:
    return all(isinstance(size, int) and size > 0 for size in case.tensors[1].dims)


def _has_few_rows(case: KernelCase) -> bool:
    return _is_known(case) and has_few_rows(case)


def _has_many_rows(case: KernelCase) -> bool:
    return _is_known(case) and not _has_few_rows(case)


@kernel(
    "matmul_transposed", name="transposed_vecmat", takes=_has_few_rows, open_axes=axes_of_columns, stored_weights=True
)
def transposed_vecmat(k: Kernel, x: Buffer, w: Buffer, y: Buffer) -> None:
    """The product of a few rows with a transposed matrix. The bits of a row do not depend on the number of rows."""
    rows, matrix, result = x.rows(), floats(w), y.rows()
    count, columns = rows.shape[0], w.shape[0]
    assert isinstance(count, int)
    at_once = max(1, k.cpu.sums // _SUMS)
    for first, end in ranges_of_columns(k, columns):
        for n in k.range(first, end):
            for start in range(0, count, at_once):
                _multiply(k, (rows, matrix, result), n, range(start, min(start + at_once, count)))


def _multiply(k: Kernel, buffers: tuple[Buffer, Floats, Buffer], n: Value, of: range) -> None:
    """Multiply some rows with a column."""
    rows, matrix, result = buffers
    zero = k.constant(0.0, f32, k.cpu.lanes(f32))
    sums = [[k.register(zero) for _ in range(_SUMS)] for _ in of]
    for c in k.vectors(rows.shape[1], f32, unroll=_SUMS):
        weight = matrix[n, c]
        for r, of_row in zip(of, sums, strict=True):
            total = of_row[c.slot]
            total.value = rows[r, c].fma(weight, total.value)
    for r, of_row in zip(of, sums, strict=True):
        result[r, n] = joined_in_pairs([total.value for total in of_row], k.join("add")).sum()


@kernel(
    "matmul_transposed",
    name="transposed_matmul",
    takes=_has_many_rows,
    plan=LastPanel.of_rows,
    open_axes=axes_of_transposed,
    stored_weights=True,
)
def transposed_matmul(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, plan: LastPanel) -> None:
    """The product of rows with a transposed matrix."""
    columns, elements = w.shape
    assert isinstance(elements, int)
    block = k.scratch(_DEPTH, tile(k.cpu)[1] * k.cpu.lanes(f32))
    source = _TransposedMatrix(k, floats(w), columns, elements)

    def load_block(start: Value, count: Size, places: Sequence[Lanes]) -> None:
        source.load(block, start, count, places)

    blocks = MatrixBlocks(elements, block, load_block)
    rows, result = x.rows(), y.rows()
    run_panels(Panels(k, rows, result, result, blocks, lambda total, row, places: total), columns, plan)


@dataclass(frozen=True)
class _TransposedMatrix:
    """A matrix, the number of its rows, and of the elements of a row."""

    k: Kernel
    matrix: Floats
    rows: Size
    elements: int

    def load(self, block: Buffer, start: Value, count: Size, places: Sequence[Lanes]) -> None:
        """Store terms of the columns of a panel as `[terms, columns]`. Columns after the last one are copies of it."""
        k, lanes = self.k, self.k.cpu.lanes(f32)
        whole = k.index(count) // lanes * lanes
        for n in k.range(0, len(places) * lanes, lanes):
            rows = [k.least(places[0].start + n + i, k.index(self.rows) - 1) for i in range(lanes)]
            for d in k.range(0, whole, lanes):
                self._store(block, rows, k.at(start + d), (d, n))
            if self.elements % lanes:
                for d in k.range(whole, count, lanes):
                    self._store(block, rows, k.first_lanes(start + d, self.elements % lanes), (d, n))

    def _store(self, block: Buffer, rows: Sequence[Value], terms: Lanes, target: tuple[Value, Value]) -> None:
        d, n = target
        for i, vector in enumerate(transposed([self.matrix[row, terms] for row in rows])):
            block[d + i, self.k.at(n)] = vector
