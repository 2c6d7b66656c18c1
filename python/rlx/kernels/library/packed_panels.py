"""The kernel of products of many rows with a packed matrix: blocks of it are decoded to scratch memory as f32.

The product of a panel is that of `products.py`. A block has 256 terms of each column, which are stored in the order of the
packed rows first, and then transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32, i8
from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.functions import transposed
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.packed import PackedBytes, k_scales, rounding, takes_few_rows
from rlx.kernels.library.products import LastPanel, MatrixBlocks, Panels, run_panels, tile
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.quantization.packed import LIMITS
from rlx.schemes import Scheme, find_scheme

_DEPTH = 256  # terms of a block: a multiple of the elements of a packed block
_GROUP = 32  # elements that are decoded at a time


@dataclass(frozen=True)
class _Decoded:
    """The memory for the elements of one row of a block, f32.

    Attributes:
        code: The packed bytes.
        memory: The memory, `[columns, 256]`.
        row: The row.
        first: The position of the first element in the row.
    """

    code: PackedBytes
    memory: Buffer
    row: Value
    first: Value

    def store(self, position: int, values: Value) -> None:
        """Store the elements from a position of the packed block on."""
        self.memory[self.row, self.code.k.at(self.first + position, f32, values.lanes)] = values


# Given the place for the elements, and the position of a packed block in memory: emits code that decodes the block.
Decoder = Callable[[_Decoded, Value], None]


def _q8_0(out: _Decoded, at: Value) -> None:
    code = out.code
    steps = code.bytes.bits(i8)[code.k.at(at + 2, i8, _GROUP)]
    out.store(0, steps.to(f32) * code.half(at).splat(_GROUP))


def _q4_0(out: _Decoded, at: Value) -> None:
    code = out.code
    data, factor = code.vector(at + 2, 16), code.half(at).splat(16)
    out.store(0, ((data & 15).to(f32) - 8.0) * factor)
    out.store(16, ((data >> 4).to(f32) - 8.0) * factor)


def _q4_k(out: _Decoded, at: Value) -> None:
    code = out.code
    factors, offsets = _k_factors(code, at)
    for pair in range(4):
        data = code.vector(at + (16 + _GROUP * pair), _GROUP)
        for half, steps in enumerate((data & 15, data >> 4)):
            _store_group(out, 2 * pair + half, steps, factors, offsets)


def _q5_k(out: _Decoded, at: Value) -> None:
    code = out.code
    factors, offsets = _k_factors(code, at)
    high = code.vector(at + 16, _GROUP)
    for pair in range(4):
        data = code.vector(at + (48 + _GROUP * pair), _GROUP)
        for half, steps in enumerate((data & 15, data >> 4)):
            bit = (high >> (2 * pair + half) & 1) << 4
            _store_group(out, 2 * pair + half, steps | bit, factors, offsets)


def _k_factors(code: PackedBytes, at: Value) -> tuple[Value, Value]:
    """Return the factors of the 8 groups of a block of Q4_K or Q5_K, and the numbers that are subtracted, f32 `[16]`.

    The factors are in the lower half, and the others in the upper half.
    """
    scales = k_scales(code, at).to(f32)
    return scales * code.half(at).splat(16), scales * code.half(at + 2).splat(16)


def _store_group(out: _Decoded, group: int, steps: Value, factors: Value, offsets: Value) -> None:
    factor, offset = (v.shuffle(v, [i] * _GROUP) for v, i in ((factors, group), (offsets, 8 + group)))
    out.store(_GROUP * group, steps.to(f32) * factor - offset)


def _q6_k(out: _Decoded, at: Value) -> None:
    code = out.code
    scales = code.bytes.bits(i8)[code.k.at(at + 192, i8, 16)].to(f32) * code.half(at + 208).splat(16)
    for part in range(2):
        high = code.vector(at + (128 + 32 * part), _GROUP)
        for group in range(4):
            data = code.vector(at + (64 * part + 32 * (group % 2)), _GROUP)
            steps = (data >> 4 if group >= 2 else data & 15) | (high >> (2 * group) & 3) << 4
            position = 128 * part + _GROUP * group
            factor = scales.shuffle(scales, [(position + i) // 16 for i in range(_GROUP)])
            out.store(position, (steps.to(f32) - 32.0) * factor)


_DECODERS: dict[str, Decoder] = {"q4_0": _q4_0, "q8_0": _q8_0, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k}


def _takes(case: KernelCase) -> bool:
    w = case.tensors[1]
    is_known = all(isinstance(size, int) and size > 0 for size in w.dims)
    return is_known and case.attributes["scheme"].lower() in _DECODERS


def _pays(case: KernelCase) -> bool:
    return not takes_few_rows(case)


def _plan(case: KernelCase) -> LastPanel:
    columns = case.tensors[1].dims[0]
    assert isinstance(columns, int)
    return LastPanel.of_columns(case.cpu, columns)


def _axes(case: KernelCase) -> list[Axes]:
    """The axes of the rows, that of the columns, and those of the terms and of their bytes."""
    rank = case.tensors[0].rank
    rows = [[(0, axis), (2, axis)] for axis in range(rank - 1)]
    return [*rows, [(1, 0), (2, rank - 1)], [(0, rank - 1)], [(1, 1)]]


@kernel("dequant_matmul", name="packed_matmul", takes=_takes, pays=_pays, plan=_plan, open_axes=_axes)
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
                _DECODERS[self.scheme.name](_Decoded(self.code, memory, n, b * block), at)


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
