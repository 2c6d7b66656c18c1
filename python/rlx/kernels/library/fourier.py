"""Kernels of Fourier transforms. Real rows are transformed as complex ones of half the length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import bool_, f32
from rlx.kernels.buffer import Buffer, product
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.butterflies import (
    Pair,
    conjugate,
    lane_order,
    load_mirrored,
    load_pairs,
    minus,
    plus,
    scaled,
    store_mirrored,
    store_pairs,
    swapped,
    times,
)
from rlx.kernels.library.transforms import (
    ColumnTransform,
    Load,
    MatrixForm,
    RowTransform,
    Store,
    longest,
    matrix_form,
    parts_of,
    radices_of,
    vector_start,
)
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value, where
from rlx.ops.signal.fourier import roots

_BYTES = 65536  # of a workgroup
# The power of the length that scales a transform, by norm: forward, inverse.
_POWERS = {"backward": (0.0, -1.0), "ortho": (-0.5, -0.5), "forward": (-1.0, 0.0)}


def _scale(n: int, norm: str, is_inverse: bool) -> float:
    return float(n) ** _POWERS[norm][is_inverse]


def _form(k: Kernel, n: int) -> MatrixForm:
    form = matrix_form(n, k.cpu.lanes(f32))
    assert form is not None
    return form


def _length(x: Buffer, axis: int) -> int:
    n = x.shape[axis]
    assert isinstance(n, int)
    return n


def _per_workgroup(n: int) -> int:
    """Return the number of rows of n complex numbers of a workgroup."""
    return max(1, _BYTES // (8 * n))


def _row_reader(x: Buffer, i: Value, lanes: int) -> Load:
    return lambda number: load_pairs(x, i, number * lanes, lanes)


# --- complex numbers --------------------------------------------------------------------------------


def _takes_rows_or_columns(case: KernelCase) -> bool:
    x, axis, lanes = case.tensors[0], case.attributes["axis"], case.cpu.lanes(f32)
    n, following = x.dims[axis], x.dims[axis + 1 :]
    if not case.are_all("c64") or type(n) is not int:
        return False
    if not following:
        return matrix_form(n, lanes) is not None
    inner = math.prod(d if isinstance(d, int) else 0 for d in following)
    return inner >= 4 and n <= longest(lanes) and radices_of(n) is not None


@kernel("fft", takes=_takes_rows_or_columns)
def fft(k: Kernel, x: Buffer, y: Buffer, *, axis: int, inverse: bool, norm: str) -> None:
    """The transforms of the rows or columns of complex numbers."""
    n, outer, inner = _length(x, axis), product(x.shape[:axis]), product(x.shape[axis + 1 : -1])
    scale = _scale(n, norm, inverse)
    if axis < x.rank - 2:
        assert isinstance(inner, int)
        x, y = (part.view(product([outer, n]), 2 * inner) for part in (x, y))
        Columns(k, x, y, n, inverse, scale).emit()
        return
    form = _form(k, n)
    x, y = x.view(outer, 2 * n), y.view(outer, 2 * n)
    for i in k.parallel(outer, _per_workgroup(n)):
        RowTransform(k, form, y, inverse, scale).emit(i, _row_reader(x, i, form.lanes))


@dataclass(frozen=True)
class Columns:
    """The transforms of the columns of matrices of complex numbers.

    Attributes:
        k: The kernel.
        x: The rows of all matrices, of floats.
        y: The same of the results.
        length: The number of rows of a matrix.
        is_inverse: Whether it is the inverse transform.
        scale: A factor for the results.
    """

    k: Kernel
    x: Buffer
    y: Buffer
    length: int
    is_inverse: bool
    scale: float

    def emit(self) -> None:
        """Emit the transforms."""
        k, n, (height, floats) = self.k, self.length, self.x.shape
        assert isinstance(floats, int)
        columns = floats // 2
        lanes = min(k.cpu.lanes(f32), 1 << columns.bit_length() - 1)
        blocks = -(-columns // lanes)
        for number in k.parallel(height // n * blocks, _per_workgroup(n * lanes)):
            start = number % blocks * lanes
            first = vector_start(k, start, columns, lanes)
            memory = k.scratch(n, 2, lanes), k.scratch(n, 2, lanes)
            ColumnTransform(k, n, memory).emit(*self._access(number // blocks * n, first, lanes))

    def _access(self, top: Value, first: Value, lanes: int) -> tuple[Load, Store]:
        """Return the functions that read and write a vector of a row of a matrix."""

        def load(row: Value) -> Pair:
            value = load_pairs(self.x, top + row, first, lanes)
            return swapped(value) if self.is_inverse else value

        def store(row: Value, value: Pair) -> None:
            result = scaled(value, self.scale)
            store_pairs(self.y, top + row, first, swapped(result) if self.is_inverse else result)

        return load, store


# --- real numbers -----------------------------------------------------------------------------------


def _takes_real_rows(case: KernelCase) -> bool:
    """Whether rows are pairs of real numbers that are seen as complex ones."""
    spectrum = case.results[0] if case.tensors[0].dtype.name == "f32" else case.tensors[0]
    if spectrum.dtype.name != "c64" or case.attributes["axis"] != spectrum.rank - 1:
        return False
    (n,) = case.attributes.get("length", case.tensors[0].dims[-1:])
    return isinstance(n, int) and n % 2 == 0 and matrix_form(n // 2, case.cpu.lanes(f32)) is not None


def _twisted(n: int, numbers: np.ndarray) -> np.ndarray:
    """Return the parts of the factors that combine the transforms of the even and odd elements of n real numbers."""
    return parts_of(-1j * roots(n, numbers))


def _twisted_vectors(k: Kernel, n: int, lanes: int, count: int) -> Load:
    """Return the function from the number of a vector of these factors to it."""
    firsts = k.table(_twisted(n, np.arange(count) * lanes).T)
    real, imaginary = (k.constants(part.tolist(), f32) for part in parts_of(roots(n, lane_order(lanes))))
    return lambda number: times((real, imaginary), (firsts[number, 0], firsts[number, 1]))


@kernel("rfft", takes=_takes_real_rows)
def rfft(k: Kernel, x: Buffer, y: Buffer, *, axis: int, norm: str) -> None:
    """The first half of the transforms of rows of real numbers."""
    n, rows = _length(x, axis), product(x.shape[:axis])
    form = _form(k, n // 2)
    x, y = x.view(rows, n), y.view(rows, n + 2)
    for i in k.parallel(rows, _per_workgroup(n // 2)):
        RowTransform(k, form, y, False, _scale(n, norm, False) / 2).emit(i, _row_reader(x, i, form.lanes))
        _combine(k, y, i, n, form.lanes)


def _combine(k: Kernel, y: Buffer, i: Value, n: int, lanes: int) -> None:
    """Replace the transform of a row of pairs, halved, by that of its real numbers."""
    half, whole = n // 2, n // 4 // lanes
    y[i, n], y[i, n + 1] = y[i, 0], y[i, 1]
    factors = _twisted_vectors(k, n, lanes, max(whole, 1))
    for number in k.range(whole):
        first = number * lanes
        low, high = load_pairs(y, i, first, lanes), load_mirrored(y, i, half - first, lanes)
        low, high = _combined(low, high, factors(number))
        store_pairs(y, i, first, low)
        store_mirrored(y, i, half - first, high)
    table = k.table(_twisted(n, np.arange(whole * lanes, half // 2 + 1)).T)
    for number in k.range(half // 2 + 1 - whole * lanes):
        low, high = (number + whole * lanes) * 2, (half - whole * lanes - number) * 2
        first, second = ((y[i, at], y[i, at + 1]) for at in (low, high))
        pair = _combined(first, second, (table[number, 0], table[number, 1]))
        for at, value in zip((low, high), pair, strict=True):
            y[i, at], y[i, at + 1] = value


def _combined(low: Pair, high: Pair, factor: Pair) -> tuple[Pair, Pair]:
    """Combine the elements k and n/2 - k of the transform of pairs."""
    even, odd = plus(low, conjugate(high)), times(minus(low, conjugate(high)), factor)
    return plus(even, odd), conjugate(minus(even, odd))


@kernel("irfft", takes=_takes_real_rows)
def irfft(k: Kernel, x: Buffer, y: Buffer, *, axis: int, length: tuple[int, ...], norm: str) -> None:
    """The rows of real numbers of the first half of their transforms."""
    (n,), rows = length, product(x.shape[:axis])
    form = _form(k, n // 2)
    x, y = x.view(rows, n + 2), y.view(rows, n)
    for i in k.parallel(rows, _per_workgroup(n // 2)):
        RowTransform(k, form, y, True, _scale(n, norm, True)).emit(i, _half_reader(k, x, i, n, form.lanes))


def _half_reader(k: Kernel, x: Buffer, i: Value, n: int, lanes: int) -> Load:
    """The function that reads a vector of the transform of pairs. The first and the last element of the row count as real."""
    factors = _twisted_vectors(k, n, lanes, n // 2 // lanes)
    is_first = k.constants([lane == 0 for lane in range(lanes)], bool_)

    def load(number: Value) -> Pair:
        low, high = load_pairs(x, i, number * lanes, lanes), load_mirrored(x, i, n // 2 - number * lanes, lanes)
        is_real = is_first & (number == 0)
        low, high = ((real, where(is_real, 0.0, imaginary)) for real, imaginary in (low, high))
        odd = times(minus(low, conjugate(high)), conjugate(factors(number)))
        return plus(plus(low, conjugate(high)), odd)

    return load
