"""Transforms of the rows and columns of matrices of complex numbers in kernels.

A row is seen as a matrix (W. M. Gentleman and G. Sande, 1966). First the columns are transformed, several in the lanes of
vectors. Then the elements are multiplied by twiddle factors, and the rows of the matrix are transformed. The matrix of a short
row has as many columns as a vector has lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rlx.kernels.buffer import Buffer, Lanes
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.butterflies import (
    Pair,
    butterfly,
    joined_blocks,
    lane_order,
    minus,
    plus,
    store_pairs,
    swapped,
    times,
    transposed_blocks,
    turned_by,
)
from rlx.kernels.values import Value
from rlx.ops.signal.fourier import roots

Load = Callable[[Value], Pair]
Store = Callable[[Value, Pair], None]
Memory = tuple[Buffer, Buffer]

_SCRATCH = 65536  # bytes: two of these are the scratch memory of a kernel
_MOST = 1 << 20  # the longest rows: longer ones would need tables of several megabytes
_SHORT = 2048  # the longest rows that are seen as a matrix with as many columns as lanes


# --- plans ------------------------------------------------------------------------------------------


@cache
def radices_of(n: int, registers: int = 16) -> tuple[int, ...] | None:
    """Return the sizes of the butterflies of a transform; None if a prime factor is too large.

    A butterfly of 8 numbers fits 32 registers. With 16 of them, two of 4 numbers are faster.
    """
    power = (n & -n).bit_length() - 1
    eights = max(power // 3 - (power % 3 == 1), 0) if registers >= 32 else int(power % 2 and power > 1)
    fours, twos = divmod(power - 3 * eights, 2)
    result = [8] * eights + [4] * fours + [2] * twos
    n >>= power
    for prime in (7, 5, 3):
        while n % prime == 0:
            result.append(prime)
            n //= prime
    return tuple(result) if n == 1 else None


def longest(lanes: int) -> int:
    """Return the length of the longest columns whose elements fit scratch memory twice."""
    return _SCRATCH // (8 * lanes)


@dataclass(frozen=True)
class MatrixForm:
    """The matrix that a row is seen as.

    Attributes:
        rows: The number of rows, which is the length of the columns.
        columns: The number of columns: a multiple of the lanes.
        lanes: The number of lanes of vectors.
    """

    rows: int
    columns: int
    lanes: int

    @property
    def is_short(self) -> bool:
        """Whether rows of the matrix are vectors."""
        return self.columns == self.lanes


def matrix_form(n: int, lanes: int) -> MatrixForm | None:
    """Return the matrix of a length on a CPU with `lanes` floats in a vector; None if there is none."""
    while lanes >= 4 and n <= _MOST:
        if n % lanes == 0 and n >= lanes * lanes and radices_of(n) is not None:
            columns = (
                [c for c in range(lanes, longest(lanes) + 1, lanes) if _are_even(n, c, lanes)] if n > _SHORT else []
            )
            if columns:
                best = min(columns, key=lambda c: (abs(c - n // c), c))
                return MatrixForm(n // best, best, lanes)
            if n <= longest(lanes) * lanes:
                return MatrixForm(n // lanes, lanes, lanes)
        lanes //= 2
    return None


def vector_start(k: Kernel, start: Value, size: int, lanes: int) -> Value:
    """The start of a whole vector of a row: that of the last one is earlier, so that some elements are computed twice."""
    return start if size % lanes == 0 else k.least(start, size - lanes)


def _are_even(n: int, columns: int, lanes: int) -> bool:
    rows, rest = divmod(n, columns)
    return rest == 0 and rows % lanes == 0 and rows <= longest(lanes)


# --- transforms of columns --------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnTransform:
    """The transforms of columns, one in each lane.

    In each stage, butterflies combine elements whose results are in order at once (T. G. Stockham, 1966).

    Attributes:
        k: The kernel.
        length: The length of the columns.
        memory: Two buffers for the elements between stages: `[length or more, 2, lanes]`.
    """

    k: Kernel
    length: int
    memory: Memory

    def emit(self, load: Load, store: Store) -> None:
        """Emit the transforms: `load` reads elements of all columns, and `store` writes them."""
        k, remaining, done = self.k, self.length, 1
        radices = radices_of(self.length, k.cpu.registers) or ()
        for number, radix in enumerate(radices):
            source = load if number == 0 else reader(self.memory[number % 2])
            target = store if number == len(radices) - 1 else writer(self.memory[(number + 1) % 2])
            self._stage(source, target, radix, remaining, done)
            remaining, done = remaining // radix, done * radix
        if not radices:
            store(k.index(0), load(k.index(0)))

    def _stage(self, load: Load, store: Store, radix: int, remaining: int, done: int) -> None:
        k, part = self.k, remaining // radix
        numbers = range(1, radix)
        table = k.table(np.moveaxis(parts_of(roots(remaining, np.outer(np.arange(part), numbers))), 0, -1))
        for p in k.range(part):
            factors = [(table[p, m - 1, 0], table[p, m - 1, 1]) for m in numbers] if part > 1 else []
            for q in k.range(done):
                results = butterfly(_every(load, p * done + q, part * done), radix)
                for m, result in enumerate(results):
                    value = times(result, factors[m - 1]) if m and factors else result
                    store((p * radix + m) * done + q, value)


def _every(load: Load, first: Value, step: int) -> Callable[[int], Pair]:
    return lambda j: load(first + j * step)


def reader(memory: Buffer) -> Load:
    """The function that reads a vector of memory `[length, 2, lanes]`."""
    at = Lanes(0, _lanes(memory))
    return lambda row: (memory[row, 0, at], memory[row, 1, at])


def writer(memory: Buffer) -> Store:
    """The function that writes a vector of memory `[length, 2, lanes]`."""
    at = Lanes(0, _lanes(memory))

    def store(row: Value, value: Pair) -> None:
        memory[row, 0, at], memory[row, 1, at] = value

    return store


def _lanes(memory: Buffer) -> int:
    lanes = memory.shape[-1]
    assert isinstance(lanes, int)
    return lanes


def parts_of(numbers: np.ndarray) -> np.ndarray:
    """Return the real and imaginary parts on a new first axis."""
    return np.stack([np.real(numbers), np.imag(numbers)])


# --- transforms of rows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RowTransform:
    """The transform of a row of complex numbers.

    Attributes:
        k: The kernel.
        form: The matrix that the row is seen as.
        y: The results: rows of floats, of `2 * rows * columns` or more.
        is_inverse: Whether it is the inverse transform.
        scale: A factor for the results.
    """

    k: Kernel
    form: MatrixForm
    y: Buffer
    is_inverse: bool
    scale: float

    def emit(self, i: Value, load: Load) -> None:
        """Emit the transform of row i: `load` reads its vector of a number."""
        rows, columns, lanes = self.form.rows, self.form.columns, self.form.lanes
        first, second = (self.k.scratch(max(rows, columns), 2, lanes) for _ in range(2))
        memory = first, second
        if self.form.is_short:
            self._short(i, load, memory)
            return
        for block in self.k.range(columns // lanes):
            self._columns(i, block, load, memory)
        for block in self.k.range(rows // lanes):
            self._rows(i, block * lanes, memory)

    def _swapped(self, x: Pair) -> Pair:
        return swapped(x) if self.is_inverse else x

    def _short(self, i: Value, load: Load, memory: Memory) -> None:
        """Transform the vectors of a matrix, and then its rows: `lanes` of them are transposed, so that they are vectors."""
        k, rows, lanes = self.k, self.form.rows, self.form.lanes
        ColumnTransform(k, rows, (memory[1], memory[0])).emit(lambda row: self._swapped(load(row)), writer(memory[0]))
        starts = [min(start, rows - lanes) for start in range(0, rows, lanes)]  # the last rows may be computed twice
        factors = k.table(np.stack([self._twiddles(start) for start in starts]))
        for group in k.range(len(starts)):
            start = vector_start(k, group * lanes, rows, lanes)
            read, at = _reader_of_blocks(memory[0], start), Lanes(0, lanes)
            sums: list[Pair] = []
            differences: list[Pair] = []
            for number in range(lanes // 4):
                values = []
                for row in range(4):
                    factor = factors[group, number, row, 0, at], factors[group, number, row, 1, at]
                    values.append(times(read(number, row), factor))
                columns = _columns_of(values)  # the numbers of the last two are `lanes // 2` greater
                sums += [plus(*pair) for pair in zip(columns[:2], columns[2:], strict=True)]
                differences += [minus(*pair) for pair in zip(columns[:2], columns[2:], strict=True)]
            turned = [turned_by(value, column, lanes) for column, value in enumerate(differences)]
            for parity, half in enumerate((sums, turned)):
                for t, value in enumerate(butterfly(half.__getitem__, lanes // 2)):
                    store_pairs(self.y, i, start + (2 * t + parity) * rows, self._swapped(value))

    def _twiddles(self, start: int) -> np.ndarray:
        """Return the factors of the blocks of `_reader_of_blocks`: `[lanes // 4, 4, 2, lanes]`."""
        rows, lanes = self.form.rows, self.form.lanes
        order = np.array(lane_order(lanes)).reshape(-1, 4)
        numbers = start + order.T[None, :, :, None]  # of the row: [1, 4, lanes // 4, 1]
        columns = order[:, None, None, :]  # [lanes // 4, 1, 1, 4]
        values = roots(rows * lanes, numbers * columns).reshape(lanes // 4, 4, lanes) * self.scale
        return np.moveaxis(parts_of(values), 0, 2)

    def _columns(self, i: Value, block: Value, load: Load, memory: Memory) -> None:
        """Transform the columns of a block, and write them as rows to the results, each `lanes` of numbers as a vector of real
        parts and one of imaginary parts.
        """
        k, rows, columns, lanes = self.k, self.form.rows, self.form.columns, self.form.lanes
        blocks, order = columns // lanes, lane_order(lanes)
        # The twiddle factor of an element is that of the first one in its vector times that of its lane in the first block.
        firsts = roots(rows * blocks, np.outer(np.arange(blocks), np.arange(rows))) * self.scale
        first = k.table(np.moveaxis(parts_of(firsts), 0, -1))
        rest = reader(k.table(np.moveaxis(parts_of(roots(rows * columns, np.outer(np.arange(rows), order))), 0, 1)))
        write = writer(memory[0])

        def store(row: Value, value: Pair) -> None:
            write(row, times(times(value, rest(row)), (first[block, row, 0], first[block, row, 1])))

        transform = ColumnTransform(k, rows, (memory[1], memory[0]))
        transform.emit(lambda row: self._swapped(load(row * blocks + block)), store)
        for start in k.range(0, rows, lanes):
            read = _reader_of_blocks(memory[0], start)
            for number in range(lanes // 4):
                values = _columns_of([read(number, row) for row in range(4)])
                for column, value in zip(order[4 * number : 4 * number + 4], values, strict=True):
                    at = ((block * lanes + column) * rows + start) * 2
                    self.y[i, Lanes(at, lanes)], self.y[i, Lanes(at + lanes, lanes)] = value

    def _rows(self, i: Value, start: Value, memory: Memory) -> None:
        """Transform a vector of rows in place."""
        rows, columns, lanes = self.form.rows, self.form.columns, self.form.lanes

        def load(column: Value) -> Pair:
            at = (column * rows + start) * 2
            return self.y[i, Lanes(at, lanes)], self.y[i, Lanes(at + lanes, lanes)]

        def store(column: Value, value: Pair) -> None:
            store_pairs(self.y, i, column * rows + start, self._swapped(value))

        ColumnTransform(self.k, columns, (memory[0], memory[1])).emit(load, store)


def _reader_of_blocks(memory: Buffer, start: Value) -> Callable[[int, int], Pair]:
    """The function that reads a block of four elements of `lanes // 4` rows as a vector, for `_columns_of`."""
    lanes = _lanes(memory)
    order = lane_order(lanes)

    def read(number: int, row: int) -> Pair:
        rows = [start + order[4 * block + row] for block in range(lanes // 4)]
        real, imaginary = (joined_blocks([memory[r, part, Lanes(4 * number, 4)] for r in rows]) for part in (0, 1))
        return real, imaginary

    return read


def _columns_of(values: Sequence[Pair]) -> list[Pair]:
    """Return four vectors with elements of a column, in `lane_order`, of four blocks."""
    real, imaginary = (transposed_blocks([value[part] for value in values]) for part in (0, 1))
    return list(zip(real, imaginary, strict=True))
