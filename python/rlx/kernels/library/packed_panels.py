"""The kernel of products of many rows with a packed matrix: blocks of it are decoded to scratch memory as f32.

The product of a panel is that of `products.py`. A block has 256 terms of each column, which are stored in the order of the
packed rows first, and then transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import transposed
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.packed_floats import find_float_format, takes_few_rows_of_floats
from rlx.kernels.library.packed_formats import PackedBytes
from rlx.kernels.library.packed_layouts import find_format, format_of
from rlx.kernels.library.packed_rounding import rounding
from rlx.kernels.library.products import LastPanel, MatrixBlocks, Panels, axes_of_packed, run_panels, tile
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.quantization.packed import LIMITS
from rlx.schemes import Scheme, find_scheme

_DEPTH = 256  # terms of a block: a multiple of the elements of a packed block
_GROUP = 32  # elements that are decoded at a time


def _decode(code: PackedBytes, scheme: Scheme, at: Value, target: tuple[Buffer, Value, Value]) -> None:
    """Decode a block.

    Args:
        code: The packed bytes.
        scheme: The format.
        at: The position of the block.
        target: The memory for f32 elements `[columns, 256]`, the row, and the first position in it.
    """
    k, (memory, row, first) = code.k, target
    floats = find_float_format(scheme.name)
    if floats is not None:
        lanes = k.cpu.lanes(f32)
        scale = floats.factor(code, at).splat(lanes)
        for number, elements in enumerate(floats.vectors(code, at)):
            memory[row, k.at(first + number * lanes)] = elements * scale
        return
    packed = format_of(scheme.name)
    factor, least = packed.factor(code, at), packed.least and packed.least(code, at)
    scales = minima = None
    if packed.scales is not None:
        integers = packed.scales(code, at)
        scales = integers.scales.to(f32) * factor.splat(16)
        minima = None if least is None else integers.minima.to(f32) * least.splat(16)
    groups = scheme.block // packed.group
    for number, step in enumerate(packed.steps(code, at)):
        places = [(number * _GROUP + i) // packed.group for i in range(_GROUP)]
        scale = factor.splat(_GROUP) if scales is None else scales.shuffle(scales, places)
        values = (step.to(f32) - float(packed.offset)) * scale
        if minima is not None:
            values = values - minima.shuffle(minima, [16 - groups + place for place in places])
        elif least is not None:
            values = values - least.splat(_GROUP)
        memory[row, k.at(first + number * _GROUP, f32, _GROUP)] = values


def _takes(case: KernelCase) -> bool:
    w = case.tensors[1]
    is_known = all(isinstance(size, int) and size > 0 for size in w.dims)
    scheme = case.attributes["scheme"]
    if find_float_format(scheme) is not None:
        return is_known and not takes_few_rows_of_floats(case)
    return is_known and case.attributes["activations"] != "i8" and find_format(scheme) is not None


@kernel(
    "dequant_matmul",
    name="packed_matmul",
    takes=_takes,
    plan=LastPanel.of_rows,
    open_axes=axes_of_packed,
    stored_weights=True,
)
def packed_matmul(
    k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, scheme: str, activations: str, plan: LastPanel
) -> None:
    """The product of rows with a packed matrix."""
    packing, factors, result = find_scheme(scheme), x.rows(), y.rows()
    columns, row_bytes = w.shape
    inner = row_bytes // packing.nbytes * packing.block
    rows_at_once, vectors = tile(k.cpu)
    width = vectors * k.cpu.lanes(f32)
    source = _PackedMatrix(k, packing, PackedBytes(k, w.view(columns * row_bytes), _GROUP), row_bytes, columns)
    block, decoded = k.scratch(_DEPTH, width), k.scratch(width, _DEPTH)
    rows = None if activations == "f32" else k.scratch(rows_at_once, _DEPTH)

    def load_block(start: Value, count: Size, places: Sequence[Lanes]) -> None:
        source.decode(decoded, start, count, places)
        _transpose(k, decoded, block, len(places), count)

    def load_rows(first: Value, many: int, start: Value, count: Size) -> None:
        assert rows is not None
        for r in range(many):
            _round_row(k, (factors, first + r, start), (rows, r), count, packing.block, LIMITS[activations])

    run_panels(
        Panels(k, factors, result, result, MatrixBlocks(inner, block, load_block, rows, load_rows), _plain),
        columns,
        plan,
    )


def _plain(total: Value, row: Value, columns: Lanes) -> Value:
    return total


@dataclass(frozen=True)
class _PackedMatrix:
    """A packed matrix: its format, its bytes, the bytes of a row, and the number of rows."""

    k: Kernel
    scheme: Scheme
    code: PackedBytes
    row_bytes: Size
    columns: Size

    def decode(self, memory: Buffer, start: Value, count: Size, places: Sequence[Lanes]) -> None:
        """Decode terms of the columns of a panel, `[columns, 256]`. Columns after the last one are copies of it."""
        k, block = self.k, self.scheme.block
        number = sum(place.count for place in places)
        first_block = start // block
        for n in k.range(number):
            row = k.least(places[0].start + n, k.index(self.columns) - 1)
            for b in k.range(k.index(count) // block):
                at = row * self.row_bytes + (first_block + b) * self.scheme.nbytes
                _decode(self.code, self.scheme, at, (memory, n, b * block))


def _transpose(k: Kernel, source: Buffer, target: Buffer, vectors: int, count: Size) -> None:
    """Store `[columns, terms]` as `[terms, columns]`."""
    lanes = k.cpu.lanes(f32)
    for n in k.range(0, vectors * lanes, lanes):
        for d in k.range(0, count, lanes):
            rows = [source[n + i, k.at(d)] for i in range(lanes)]
            for i, vector in enumerate(transposed(rows)):
                target[d + i, k.at(n)] = vector


def _round_row(
    k: Kernel,
    source: tuple[Buffer, Value, Value],
    target: tuple[Buffer, int],
    count: Size,
    block: int,
    limit: int,
) -> None:
    """Round terms of a row as `dequant_matmul` defines it.

    Args:
        k: The kernel.
        source: The rows, the row, and its first term.
        target: The memory, and its row.
        count: The number of terms, a multiple of a block.
        block: The elements of a block.
        limit: The largest integer.
    """
    (rows, row, start), (memory, number) = source, target
    for b in k.range(k.index(count) // block):
        vectors = [k.at(start + (b * block + i)) for i in range(0, block, k.cpu.lanes(f32))]
        rounded, scale = rounding(k, [rows[row, place] for place in vectors], limit)
        for i, value in enumerate(rounded):
            place = k.at(b * block + i * k.cpu.lanes(f32))
            memory[number, place] = value * scale.splat(k.cpu.lanes(f32))
