"""Kernels of products with packed weights, for a few rows: each block is read once, and multiplied as integers.

The rows are rounded to 8-bit integers with a scale for each block, as the op defines it. A block of weights is then a few
multiplications of bytes. Its scales are applied to sums of integers, and once for each block in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32, i8, i16, i32, u8, u16
from rlx.kernels.buffer import Buffer, Size, ceil_div
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.functions import ROUNDING, of_f16
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.library.products import rows_of
from rlx.kernels.machine import LARGEST_SCRATCH
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.quantization.packed import LEAST_TOP
from rlx.schemes import Scheme, find_scheme

_MOST_ROWS = 8
_ROWS_OF_WORKGROUP = 128  # of the matrix: each workgroup rounds the activations
_AHEAD = 4096  # bytes between the weights that are used and those that the CPU is asked to load


@dataclass(frozen=True)
class _Rounded:
    """Rows that were rounded: integers `[rows, K]`, scales `[rows, blocks]` and sums of 32 integers, i16 `[rows, K / 16]`.

    The sums of a block of 256 are in the upper half of 16 numbers; the lower half is 0.
    """

    steps: Buffer
    scales: Buffer
    sums: Buffer | None


@dataclass(frozen=True)
class PackedBytes:
    """The bytes of a packed matrix.

    Attributes:
        k: The kernel.
        bytes: The packed rows, as one axis.
        width: The number of bytes of a vector.
    """

    k: Kernel
    bytes: Buffer
    width: int

    def vector(self, position: Value, lanes: int | None = None) -> Value:
        """Return packed bytes."""
        return self.bytes[self.k.at(position, u8, lanes or self.width)]

    def half(self, position: Value) -> Value:
        """Return the f16 number at a position as f32."""
        low, high = self.bytes[position], self.bytes[position + 1]
        return of_f16(low.to(u16) | high.to(u16) << 8)

    def constant(self, number: int) -> Value:
        return self.k.constant(number, u8, self.width)


# Given the position of a block in memory, the rows, the number of a row and of its block: the sums of the products, as one
# vector of f32 without the scale of the row.
BlockProducts = Callable[[PackedBytes, Value, _Rounded, Sequence[int], Value], list[Value]]


def _scaled(total: Value, factor: Value) -> Value:
    assert total.lanes is not None
    return total.to(f32) * factor.splat(total.lanes)


def _steps_of(code: PackedBytes, rows: _Rounded, row: int, position: Value, lanes: int) -> Value:
    return rows.steps[row, code.k.at(position, i8, lanes)]


def _q8_0(code: PackedBytes, at: Value, rows: _Rounded, numbers: Sequence[int], block: Value) -> list[Value]:
    half = code.width // 2
    signed = code.bytes.bits(i8)
    weights = [signed[code.k.at(at + 2 + i, i8, half)].to(i16) for i in range(0, 32, half)]
    factor = code.half(at)
    results: list[Value] = []
    for row in numbers:
        steps = [_steps_of(code, rows, row, block * 32 + i, half).to(i16) for i in range(0, 32, half)]
        total = _sum([w.pair_products(x) for w, x in zip(weights, steps, strict=True)])
        results.append(_scaled(total, factor))
    return results


def _q4_0(code: PackedBytes, at: Value, rows: _Rounded, numbers: Sequence[int], block: Value) -> list[Value]:
    data = code.vector(at + 2, 16)
    low, high = data & 15, data >> 4
    weights = [low, high] if code.width == 16 else [low.shuffle(high, range(32))]
    eight, one = code.constant(8), code.k.constant(1, i16, code.width // 2)
    factor = code.half(at)
    results: list[Value] = []
    for row in numbers:
        total: list[Value] = []
        for i, weight in enumerate(weights):
            steps = _steps_of(code, rows, row, block * 32 + i * code.width, code.width)
            total.append((weight.pair_products(steps) - eight.pair_products(steps)).pair_products(one))
        results.append(_scaled(_sum(total), factor))
    return results


def k_scales(code: PackedBytes, at: Value) -> Value:
    """Return the 8 scales and 8 minima of a block of Q4_K or Q5_K, i16 `[16]`. Its first 16 bytes hold them."""
    header = code.vector(at, 16)
    first, second, last = [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]
    low = header.shuffle(header, [*first, *last, *second, *last])
    high = header.shuffle(header, [*first, *first, *second, *second])

    def masks(*groups: int) -> Value:
        return code.k.constants([group for group in groups for _ in range(4)], u8)

    merged = (low & masks(63, 15, 63, 0)) | (low >> 4 & masks(0, 0, 0, 15)) | (high >> 2 & masks(0, 48, 0, 48))
    return merged.to(i16)


def _k_products(
    code: PackedBytes,
    at: Value,
    rows: _Rounded,
    numbers: Sequence[int],
    block: Value,
    weights: Sequence[Sequence[Value]],
) -> list[Value]:
    """Return the sums of a block with scales and minima, from the weights of its 8 groups of 32, as bytes."""
    half = code.width // 2
    scales = k_scales(code, at)
    groups = [scales.shuffle(scales, [j] * half) for j in range(8)]
    scale, least = code.half(at), code.half(at + 2)
    results: list[Value] = []
    for row in numbers:
        assert rows.sums is not None
        totals: list[Value] = []
        for j, (pieces, factor) in enumerate(zip(weights, groups, strict=True)):
            for i, piece in enumerate(pieces):
                steps = _steps_of(code, rows, row, block * 256 + (32 * j + i * code.width), code.width)
                totals.append(piece.pair_products(steps).pair_products(factor))
        # The lower half of the sums is 0, so that only the minima count.
        minima = scales.pair_products(rows.sums[row, code.k.at(block * 16, i16, 16)])
        if code.width == 16:
            minima = minima.shuffle(minima, range(4)) + minima.shuffle(minima, range(4, 8))
        results.append(_scaled(_sum(totals), scale) - _scaled(minima, least))
    return results


def _q4_k(code: PackedBytes, at: Value, rows: _Rounded, numbers: Sequence[int], block: Value) -> list[Value]:
    weights: list[list[Value]] = []
    for pair in range(4):
        data = [code.vector(at + (16 + 32 * pair + i)) for i in range(0, 32, code.width)]
        weights += [[v & 15 for v in data], [v >> 4 for v in data]]
    return _k_products(code, at, rows, numbers, block, weights)


def _q5_k(code: PackedBytes, at: Value, rows: _Rounded, numbers: Sequence[int], block: Value) -> list[Value]:
    highs = [code.vector(at + (16 + i)) for i in range(0, 32, code.width)]
    weights: list[list[Value]] = []
    for pair in range(4):
        data = [code.vector(at + (48 + 32 * pair + i)) for i in range(0, 32, code.width)]
        for shift in range(2):
            bit = 2 * pair + shift
            nibbles = [v >> 4 if shift else v & 15 for v in data]
            weights.append([n | (h >> bit & 1) << 4 for n, h in zip(nibbles, highs, strict=True)])
    return _k_products(code, at, rows, numbers, block, weights)


def _q6_k(code: PackedBytes, at: Value, rows: _Rounded, numbers: Sequence[int], block: Value) -> list[Value]:
    k, width = code.k, code.width
    scales = code.bytes.bits(i8)[k.at(at + 192, i8, 16)].to(i16)
    factor, offset = code.half(at + 208), code.constant(32)
    totals: list[list[Value]] = [[] for _ in numbers]
    for part in range(2):
        highs = [code.vector(at + (128 + 32 * part + i)) for i in range(0, 32, width)]
        for group in range(4):
            start = 64 * part + 32 * (group % 2)
            data = [code.vector(at + (start + i)) for i in range(0, 32, width)]
            for i, (v, h) in enumerate(zip(data, highs, strict=True)):
                nibble = v >> 4 if group >= 2 else v & 15
                weight = nibble | (h >> (2 * group) & 3) << 4
                position = 128 * part + 32 * group + i * width
                # 16 elements share a scale, so that a vector has one or two of them.
                indices = [(position + 2 * lane) // 16 for lane in range(width // 2)]
                scale = scales.shuffle(scales, indices)
                for total, row in zip(totals, numbers, strict=True):
                    steps = _steps_of(code, rows, row, block * 256 + position, width)
                    centred = weight.pair_products(steps) - offset.pair_products(steps)
                    total.append(centred.pair_products(scale))
    return [_scaled(_sum(total), factor) for total in totals]


_CODE: dict[str, BlockProducts] = {"q4_0": _q4_0, "q8_0": _q8_0, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k}
_WITH_SUMS = ("q4_k", "q5_k")


def _sum(values: Sequence[Value]) -> Value:
    """Return the sum of integers."""
    return joined_in_pairs(values, lambda a, b: a + b)


def takes_few_rows(case: KernelCase) -> bool:
    """Whether the code is for a case: a few rows, which are rounded to 8-bit integers."""
    x, attributes = case.tensors[0], case.attributes
    rows, scheme = rows_of(case), attributes["scheme"].lower()
    if attributes["activations"] != "i8" or scheme not in _CODE or rows is None or not 0 < rows <= _MOST_ROWS:
        return False
    elements = x.dims[-1]
    return isinstance(elements, int) and elements > 0 and _scratch_bytes(rows, elements) <= LARGEST_SCRATCH


def _scratch_bytes(rows: int, elements: int) -> int:
    """The bytes of rounded rows: integers, sums, and at most a scale for 32 of them."""
    return rows * (elements + elements // 8 + elements // 8)


def _axes_of_matrix(case: KernelCase) -> list[Axes]:
    return [[(1, 0), (2, case.results[0].rank - 1)]]


@kernel("dequant_matmul", name="packed_vecmat", takes=takes_few_rows, open_axes=_axes_of_matrix)
def packed_vecmat(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, scheme: str, activations: str) -> None:
    """The product of a few rows with a packed matrix."""
    packing, rows, result = find_scheme(scheme), x.rows(), y.rows()
    count, columns = rows.shape[0], w.shape[0]
    row_bytes = w.shape[1]
    assert isinstance(count, int) and isinstance(row_bytes, int)
    width = 32 if k.cpu.vector_bytes >= 32 else 16
    code = PackedBytes(k, w.view(columns * row_bytes), width)
    products = _CODE[packing.name]
    for workgroup in k.parallel(ceil_div(columns, _ROWS_OF_WORKGROUP)):
        rounded = _rounded(k, rows, packing)
        first = workgroup * _ROWS_OF_WORKGROUP
        for n in k.range(first, k.least(first + _ROWS_OF_WORKGROUP, columns)):
            sums = [k.register(k.constant(0.0, f32, width // 4)) for _ in range(count)]
            for block in k.range(row_bytes // packing.nbytes):
                at = n * row_bytes + block * packing.nbytes
                for line in range(0, packing.nbytes, 64):
                    k.prefetch(code.bytes, at + (_AHEAD + line))
                parts = products(code, at, rounded, range(count), block)
                for row, (total, part) in enumerate(zip(sums, parts, strict=True)):
                    scale = rounded.scales[row, block].splat(width // 4)
                    total.value = part.fma(scale, total.value)
            for row, total in enumerate(sums):
                result[row, n] = total.value.sum()


def _rounded(k: Kernel, rows: Buffer, scheme: Scheme) -> _Rounded:
    """Round rows to integers in scratch memory, as `dequant_matmul` defines it."""
    count, elements, block = *rows.shape, scheme.block
    assert isinstance(count, int) and isinstance(elements, int)
    steps = k.scratch(count, elements, element=i8)
    scales = k.scratch(count, elements // block)
    sums = k.scratch(count, elements // 16, element=i16) if scheme.name in _WITH_SUMS else None
    lanes = k.cpu.lanes(f32)
    for row in range(count):
        for b in k.range(elements // block):
            first = b * block
            places = [first + i for i in range(0, block, lanes)]
            rounded, scales[row, b] = rounding(k, [rows[row, k.at(place)] for place in places], 127)
            for place, value in zip(places, rounded, strict=True):
                whole = (value + ROUNDING).bits(i32) - _ROUNDING_BITS
                steps[row, k.at(place, i8, lanes)] = whole.to(i8)
            if sums is not None:
                _store_sums(k, steps, sums, row, first)
    return _Rounded(steps, scales, sums)


_ROUNDING_BITS = 0x4B400000  # of ROUNDING, as an integer


def rounding(k: Kernel, vectors: Sequence[Value], limit: int) -> tuple[list[Value], Value]:
    """Round the vectors of a block to integers of at most `limit`, as floats, and return these and their scale."""
    lanes = vectors[0].lanes
    assert lanes is not None
    join = k.join("max")
    top = joined_in_pairs([abs(vector) for vector in vectors], join).joined(join)
    factor = k.where(top < LEAST_TOP, 0.0, float(limit) / top).splat(lanes)
    # NaN if the greatest number is infinite.
    scale = (top - top) + top / float(limit)
    # As `fma`, the product is rounded before the sum.
    return [(vector.fma(factor, -0.0) + ROUNDING) - ROUNDING for vector in vectors], scale


def _store_sums(k: Kernel, steps: Buffer, sums: Buffer, row: int, first: Value) -> None:
    """Store the sums of the groups of 32 integers of a block of 256: eight zeros, then the sums."""
    one = k.constant(1, i16, 16)
    for group in range(8):
        parts = [steps[row, k.at(first + (32 * group + i), i8, 16)].to(i16).pair_products(one) for i in (0, 16)]
        position: Size = first // 16
        sums[row, position + group] = k.constant(0, i16)
        sums[row, position + (8 + group)] = _sum(parts).sum().to(i16)
