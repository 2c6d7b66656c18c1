"""Kernels of products of matrices, with bias, residual and activation.

A workgroup computes some columns of the result, a panel. It copies a block of the panel's rows of the second matrix to scratch
memory, where they are contiguous, and goes over the rows of the first matrix, several at once, with sums in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.dtype import f32
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Lanes
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.functions import ACTIVATIONS
from rlx.kernels.kernel import UNROLLED, Kernel, joined_in_pairs
from rlx.kernels.library.rows import rows_per_workgroup
from rlx.kernels.registry import KernelCase, kernel
from rlx.kernels.values import Value

_BLOCK_BYTES = 98304  # of the second matrix in scratch memory
_FEWEST_ROWS = 48  # that pay for the copies of blocks
_SHORTEST_COLUMN, _ROWS_OF_COLUMN = 64, 4  # whose product with a matrix pays, and the rows that read it together

# Given a sum, its row and its columns: the element of the result.
Epilogue = Callable[[Value, Value, Lanes], Value]


def _tile(cpu: CpuModel) -> tuple[int, int]:
    """The rows and vectors of columns whose sums fill the registers."""
    return cpu.sums // 3, 3


def _is_product(case: KernelCase) -> bool:
    """Whether a tensor of f32 is multiplied with a matrix of known size."""
    x, w = case.tensors[:2]
    sizes = w.dims
    return case.are_all("f32") and x.rank >= 2 and w.rank == 2 and all(isinstance(d, int) and d > 0 for d in sizes)


def _has_rows(case: KernelCase) -> bool:
    """Whether there are enough rows to pay for the copies of the second matrix."""
    rows = case.tensors[0].dims[:-1]
    count = 1
    for d in rows:
        if not isinstance(d, int):
            return False
        count *= d
    return count >= _FEWEST_ROWS


@kernel("matmul", takes=_is_product, pays=_has_rows)
def matmul(k: Kernel, x: Buffer, w: Buffer, y: Buffer) -> None:
    """The product of the rows of a tensor with a matrix."""
    _product(k, x.rows(), w, y.rows(), lambda total, row, columns: total)


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
    matrix, column, result = x.rows(), w.view(1, inner), y.rows()
    rows = matrix.shape[0]
    chunk = max(1, rows_per_workgroup(inner) // _ROWS_OF_COLUMN)
    # Several rows at once read the column once, and more memory at a time.
    for block in k.parallel(-(-rows // _ROWS_OF_COLUMN), chunk):
        first = block * _ROWS_OF_COLUMN
        for _ in k.when(first + _ROWS_OF_COLUMN <= rows):
            _dot(k, (matrix, column, result), [first + r for r in range(_ROWS_OF_COLUMN)])
        for _ in k.when(first + _ROWS_OF_COLUMN > rows):
            for i in k.range(first, rows):
                _dot(k, (matrix, column, result), [i])


def _dot(k: Kernel, buffers: tuple[Buffer, Buffer, Buffer], rows: Sequence[Value]) -> None:
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


def _adds_row(case: KernelCase) -> bool:
    activation = case.attributes["activation"]
    return _is_product(case) and case.tensors[2].rank == 1 and activation in ACTIVATIONS


@kernel("fused_matmul_bias_act", takes=_adds_row, pays=_has_rows)
def matmul_bias_act(k: Kernel, x: Buffer, w: Buffer, bias: Buffer, y: Buffer, *, activation: str | None) -> None:
    """An activation of a product with a bias."""
    function = ACTIVATIONS[activation]
    _product(k, x.rows(), w, y.rows(), lambda total, row, columns: function(total + bias[columns]))


def _adds_residual(case: KernelCase) -> bool:
    bias = case.operands[3]
    has_row = bias is None or (isinstance(bias, Shape) and bias.rank == 1)
    return _is_product(case) and case.tensors[2] == case.results[0] and has_row


@kernel("fused_matmul_residual", takes=_adds_residual, pays=_has_rows)
def matmul_residual(k: Kernel, x: Buffer, w: Buffer, residual: Buffer, bias: Buffer | None, y: Buffer) -> None:
    """A product with a bias, plus a tensor of the same shape."""
    other = residual.rows()

    def finished(total: Value, row: Value, columns: Lanes) -> Value:
        total = total if bias is None else total + bias[columns]
        return total + other[row, columns]

    _product(k, x.rows(), w, y.rows(), finished)


def _product(k: Kernel, x: Buffer, w: Buffer, y: Buffer, finished: Epilogue) -> None:
    inner, columns = (s for s in w.shape if isinstance(s, int))
    lanes = k.cpu.lanes(f32)
    width = _tile(k.cpu)[1] * lanes
    depth = min(inner, _BLOCK_BYTES // (4 * width))
    block = k.scratch(depth, width)
    whole = columns // width
    for panel in k.parallel(-(-columns // width)):
        first = panel * width
        for _ in k.when(panel < whole) if whole else ():
            _panel(k, (x, w, y), block, [k.at(first + u * lanes) for u in range(width // lanes)], finished)
        if columns % width:
            for _ in k.when(panel == whole):
                part = list(k.vectors(columns, start=whole * width, unroll=width))
                _panel(k, (x, w, y), block, part, finished)


def _panel(
    k: Kernel, matrices: tuple[Buffer, Buffer, Buffer], block: Buffer, columns: Sequence[Lanes], finished: Epilogue
) -> None:
    """Compute the columns of a panel: the first block of rows of the second matrix sets sums, the others add to them."""
    x, w, _ = matrices
    inner, depth = w.shape[0], block.shape[0]
    assert isinstance(inner, int) and isinstance(depth, int)
    rows_at_once = _tile(k.cpu)[0]
    for start in range(0, inner, depth):
        count = min(depth, inner - start)
        for d in k.range(count):
            for u, c in enumerate(columns):
                block[d, k.at(u * c.count)] = w[d + start, c]
        ends = (start == 0, start + count == inner)
        whole = x.shape[0] // rows_at_once * rows_at_once
        for i in k.range(0, whole, rows_at_once):
            _tile_of_rows(k, matrices, block, columns, (i, rows_at_once), (start, count), ends, finished)
        if not isinstance(whole, int) or whole != x.shape[0]:
            for i in k.range(whole, x.shape[0]):
                _tile_of_rows(k, matrices, block, columns, (i, 1), (start, count), ends, finished)


def _tile_of_rows(
    k: Kernel,
    matrices: tuple[Buffer, Buffer, Buffer],
    block: Buffer,
    columns: Sequence[Lanes],
    rows: tuple[Value, int],
    depths: tuple[int, int],
    ends: tuple[bool, bool],
    finished: Epilogue,
) -> None:
    """Compute some rows of a panel, for a block of the second matrix."""
    (x, _, y), (first, many), (start, count) = matrices, rows, depths
    lanes = k.cpu.lanes(f32)
    sums = [
        [k.register(k.constant(0.0, f32, lanes) if ends[0] else y[first + r, c]) for c in columns] for r in range(many)
    ]
    for d in k.range(count):
        factors = [block[d, k.at(u * lanes)] for u in range(len(columns))]
        for r, of_row in enumerate(sums):
            element = x[first + r, d + start].splat(lanes)
            for total, factor in zip(of_row, factors, strict=True):
                total.value = element.fma(factor, total.value)
    for r, of_row in enumerate(sums):
        for total, c in zip(of_row, columns, strict=True):
            value = total.value
            y[first + r, c] = finished(value, first + r, c) if ends[1] else value
