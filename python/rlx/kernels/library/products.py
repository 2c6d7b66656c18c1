"""Kernels of products of matrices, with bias, residual and activation.

A workgroup computes some columns of the result, a panel. It copies a block of the panel's rows of the second matrix to scratch
memory, where they are contiguous, and goes over the rows of the first matrix, several at once, with sums in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rlx.ir.dtype import f32
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, greatest
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import Element
from rlx.kernels.functions import ACTIVATIONS
from rlx.kernels.kernel import UNROLLED, Kernel, joined_in_pairs
from rlx.kernels.library.narrow_floats import Floats, floats
from rlx.kernels.library.rows import rows_per_workgroup, strip_width, strips
from rlx.kernels.machine import LARGEST_SCRATCH
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_BLOCK_BYTES = 98304  # of the second matrix in scratch memory
_FEWEST_ROWS = 48  # that pay for the copies of blocks
_MOST_OF_FEW = 4  # rows of a product in which each row of the matrix is read once
_FEWER_THAN_BLOCKS, _SMALL_MATRIX = 2, 256  # rows of f32, and elements of a matrix
_STRIP = 512  # columns of a workgroup of such a product
_FACTORS = 8  # elements of rows in registers
_SHORTEST_COLUMN, _ROWS_OF_COLUMN = 64, 4  # whose product with a matrix pays, and the rows that read it together

# Given a sum, its row and its columns: the element of the result.
Epilogue = Callable[[Value, Value, Lanes], Value]


def tile(cpu: CpuModel) -> tuple[int, int]:
    """The rows and vectors of columns whose sums fill the registers."""
    return cpu.sums // 3, 3


def _is_product(case: KernelCase) -> bool:
    """Whether a tensor of f32 or bf16 is multiplied with a matrix of the same dtype and of known size."""
    x, w = case.tensors[:2]
    has_matrix = x.rank >= 2 and w.rank == 2 and all(isinstance(d, int) and d > 0 for d in w.dims)
    return has_matrix and (case.are_all("f32") or case.are_all("bf16"))


def _pays(case: KernelCase) -> bool:
    """Whether there are enough rows to pay for the copies of the second matrix. IREE's products of bf16 are slow for any."""
    rows = rows_of(case)
    return case.are_all("bf16") or (rows is not None and rows >= _FEWEST_ROWS)


def rows_of(case: KernelCase) -> int | None:
    """The number of rows; None if it is not known."""
    known = [d for d in case.tensors[0].dims[:-1] if isinstance(d, int)]
    return math.prod(known) if len(known) == case.tensors[0].rank - 1 else None


def _partial_sums(case: KernelCase) -> list[Shape]:
    """The tensor of the sums of some terms of a product whose result is less exact."""
    result, inner = case.results[0], case.tensors[1].dims[0]
    is_exact = result.dtype is f32 or (isinstance(inner, int) and inner <= _depth(case.cpu, result.dtype))
    return [] if is_exact else [Shape(result.dims, f32)]


@dataclass(frozen=True)
class LastPanel:
    """The last panel of columns, if it has fewer than the others: the code depends on it.

    Attributes:
        vectors: The number of its vectors.
        is_masked: Whether the last of these is not whole.
    """

    vectors: int
    is_masked: bool

    @staticmethod
    def of(case: KernelCase) -> LastPanel:
        columns = case.tensors[1].dims[1]
        assert isinstance(columns, int)
        return LastPanel.of_columns(case.cpu, columns)

    @staticmethod
    def of_rows(case: KernelCase) -> LastPanel:
        """Return the last panel if the rows of the second matrix are the columns."""
        columns = case.tensors[1].dims[0]
        assert isinstance(columns, int)
        return LastPanel.of_columns(case.cpu, columns)

    @staticmethod
    def of_columns(cpu: CpuModel, columns: int) -> LastPanel:
        """Return the last panel of this number of columns."""
        lanes = cpu.lanes(f32)
        rest = columns % (tile(cpu)[1] * lanes)
        return LastPanel(-(-rest // lanes), rest % lanes > 0)


def axes_of_transposed(case: KernelCase) -> list[Axes]:
    """Return the axes of the rows, and that of the columns, in a product with a transposed matrix."""
    rank = case.tensors[0].rank
    return [*([(0, axis), (2, axis)] for axis in range(rank - 1)), [(1, 0), (2, rank - 1)]]


def axes_of_packed(case: KernelCase) -> list[Axes]:
    """Return the axes of the rows, that of the columns, and those of the terms and of their bytes."""
    return [*axes_of_transposed(case), [(0, case.tensors[0].rank - 1)], [(1, 1)]]


def _axes_of_product(case: KernelCase) -> list[Axes]:
    """The axes of the rows and columns, and those of the terms if there are no partial sums."""
    x, matrix, result = case.tensors[0].rank, case.tensors[1], len(case.tensors)
    like_result = [t for t in range(2, result + 1) if t == result or case.tensors[t].rank == x]
    rows = [[(t, axis) for t in (0, *like_result)] for axis in range(x - 1)]
    bias = [(t, 0) for t in range(2, result) if t not in like_result]
    columns = [(1, 1), *bias, *((t, x - 1) for t in like_result)]
    return [*rows, columns, *([[(0, x - 1), (1, 0)]] if matrix.dtype is f32 else [])]


_kernel_of_panels = partial(kernel, pays=_pays, workspace=_partial_sums, plan=LastPanel.of, open_axes=_axes_of_product)


@_kernel_of_panels("matmul", takes=_is_product)
def matmul(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *sums: Buffer, plan: LastPanel) -> None:
    """The product of the rows of a tensor with a matrix."""
    _product(k, (x.rows(), w, y.rows()), lambda total, i, columns: total, sums, plan)


def _has_few_rows(case: KernelCase) -> bool:
    """Whether there are so few rows that most of the time is that of reading the matrix."""
    rows = rows_of(case)
    return _is_product(case) and rows is not None and 0 < rows <= _MOST_OF_FEW


def _reads_matrix_once(case: KernelCase) -> bool:
    """Whether it is of bf16, or IREE's code, which reads blocks of the matrix, is slower: for one or two rows."""
    rows, matrix = rows_of(case), case.tensors[1].num_elements
    is_fast = rows is not None and rows <= _FEWER_THAN_BLOCKS and isinstance(matrix, int) and matrix >= _SMALL_MATRIX
    return case.are_all("bf16") or is_fast


def _axes_of_matrix(case: KernelCase) -> list[Axes]:
    """The axis of the sums and that of the columns."""
    x, matrix, result = 0, 1, 2
    return [[(x, case.tensors[x].rank - 1), (matrix, 0)], [(matrix, 1), (result, case.results[0].rank - 1)]]


@kernel("matmul", name="vecmat", takes=_has_few_rows, pays=_reads_matrix_once, open_axes=_axes_of_matrix)
def vecmat(k: Kernel, x: Buffer, w: Buffer, y: Buffer) -> None:
    """The product of a few rows with a matrix, whose rows are read in long pieces, several at once."""
    rows, matrix, result = floats(x.rows()), floats(w), floats(y.rows())
    count, inner, columns = rows.shape[0], *matrix.shape
    assert isinstance(count, int)
    sums = k.scratch(count, _STRIP)
    at_once = max(1, _FACTORS // count)
    whole = inner // at_once * at_once
    for n in k.parallel(strips(columns, _STRIP)):
        first = n * _STRIP
        width = strip_width(k, columns, first, _STRIP)
        for c in k.vectors(width):
            for r in range(count):
                sums[r, c] = k.constant(0.0, f32, c.count)
        strip = _Strip(k, rows, matrix, sums, first, width)
        for d in k.range(0, whole, at_once):
            strip.add(d, at_once)
        for d in k.range(whole, inner):
            strip.add(d, 1)
        for c in k.vectors(width):
            for r in range(count):
                result[r, c + first] = sums[r, c]


@dataclass(frozen=True)
class _Strip:
    """Some columns of a product with few rows: the sums of the rows in scratch memory."""

    k: Kernel
    x: Floats
    w: Floats
    sums: Buffer
    first: Value
    width: Size

    def add(self, d: Value, count: int) -> None:
        """Add the products with some rows of the matrix."""
        k, rows = self.k, range(self.sums.shape[0])  # type: ignore[arg-type]
        lanes = k.cpu.lanes(f32)
        factors = [[self.x[r, d + u].splat(lanes) for u in range(count)] for r in rows]
        for c in k.vectors(self.width, unroll=1 if len(rows) > 1 else 2):
            values = [self.w[d + u, c + self.first] for u in range(count)]
            for own, r in zip(factors, rows, strict=True):
                total = self.sums[r, c]
                for factor, value in zip(own, values, strict=True):
                    total = factor.fma(value, total)
                self.sums[r, c] = total


def _is_matvec(case: KernelCase) -> bool:
    """Whether a matrix is multiplied with a column."""
    return _is_product(case) and case.tensors[1].dims[-1] == 1


def _is_long(case: KernelCase) -> bool:
    inner = case.tensors[1].dims[0]
    return isinstance(inner, int) and inner >= _SHORTEST_COLUMN


@kernel("matmul", name="matvec", takes=_is_matvec, pays=_is_long)
def matvec(k: Kernel, x: Buffer, w: Buffer, y: Buffer) -> None:
    """The products of the rows of a tensor with a column."""
    inner = w.shape[0]
    matrix, column, result = floats(x.rows()), floats(w.view(1, inner)), floats(y.rows())
    rows = matrix.shape[0]
    chunk = greatest(1, rows_per_workgroup(inner) // _ROWS_OF_COLUMN)
    # Several rows at once read the column once, and more memory at a time.
    for block in k.parallel(-(-rows // _ROWS_OF_COLUMN), chunk):
        first = block * _ROWS_OF_COLUMN
        for _ in k.when(first + _ROWS_OF_COLUMN <= rows):
            _dot(k, (matrix, column, result), [first + r for r in range(_ROWS_OF_COLUMN)])
        for _ in k.when(first + _ROWS_OF_COLUMN > rows):
            for i in k.range(first, rows):
                _dot(k, (matrix, column, result), [i])


def _dot(k: Kernel, buffers: tuple[Floats, Floats, Floats], rows: Sequence[Value]) -> None:
    """Multiply some rows of a matrix with a column."""
    matrix, column, result = buffers
    slots = UNROLLED // 2 if len(rows) > 1 else UNROLLED
    sums = [[k.register(k.neutral("add", f32)) for _ in range(slots)] for _ in rows]
    for c in k.vectors(column.shape[1], f32, unroll=slots):
        factor = column[0, c]
        for i, of_row in zip(rows, sums, strict=True):
            of_row[c.slot].value = matrix[i, c].fma(factor, of_row[c.slot].value)
    for i, of_row in zip(rows, sums, strict=True):
        result[i, 0] = joined_in_pairs([total.value for total in of_row], k.join("add")).sum()


def _is_row(bias: Shape, matrix: Shape) -> bool:
    """Whether a bias has a number for each column."""
    return bias.dims == matrix.dims[1:]


def _adds_row(case: KernelCase) -> bool:
    matrix, bias = case.tensors[1:3]
    return _is_product(case) and _is_row(bias, matrix) and case.attributes["activation"] in ACTIVATIONS


@_kernel_of_panels("fused_matmul_bias_act", takes=_adds_row)
def matmul_bias_act(
    k: Kernel,
    x: Buffer,
    w: Buffer,
    bias: Buffer,
    y: Buffer,
    *sums: Buffer,
    plan: LastPanel,
    activation: str | None,
) -> None:
    """An activation of a product with a bias."""
    function, row = ACTIVATIONS[activation], floats(bias)
    _product(k, (x.rows(), w, y.rows()), lambda total, i, columns: function(total + row[columns]), sums, plan)


def _adds_residual(case: KernelCase) -> bool:
    bias, matrix = case.operands[3], case.tensors[1]
    has_row = bias is None or (isinstance(bias, Shape) and _is_row(bias, matrix))
    return _is_product(case) and case.tensors[2] == case.results[0] and has_row


@_kernel_of_panels("fused_matmul_residual", takes=_adds_residual)
def matmul_residual(
    k: Kernel,
    x: Buffer,
    w: Buffer,
    residual: Buffer,
    bias: Buffer | None,
    y: Buffer,
    *sums: Buffer,
    plan: LastPanel,
) -> None:
    """A product with a bias, plus a tensor of the same shape."""
    other, row = floats(residual.rows()), None if bias is None else floats(bias)

    def finished(total: Value, i: Value, columns: Lanes) -> Value:
        total = total if row is None else total + row[columns]
        return total + other[i, columns]

    _product(k, (x.rows(), w, y.rows()), finished, sums, plan)


def _depth(cpu: CpuModel, element: Element) -> int:
    """The rows of the second matrix in a block. The rows of the first one, if they are of bf16, are in scratch memory too."""
    (rows, vectors), lanes = tile(cpu), cpu.lanes(f32)
    if element is f32:
        return _BLOCK_BYTES // (4 * vectors * lanes)
    return LARGEST_SCRATCH // (4 * (vectors * lanes + rows))


def _product(
    k: Kernel, tensors: tuple[Buffer, Buffer, Buffer], finished: Epilogue, sums: Sequence[Buffer], last: LastPanel
) -> None:
    """Compute a product.

    Args:
        k: The kernel.
        tensors: The rows, the matrix, and the result.
        finished: The function that is applied to each sum.
        sums: The tensors of `_partial_sums`.
        last: The last panel.
    """
    x, w, y = tensors
    columns, depth = w.shape[1], _depth(k.cpu, w.element)
    rows_at_once, vectors = tile(k.cpu)
    block = k.scratch(depth, vectors * k.cpu.lanes(f32))
    matrix, factors = floats(w), floats(x)
    # The elements of bf16 rows are converted in vectors before they are read one after the other.
    rows = None if x.element is f32 else k.scratch(rows_at_once, depth)

    def load_block(start: Value, count: Size, places: Sequence[Lanes]) -> None:
        for d in k.range(count):
            for u, c in enumerate(places):
                block[d, k.at(u * c.count)] = matrix[start + d, c]

    def load_rows(first: Value, many: int, start: Value, count: Size) -> None:
        assert rows is not None
        for r in range(many):
            for c in k.vectors(count, f32, unroll=1):
                rows[r, c] = factors[first + r, c + start]

    result = floats(y)
    partial_sums = sums[0].rows() if sums else result
    source = MatrixBlocks(w.shape[0], block, load_block, rows, load_rows)
    run_panels(Panels(k, factors, result, partial_sums, source, finished), columns, last)


@dataclass(frozen=True)
class MatrixBlocks:
    """Blocks of rows of the second matrix, in scratch memory.

    Attributes:
        inner: The number of all rows.
        block: The memory of a block, `[depth, columns of a panel]`.
        load: Fills the block: given its first row, the number of its rows, and the columns of the panel.
        rows: Memory for the same part of some rows of the first matrix, if these are not read where they are.
        load_rows: Fills it: given the first row, the number of rows, and the first term and number of terms.
    """

    inner: Size
    block: Buffer
    load: Callable[[Value, Size, Sequence[Lanes]], None]
    rows: Buffer | None = None
    load_rows: Callable[[Value, int, Value, Size], None] | None = None


def run_panels(panels: Panels, columns: Size, last: LastPanel) -> None:
    """Emit the loop over the panels of a product."""
    k, lanes, vectors = panels.k, panels.k.cpu.lanes(f32), tile(panels.k.cpu)[1]
    width = vectors * lanes
    whole = columns // width
    for panel in k.parallel(ceil_div(columns, width)):
        first = panel * width
        for _ in k.when(panel < whole):
            panels.run([k.at(first + u * lanes) for u in range(vectors)])
        if last.vectors:
            for _ in k.when(panel == whole):
                places = [k.at(first + u * lanes) for u in range(last.vectors)]
                if last.is_masked:
                    places[-1] = k.first_lanes(places[-1].start, columns % lanes)
                panels.run(places)


@dataclass(frozen=True)
class Panels:
    """The product of a workgroup: the rows, the result, its partial sums, and blocks of the second matrix."""

    k: Kernel
    x: Floats
    y: Floats
    partial: Floats
    source: MatrixBlocks
    finished: Epilogue

    def run(self, columns: Sequence[Lanes]) -> None:
        """Compute the columns of a panel: the first block of rows of the second matrix sets sums, the others add to them."""
        k, rows, source = self.k, self.x.shape[0], self.source
        depth, rows_at_once = source.block.shape[0], tile(self.k.cpu)[0]
        for start in k.range(0, source.inner, depth):
            count = k.least(depth, source.inner - start)
            source.load(start, count, columns)
            whole = rows // rows_at_once * rows_at_once
            for i in k.range(0, whole, rows_at_once):
                self._tile_of_rows(columns, (i, rows_at_once), (start, count))
            for i in k.range(whole, rows):
                self._tile_of_rows(columns, (i, 1), (start, count))

    def _tile_of_rows(self, columns: Sequence[Lanes], rows: tuple[Value, int], depths: tuple[Value, Value]) -> None:
        """Compute some rows of a panel, for a block of the second matrix."""
        k, (first, many), (start, count), source = self.k, rows, depths, self.source
        lanes, end = k.cpu.lanes(f32), start + count
        zero = k.constant(0.0, f32, lanes)
        sums = [[k.register(zero) for _ in columns] for _ in range(many)]
        for _ in k.when(start > 0):
            for r, of_row in enumerate(sums):
                for total, c in zip(of_row, columns, strict=True):
                    total.value = self.partial[first + r, c]
        if source.rows is not None:
            assert source.load_rows is not None
            source.load_rows(first, many, start, count)
        for d in k.range(count):
            factors = [source.block[d, k.at(u * lanes)] for u in range(len(columns))]
            for r, of_row in enumerate(sums):
                element = self.x[first + r, d + start] if source.rows is None else source.rows[r, d]
                for total, factor in zip(of_row, factors, strict=True):
                    total.value = element.splat(lanes).fma(factor, total.value)
        for _ in k.when(end < source.inner):
            for r, of_row in enumerate(sums):
                for total, c in zip(of_row, columns, strict=True):
                    self.partial[first + r, c] = total.value
        for _ in k.when(end >= source.inner):
            for r, of_row in enumerate(sums):
                for total, c in zip(of_row, columns, strict=True):
                    self.y[first + r, c] = self.finished(total.value, first + r, c)
