"""The kernel of products of many rows with a packed matrix, by integers.

A workgroup computes some columns. It rounds a number of rows to 8-bit integers, and then unpacks a panel of columns at a
time to bytes in scratch memory, where four terms of a column are adjacent: a word. The words of a row are multiplied with
those of all columns of the panel, with sums in registers. Scales are applied to the sums of each group of terms in f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx.ir.dtype import f32, i8, i16, i32, u8
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, greatest
from rlx.kernels.case import KernelCase
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.functions import transposed
from rlx.kernels.kernel import Kernel, KernelRegister, joined_in_pairs
from rlx.kernels.library.packed import takes_few_rows
from rlx.kernels.library.packed_formats import PackedBytes, PackedFormat, as_unsigned
from rlx.kernels.library.packed_layouts import find_format, format_of
from rlx.kernels.library.packed_rounding import as_integers, rounding
from rlx.kernels.library.products import axes_of_packed
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.schemes import Scheme, find_scheme

_STRIPS = 16  # workgroups at most: each rounds the rows
_FEWEST_COLUMNS = 256  # of a workgroup, if there are more than one
_ROWS = 128  # that are rounded at a time, and multiplied with a panel that has been unpacked once
_DEPTH = 512  # terms of a panel in scratch memory
_VECTORS = 2  # of columns in a panel
_WIDTH = 32  # bytes that are unpacked at a time


@dataclass(frozen=True)
class _WordForm:
    """The form of words: the integers that are multiplied by one instruction in a lane of i32.

    Attributes:
        count: The integers in a word: 4 bytes, or 2 of 16 bits.
        has_quads: Whether the products of bytes are added in i32. Else pairs of them are added in i16.
        offset: The integer that is added to elements so that they are unsigned; it is subtracted from the sums.
        pairs: The number of words whose products are added first: in i16, if they fit.
    """

    count: int
    has_quads: bool
    offset: int
    pairs: int

    @staticmethod
    def of(cpu: CpuModel, packed: PackedFormat) -> _WordForm:
        if cpu.has_quads:
            return _WordForm(4, True, 128 if packed.is_signed else packed.offset, 1)
        if packed.is_signed or cpu.pair_bytes < cpu.vector_bytes:
            return _WordForm(2, False, 0, 1)
        most = 32767 // (2 * 127 * packed.largest)
        return _WordForm(4, False, packed.offset, max(n for n in (1, 2, 4, 8) if n <= most and 4 * n <= packed.group))


def _rows_of_tile(cpu: CpuModel) -> int:
    """The rows whose sums fill the registers."""
    return 8 if cpu.registers >= 32 else 4


def _takes(case: KernelCase) -> bool:
    w = case.tensors[1]
    is_known = all(isinstance(size, int) and size > 0 for size in w.dims)
    return is_known and case.attributes["activations"] == "i8" and find_format(case.attributes["scheme"]) is not None


def _pays(case: KernelCase) -> bool:
    return not takes_few_rows(case)


def _workspace(case: KernelCase) -> list[Shape]:
    """Memory for rounded rows. A part of it is used: less than an integer of 32 bits for each element."""
    return [Shape((_STRIPS, _ROWS, case.tensors[0].dims[-1]), i32)]


@kernel(
    "dequant_matmul",
    name="packed_integer_matmul",
    takes=_takes,
    pays=_pays,
    workspace=_workspace,
    open_axes=axes_of_packed,
    stored_weights=True,
)
def packed_integer_matmul(
    k: Kernel, x: Buffer, w: Buffer, y: Buffer, memory: Buffer, *, scheme: str, activations: str
) -> None:
    """The product of many rows, rounded to 8-bit integers, with a packed matrix."""
    packing, rows, result = find_scheme(scheme), x.rows(), y.rows()
    columns, row_bytes = w.shape
    inner = row_bytes // packing.nbytes * packing.block
    width = _VECTORS * k.cpu.lanes(f32)
    panels = ceil_div(columns, width)
    strips = k.least(greatest(columns // _FEWEST_COLUMNS, 1), _STRIPS)
    panels_of_strip = ceil_div(panels, strips)
    words = _WordForm.of(k.cpu, format_of(packing.name))
    code = PackedBytes(k, w.view(columns * row_bytes), _WIDTH)
    panel = _UnpackedPanel.of(k, packing, words, code, (columns, row_bytes))
    for strip in k.parallel(strips):
        rounded = _RoundedRows.of(k, packing, words, memory, strip * _ROWS)
        last = k.least(panels, (strip + 1) * panels_of_strip)
        for first_row in k.range(0, rows.shape[0], _ROWS):
            count = k.least(_ROWS, rows.shape[0] - first_row)
            rounded.round(rows, first_row, count)
            for number in k.range(strip * panels_of_strip, last):
                for start in k.range(0, inner, _DEPTH):
                    terms = k.least(_DEPTH, inner - start)
                    panel.unpack(number * width, start, terms)
                    _PanelTiles(k, rounded, panel, result, number * width, (start, terms)).run(first_row, count)


@dataclass(frozen=True)
class _RoundedRows:
    """Rounded rows of a workgroup: each has words, then a scale for each block, then a sum for each group.

    Attributes:
        k: The kernel.
        scheme: The format of the weights.
        words: The form of words.
        integers: The memory, `[rows, K]` of i32.
        floats: The same memory as f32.
        first: The row of the memory of the workgroup.
        scales_at: The position of the scales.
        sums_at: The position of the sums: i32 times the negated offset or, without an offset, f32 for minima.
    """

    k: Kernel
    scheme: Scheme
    words: _WordForm
    integers: Buffer
    floats: Buffer
    first: Value
    scales_at: Value
    sums_at: Value

    @staticmethod
    def of(k: Kernel, scheme: Scheme, words: _WordForm, memory: Buffer, first: Value) -> _RoundedRows:
        inner = k.index(memory.shape[2])
        matrix = memory.view(_STRIPS * _ROWS, inner)
        scales_at = inner // words.count
        sums_at = scales_at + inner // scheme.block
        return _RoundedRows(k, scheme, words, matrix, matrix.bits(f32), first, scales_at, sums_at)

    @property
    def packed(self) -> PackedFormat:
        return format_of(self.scheme.name)

    def round(self, rows: Buffer, first: Value, count: Value) -> None:
        """Round some rows."""
        k, block, lanes = self.k, self.scheme.block, self.k.cpu.lanes(f32)
        for i in k.range(count):
            row = self.first + i
            for b in k.range(k.index(rows.shape[1]) // block):
                places = [k.at(b * block + start) for start in range(0, block, lanes)]
                vectors, scale = rounding(k, [rows[first + i, place] for place in places], 127)
                self.floats[row, self.scales_at + b] = scale
                for number, vector in enumerate(vectors):
                    whole = as_integers(vector).to(i8 if self.words.count == 4 else i16).bits(i32)
                    position = b * (block // self.words.count) + number * (lanes // self.words.count)
                    self.integers[row, k.at(position, i32, whole.lanes)] = whole
                self._store_sums(row, b, vectors)

    def _store_sums(self, row: Value, block: Value, vectors: Sequence[Value]) -> None:
        packed, offset = self.packed, self.words.offset
        if packed.least is None and not offset:
            return
        groups = self.scheme.block // packed.group
        size = packed.group // self.k.cpu.lanes(f32)
        for number in range(groups):
            group = vectors[number * size : (number + 1) * size]
            total = joined_in_pairs(group, _add).sum()
            place = self.sums_at + (block * groups + number)
            if offset:
                self.integers[row, place] = as_integers(total * float(-offset))
            else:
                self.floats[row, place] = total


@dataclass(frozen=True)
class _UnpackedPanel:
    """Unpacked columns in scratch memory.

    Attributes:
        k: The kernel.
        scheme: The format.
        words: The form of words.
        code: The packed bytes.
        sizes: The number of columns of the matrix, and the bytes of each.
        by_column: Memory `[columns, words]` for the words as they are unpacked.
        by_term: Memory `[words, columns]`.
        scales: The scales of groups, `[columns, groups]` and `[groups, columns]`.
        minima: The same for minima, if there are some.
    """

    k: Kernel
    scheme: Scheme
    words: _WordForm
    code: PackedBytes
    sizes: tuple[Size, Size]
    by_column: Buffer
    by_term: Buffer
    scales: tuple[Buffer, Buffer]
    minima: tuple[Buffer, Buffer] | None

    @staticmethod
    def of(k: Kernel, scheme: Scheme, words: _WordForm, code: PackedBytes, sizes: tuple[Size, Size]) -> _UnpackedPanel:
        packed, width = format_of(scheme.name), _VECTORS * k.cpu.lanes(f32)
        depth, groups = _DEPTH // words.count, _DEPTH // packed.group

        def both() -> tuple[Buffer, Buffer]:
            return k.scratch(width, groups), k.scratch(groups, width)

        minima = None if packed.least is None else both()
        by_column, by_term = k.scratch(width, depth, element=i32), k.scratch(depth, width, element=i32)
        return _UnpackedPanel(k, scheme, words, code, sizes, by_column, by_term, both(), minima)

    @property
    def packed(self) -> PackedFormat:
        return format_of(self.scheme.name)

    def unpack(self, first: Value, start: Value, terms: Value) -> None:
        """Unpack terms of the columns. Columns after the last one are copies of it."""
        k, block = self.k, self.scheme.block
        columns, row_bytes = self.sizes
        for n in k.range(_VECTORS * k.cpu.lanes(f32)):
            row = k.least(first + n, k.index(columns) - 1) * row_bytes
            for b in k.range(terms // block):
                self._unpack_block(n, b, row + (start // block + b) * self.scheme.nbytes)
        _transpose(k, self.by_column, self.by_term, terms // self.words.count)
        _transpose(k, *self.scales, terms // self.packed.group)
        if self.minima is not None:
            _transpose(k, *self.minima, terms // self.packed.group)

    def _unpack_block(self, n: Value, b: Value, at: Value) -> None:
        k, code, packed, count = self.k, self.code, self.packed, self.words.count
        for number, step in enumerate(packed.steps(code, at)):
            if count == 2:
                whole = step.to(i16) if packed.is_signed else step.to(i16) - packed.offset
            else:
                whole = as_unsigned(step) if packed.is_signed else step
            position = b * (self.scheme.block // count) + number * (_WIDTH // count)
            self.by_column[n, k.at(position, i32, _WIDTH // count)] = whole.bits(i32)
        factor, least = packed.factor(code, at), packed.least and packed.least(code, at)
        groups = self.scheme.block // packed.group
        if packed.scales is None:
            for g in range(groups):
                self.scales[0][n, b * groups + g] = factor
                if self.minima is not None and least is not None:
                    self.minima[0][n, b * groups + g] = least
            return
        integers = packed.scales(code, at)
        place = k.at(b * groups, f32, groups)
        scales = integers.scales.shuffle(integers.scales, range(groups)).to(f32)
        self.scales[0][n, place] = scales * factor.splat(groups)
        if self.minima is not None and least is not None:
            minima = integers.minima.shuffle(integers.minima, range(16 - groups, 16)).to(f32)
            self.minima[0][n, place] = minima * least.splat(groups)


def _transpose(k: Kernel, source: Buffer, target: Buffer, count: Size) -> None:
    """Store the first elements of columns, `[columns, count]`, as rows."""
    lanes, width = k.cpu.lanes(f32), source.shape[0]
    for n in k.range(0, width, lanes):
        for d in k.range(0, count, lanes):
            rows = [source[n + i, k.at(d, source.element)] for i in range(lanes)]
            for i, vector in enumerate(transposed(rows)):
                target[d + i, k.at(n, source.element)] = vector


@dataclass(frozen=True)
class _PanelTiles:
    """The products of rounded rows with a panel.

    Attributes:
        k: The kernel.
        rounded: The rounded rows.
        panel: The panel.
        result: The result of the op, to which the products are added, unless their terms are the first ones.
        column: The first column of the panel.
        terms: The first term, and the number of terms.
    """

    k: Kernel
    rounded: _RoundedRows
    panel: _UnpackedPanel
    result: Buffer
    column: Value
    terms: tuple[Value, Value]

    def run(self, first: Value, count: Value) -> None:
        """Multiply rounded rows.

        Args:
            first: The row of the result for the first one.
            count: The number of rows.
        """
        k, many = self.k, _rows_of_tile(self.k.cpu)
        whole = count // many * many
        for i in k.range(0, whole, many):
            self._multiply(first, i, many)
        for i in k.range(whole, count):
            self._multiply(first, i, 1)

    def _multiply(self, first: Value, row: Value, many: int) -> None:
        k, packed, scheme = self.k, self.panel.packed, self.panel.scheme
        lanes, groups, (start, terms) = k.cpu.lanes(f32), scheme.block // packed.group, self.terms
        zero = k.constant(0.0, f32, lanes)
        sums = [[k.register(zero) for _ in range(_VECTORS)] for _ in range(many)]
        for _ in k.when(start > 0):
            for places in self._places():
                for r, of_row in enumerate(sums):
                    for total, place in zip(of_row, places, strict=True):
                        total.value = self.result[first + row + r, place]
        rows = [self.rounded.first + row + r for r in range(many)]
        for b in k.range(terms // scheme.block):
            block = start // scheme.block + b
            parts = [[k.register(zero) for _ in range(_VECTORS)] for _ in range(many)]
            for g in k.range(groups) if groups > 1 else [k.index(0)]:
                self._add_group(rows, (b * groups + g, block * groups + g), parts)
            for r, (of_row, parts_of_row) in enumerate(zip(sums, parts, strict=True)):
                scale = self.rounded.floats[rows[r], self.rounded.scales_at + block].splat(lanes)
                for total, part in zip(of_row, parts_of_row, strict=True):
                    total.value = part.value.fma(scale, total.value)
        for places in self._places():
            for r, of_row in enumerate(sums):
                for total, place in zip(of_row, places, strict=True):
                    self.result[first + row + r, place] = total.value

    def _places(self) -> Iterator[list[Lanes]]:
        """Yield the columns of the panel in a branch for whole panels, and in one for the last panel, with masks."""
        k, lanes, columns = self.k, self.k.cpu.lanes(f32), self.k.index(self.panel.sizes[0])
        starts = [self.column + u * lanes for u in range(_VECTORS)]
        end = self.column + _VECTORS * lanes
        for _ in k.when(end <= columns):
            yield [k.at(place) for place in starts]
        for _ in k.when(end > columns):
            yield [k.first_lanes(place, k.least(greatest(columns - place, 0), lanes)) for place in starts]

    def _add_group(
        self, rows: Sequence[Value], groups: tuple[Value, Value], parts: Sequence[Sequence[KernelRegister]]
    ) -> None:
        """Add the products of a group, with its scales and minima, to the sums of each row and vector of columns.

        Args:
            rows: The rounded rows.
            groups: The group in the panel, and in the rows.
            parts: The sums.
        """
        k, panel, (group, place) = self.k, self.panel, groups
        lanes = k.cpu.lanes(f32)
        vectors = [k.at(u * lanes) for u in range(_VECTORS)]
        scales = [panel.scales[1][group, v] for v in vectors]
        minima = panel.minima and [panel.minima[1][group, v] for v in vectors]
        for row, own, totals in zip(rows, parts, self._products(rows, groups), strict=True):
            for part, total, scale in zip(own, totals, scales, strict=True):
                part.value = total.to(f32).fma(scale, part.value)
            if minima:
                negative = self._negative_sum(row, place).splat(lanes)
                for part, minimum in zip(own, minima, strict=True):
                    part.value = negative.fma(minimum, part.value)

    def _products(self, rows: Sequence[Value], groups: tuple[Value, Value]) -> list[list[Value]]:
        """Return the sums of the products of a group, i32, for each row and vector of columns."""
        words, lanes = self.panel.words, self.k.cpu.lanes(f32)
        (group, place), count = groups, self.panel.packed.group // words.count
        totals = [[self._initial(row, place)] * _VECTORS for row in rows]
        for begin in range(0, count, words.pairs):
            numbers = range(begin, begin + words.pairs)
            columns = [[self._column(group * count + q, u) for u in range(_VECTORS)] for q in numbers]
            for row, own in zip(rows, totals, strict=True):
                factors = [self.rounded.integers[row, place * count + q].splat(lanes) for q in numbers]
                for u, total in enumerate(own):
                    own[u] = self._sum(total, [of_term[u] for of_term in columns], factors)
        return totals

    def _initial(self, row: Value, place: Value) -> Value:
        lanes, rounded = self.k.cpu.lanes(f32), self.rounded
        if not self.panel.words.offset:
            return self.k.constant(0, i32, lanes)
        return rounded.integers[row, rounded.sums_at + place].splat(lanes)

    def _negative_sum(self, row: Value, place: Value) -> Value:
        """Return the negated sum of a group of a row, f32."""
        rounded, offset = self.rounded, self.panel.words.offset
        if not offset:
            return -rounded.floats[row, rounded.sums_at + place]
        return rounded.integers[row, rounded.sums_at + place].to(f32) * (1.0 / offset)

    def _column(self, term: Value, vector: int) -> Value:
        """Return the words of a vector of columns."""
        return self.panel.by_term[term, self.k.at(vector * self.k.cpu.lanes(f32), i32)]

    def _sum(self, total: Value, columns: Sequence[Value], factors: Sequence[Value]) -> Value:
        """Return a sum plus the products of words."""
        words = self.panel.words
        pairs = [(column.bits(u8), factor.bits(i8)) for column, factor in zip(columns, factors, strict=True)]
        if words.has_quads:
            for column, factor in pairs:
                total = column.quad_products(factor, total)
            return total
        if words.count == 2:
            wide = zip(columns, factors, strict=True)
            return total + joined_in_pairs([c.bits(i16).pair_products(f.bits(i16)) for c, f in wide], _add)
        one = self.k.constant(1, i16, 2 * self.k.cpu.lanes(f32))
        return total + joined_in_pairs([c.pair_products(f) for c, f in pairs], _add).pair_products(one)


def _add(a: Value, b: Value) -> Value:
    return a + b
