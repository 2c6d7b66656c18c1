"""Kernels of products with packed weights, for a few rows: each block is read once, and multiplied as integers.

The rows are rounded to 8-bit integers with a scale for each block, as the op defines it. A block of weights is then a few
multiplications of bytes. Its scales are applied to sums of integers, and once for each block in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32, i8, i16, i32, u8
from rlx.kernels.buffer import Buffer
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel, KernelRegister, joined_in_pairs
from rlx.kernels.library.few_rows import axes_of_columns, has_few_rows, ranges_of_columns
from rlx.kernels.library.packed_formats import PackedBytes, PackedFormat, as_unsigned
from rlx.kernels.library.packed_layouts import find_format, format_of
from rlx.kernels.library.packed_rounding import as_integers, rounding
from rlx.kernels.machine import LARGEST_SCRATCH
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.schemes import Scheme, find_scheme

_AHEAD = 4096  # bytes between the weights that are used and those that the CPU is asked to load
_LINE = 64  # bytes of a cache line
_SMALL_BLOCKS = 8  # of 32 elements, whose scales are converted together; fewer larger ones
_CHAINS = 2  # sums of a block that do not wait for each other


def takes_few_rows(case: KernelCase) -> bool:
    """Whether the code is for a case: a few rows, which are rounded to 8-bit integers."""
    x, attributes = case.tensors[0], case.attributes
    scheme = attributes["scheme"].lower()
    if attributes["activations"] != "i8" or find_format(scheme) is None or not has_few_rows(case):
        return False
    elements = x.dims[-1]
    return isinstance(elements, int) and elements > 0 and _scratch_bytes(scheme, elements) <= LARGEST_SCRATCH


def _scratch_bytes(scheme: str, elements: int) -> int:
    """The bytes of a rounded row: integers, scales and sums."""
    sums = elements if format_of(scheme).scales is None else elements // 8
    return elements + 4 * (elements // find_scheme(scheme).block) + sums


@kernel("dequant_matmul", name="packed_vecmat", takes=takes_few_rows, open_axes=axes_of_columns, stored_weights=True)
def packed_vecmat(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, scheme: str, activations: str) -> None:
    """The product of a few rows with a packed matrix."""
    packing, rows, result = find_scheme(scheme), x.rows(), y.rows()
    (count, elements), columns = rows.shape, w.shape[0]
    assert isinstance(count, int) and isinstance(elements, int)
    width = 32 if k.cpu.vector_bytes >= 32 else 16
    code = PackedBytes(k, w.view(columns * w.shape[1]), width)
    fitting = LARGEST_SCRATCH // _scratch_bytes(packing.name, elements)
    passes = -(-count // fitting)
    at_once = -(-count // passes)
    products = _PackedProducts(k, packing, code, _FewRows.of(k, packing, width, at_once, elements))
    for first, end in ranges_of_columns(k, columns):
        for start in range(0, count, at_once):
            many = range(min(at_once, count - start))
            for row in many:
                products.rounded.round(k, rows, start + row, row)
            for n in k.range(first, end):
                for row, total in enumerate(products.of_column(n, many)):
                    result[start + row, n] = total


@dataclass(frozen=True)
class _FewRows:
    """Rows that were rounded.

    Attributes:
        scheme: The format of the weights.
        width: The number of bytes of a vector.
        steps: The integers, i8 `[rows, K]`.
        scales: The scales of blocks, f32.
        sums: For blocks of 256, the sums of each group, i16 `[rows, K / 16]`: of 16 groups, or 8 zeros and then of 8 groups.
            For blocks without groups, the sums of 4 integers, times the negated offset of the steps, i32 `[rows, K / 4]`.
    """

    scheme: Scheme
    width: int
    steps: Buffer
    scales: Buffer
    sums: Buffer

    @staticmethod
    def of(k: Kernel, scheme: Scheme, width: int, count: int, elements: int) -> _FewRows:
        scales = k.scratch(count, elements // scheme.block)
        if format_of(scheme.name).scales is None:
            sums = k.scratch(count, elements // 4, element=i32)
        else:
            sums = k.scratch(count, elements // 16, element=i16)
        return _FewRows(scheme, width, k.scratch(count, elements, element=i8), scales, sums)

    def round(self, k: Kernel, rows: Buffer, source: int, target: int) -> None:
        """Round a row."""
        block, lanes, packed = self.scheme.block, k.cpu.lanes(f32), format_of(self.scheme.name)
        for b in k.range(self.scales.shape[1]):
            first = b * block
            places = [first + i for i in range(0, block, lanes)]
            rounded, self.scales[target, b] = rounding(k, [rows[source, k.at(place)] for place in places], 127)
            for place, value in zip(places, rounded, strict=True):
                self.steps[target, k.at(place, i8, lanes)] = as_integers(value).to(i8)
            if packed.scales is None:
                self._store_sums_of_4(k, target, b, packed)
            else:
                self._store_sums_of_groups(k, target, b, rounded, packed.group)

    def _store_sums_of_4(self, k: Kernel, row: int, block: Value, packed: PackedFormat) -> None:
        """Store the sums of a block without groups, times the negated offset."""
        one, none = k.constant(1, u8, self.width), k.constant(0, i32, self.width // 4)
        factor = -lane_offset(k, packed) or 1
        size = self.scheme.block
        for start in range(0, size, self.width):
            steps = self.steps[row, k.at(block * size + start, i8, self.width)]
            place = k.at(block * (size // 4) + start // 4, i32, self.width // 4)
            self.sums[row, place] = one.quad_products(steps, none) * factor

    def _store_sums_of_groups(self, k: Kernel, row: int, block: Value, rounded: Sequence[Value], group: int) -> None:
        size = group // k.cpu.lanes(f32)
        totals = [_sum(rounded[i : i + size]).sum() for i in range(0, len(rounded), size)]
        for i in range(16 - len(totals)):
            self.sums[row, block * 16 + i] = k.constant(0, i16)
        for i, total in enumerate(totals):
            self.sums[row, block * 16 + (16 - len(totals) + i)] = as_integers(total).to(i16)


def lane_offset(k: Kernel, packed: PackedFormat) -> int:
    """The offset of steps as they are multiplied: signed ones are multiplied as unsigned ones by `quad_products` only."""
    return packed.offset if not packed.is_signed else 128 if k.cpu.has_quads else 0


Registers = Sequence[KernelRegister]


@dataclass(frozen=True)
class _PackedProducts:
    """The products of rounded rows with packed columns.

    Attributes:
        k: The kernel.
        scheme: The format.
        code: The packed bytes.
        rounded: The rows.
    """

    k: Kernel
    scheme: Scheme
    code: PackedBytes
    rounded: _FewRows

    @property
    def packed(self) -> PackedFormat:
        return format_of(self.scheme.name)

    def of_column(self, n: Value, rows: range) -> list[Value]:
        """Return the product of each row with a column."""
        k, nbytes, lanes = self.k, self.scheme.nbytes, self.code.width // 4
        blocks = self.rounded.scales.shape[1]
        assert isinstance(blocks, int)
        is_small = self.packed.scales is None
        # The sums of small blocks alternate, so that they do not wait for each other. Their number, and thus the order of
        # additions, does not depend on the number of rows.
        slots = 1 if not is_small else 2 if self.packed.least is None else 4
        sums = [[k.register(k.constant(0.0, f32, lanes)) for _ in range(slots)] for _ in rows]
        at_once = slots
        if is_small:
            most = max(_SMALL_BLOCKS * 32 // self.scheme.block, 2)
            at_once = most if len(rows) <= 2 else min(slots, most)
        whole = blocks // at_once * at_once
        for start, end, step in ((0, whole, at_once), (whole, blocks, blocks - whole)):
            for first in k.range(start, end, step) if start < end else ():
                at = (n * blocks + first) * nbytes
                for line in range(0, step * nbytes, _LINE):
                    k.prefetch(self.code.bytes, at + (_AHEAD + line))
                if is_small:
                    self._add_small_blocks(at, first, step, rows, sums)
                else:
                    self._add_large_block(at, first, rows, sums)
        return [joined_in_pairs([part.value for part in of_row], k.join("add")).sum() for of_row in sums]

    def _of_steps(self, at: Value) -> list[Value]:
        code = self.code if not self.packed.is_signed or self.k.cpu.has_quads else self.code.of_width(16)
        return self.packed.steps(code, at)

    def _add_large_block(self, at: Value, block: Value, rows: range, sums: Sequence[Registers]) -> None:
        """Add the products of a block of 256 to the sums of each row."""
        parts = self._large(self._of_steps(at), at, block, rows)
        for row, (total,), part in zip(rows, sums, parts, strict=True):
            scale = self.rounded.scales[row, block]
            total.value = part.fma(scale.splat(self.code.width // 4), total.value)

    def _add_small_blocks(self, at: Value, block: Value, count: int, rows: range, sums: Sequence[Registers]) -> None:
        """Add the products of some blocks without groups, whose scales are multiplied as one vector."""
        packed, nbytes = self.packed, self.scheme.nbytes

        def scales_of(number: Callable[[PackedBytes, Value], Value]) -> list[Value]:
            return [number(self.code, at + i * nbytes) for i in range(count)]

        def scaled(scales: list[Value], row: int) -> list[Value]:
            if count == 1:
                return [scales[0] * self.rounded.scales[row, block]]
            product = self.k.vector(scales) * self.rounded.scales[row, self.k.at(block, f32, count)]
            return [product.lane(i) for i in range(count)]

        factors, leasts = scales_of(packed.factor), packed.least and scales_of(packed.least)
        own_factors = [scaled(factors, row) for row in rows]
        own_leasts = leasts and [scaled(leasts, row) for row in rows]
        for i in range(count):
            steps = self._of_steps(at + i * nbytes)
            for row, slots in zip(rows, sums, strict=True):
                least = own_leasts[row][i] if own_leasts else None
                self._add_small(steps, block + i, row, slots[i % 2 :: 2], own_factors[row][i], least)

    def _steps(self, row: int, position: Value, lanes: int) -> Value:
        return self.rounded.steps[row, self.k.at(position, i8, lanes)]

    def _add_small(
        self, steps: Sequence[Value], block: Value, row: int, sums: Registers, factor: Value, least: Value | None
    ) -> None:
        """Add the products of a block without groups with a row, times the scale of both, and the same for the minimum."""
        k, width, size = self.k, self.code.width, self.scheme.block
        lanes, offset = width // 4, lane_offset(k, self.packed)
        places = [k.at(block * (size // 4) + i // 4, i32, lanes) for i in range(0, size, width)]
        corrections = [self.rounded.sums[row, place] for place in places]
        totals = corrections if offset else [k.constant(0, i32, lanes)] * len(places)
        product = _sum(self._integers(steps, block * size, row, totals)).to(f32)
        sums[0].value = product.fma(factor.splat(lanes), sums[0].value)
        if least is not None:
            # Sums that are needed for an offset, too, have its negative as a factor: a power of two.
            negative = _sum(corrections).to(f32) * (1.0 / offset) if offset else -_sum(corrections).to(f32)
            sums[1].value = negative.fma(least.splat(lanes), sums[1].value)

    def _integers(self, steps: Sequence[Value], first: Value, row: int, totals: Sequence[Value]) -> list[Value]:
        """Return integers plus the products of steps from a position on: vectors whose sum is of interest."""
        k, width = self.k, self.code.width
        if self.packed.is_signed and not k.cpu.has_quads:
            return [*totals, *self._products_of_words(steps, first, row)]
        if k.cpu.has_quads:
            return [
                (as_unsigned(step) if self.packed.is_signed else step).quad_products(
                    self._steps(row, first + i * width, width), total
                )
                for i, (step, total) in enumerate(zip(steps, totals, strict=True))
            ]
        pairs = [step.pair_products(self._steps(row, first + i * width, width)) for i, step in enumerate(steps)]
        # Sums of these many products fit 16 bits.
        most = 32767 // (2 * 127 * self.packed.largest)
        one = k.constant(1, i16, width // 2)
        return [*totals, *(_sum(pairs[i : i + most]).pair_products(one) for i in range(0, len(pairs), most))]

    def _products_of_words(self, steps: Sequence[Value], first: Value, row: int) -> list[Value]:
        """Return the products of signed steps, as integers of 16 bits: vectors of half of the width."""
        half, results = self.code.width // 2, list[Value]()
        for i, step in enumerate(steps):
            lanes = step.lanes or 0
            for j in range(0, lanes, half):
                part = step if lanes == half else step.shuffle(step, range(j, j + half))
                results.append(part.to(i16).pair_products(self._steps(row, first + (i * lanes + j), half).to(i16)))
        return results

    def _large(self, steps: Sequence[Value], at: Value, block: Value, rows: range) -> list[Value]:
        """Return the sums of the products of a block of 256 with scales for groups."""
        k, width, packed = self.k, self.code.width, self.packed
        assert packed.scales is not None
        factor, least = packed.factor(self.code, at), packed.least and packed.least(self.code, at)
        integers, lanes, offset = packed.scales(self.code, at), width // 4, lane_offset(k, packed)
        factors = self._factors(integers.scales, len(steps))
        results: list[Value] = []
        for row in rows:
            if packed.is_signed:
                totals = self._signed_groups(steps, factors, block, row)
            else:
                totals = [
                    step.pair_products(self._steps(row, block * 256 + i * width, width)).pair_products(own)
                    for i, (step, own) in enumerate(zip(steps, factors, strict=True))
                ]
            chains = [_sum(totals[i::_CHAINS]) for i in range(_CHAINS)]
            if least is None and not offset:
                results.append(_scaled_sum(chains, factor))
                continue
            # Of formats with 8 groups, the lower half of the sums is 0, so that the upper half of the factors counts.
            sums = self.rounded.sums[row, k.at(block * 16, i16, 16)]
            minima = integers.minima.pair_products(sums)
            if width == 16:
                minima = minima.shuffle(minima, range(4)) + minima.shuffle(minima, range(4, 8))
            if least is None:
                results.append(_scaled_sum([chains[0] - minima * offset, *chains[1:]], factor))
            else:
                results.append(_scaled_sum(chains, factor) - _scaled(minima, least))
        assert lanes == (results[0].lanes or 0)
        return results

    def _factors(self, scales: Value, count: int) -> list[Value]:
        """Return the scale of each product of two steps, i16; of each vector of signed steps, i32."""
        width, group = self.code.width, self.packed.group
        if self.packed.is_signed:
            return [scales.shuffle(scales, [g] * (width // 4)).to(i32) for g in range(8)]
        each = [[(i * width + 2 * lane) // group for lane in range(width // 2)] for i in range(count)]
        if group == 32 and self.k.cpu.pair_bytes >= width:
            # As 16 bytes with zeros in the upper half: one instruction for each group.
            both = scales.shuffle(self.k.constant(0, i16, 16), [*range(8), *range(16, 24)]).to(u8)
            pairs = [self.k.constants([n for index in indices for n in (index, 8)], u8) for indices in each]
            return [indices.table_entries(both).bits(i16) for indices in pairs]
        return [scales.shuffle(scales, indices) for indices in each]

    def _signed_groups(self, steps: Sequence[Value], factors: Sequence[Value], block: Value, row: int) -> list[Value]:
        """Return the products of each group of 32 signed steps, times its scale."""
        k, results = self.k, list[Value]()
        count = len(steps) // 8
        for group, factor in enumerate(factors):
            own = steps[group * count : (group + 1) * count]
            zero = [k.constant(0, i32, self.code.width // 4)] * (1 if not k.cpu.has_quads else count)
            results.append(_sum(self._integers(own, block * 256 + 32 * group, row, zero)) * factor)
        return results


def _scaled(total: Value, factor: Value) -> Value:
    assert total.lanes is not None
    return total.to(f32) * factor.splat(total.lanes)


def _scaled_sum(totals: Sequence[Value], factor: Value) -> Value:
    """Return the sum of integers times a factor. They are added as floats: LLVM makes one chain of sums of integers."""
    return _scaled_floats(_sum([total.to(f32) for total in totals]), factor)


def _scaled_floats(total: Value, factor: Value) -> Value:
    assert total.lanes is not None
    return total * factor.splat(total.lanes)


def _sum(values: Sequence[Value]) -> Value:
    """Return the sum of integers, or of floats that are integers."""
    return joined_in_pairs(values, lambda a, b: a + b)
