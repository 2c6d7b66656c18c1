"""Fourier transforms, and systems of equations with triangular matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape


@imports("fft")
def fft(g: Graph, x: Tensor, *, fft_type: str, fft_length: tuple[int, ...]) -> Tensor:
    axes = list(range(x.rank - len(fft_length), x.rank))
    if fft_type in ("FFT", "IFFT"):
        for axis in axes:
            x = g.fft(x, axis=axis, inverse=fft_type == "IFFT")
        return x
    if fft_type == "RFFT":
        x = g.rfft(x, axis=-1)
        for axis in axes[:-1]:
            x = g.fft(x, axis=axis)
        return x
    for axis in axes[:-1]:
        x = g.fft(x, axis=axis, inverse=True)
    return g.irfft(x, length=fft_length[-1], axis=-1)


@dataclass(frozen=True, kw_only=True)
class SolveAttributes(ArgumentGroup):
    """The attributes of a triangular system, with StableHLO's names."""

    left_side: bool
    lower: bool
    unit_diagonal: bool
    transpose_a: str


@imports("triangular_solve")
def triangular_solve(g: Graph, a: Tensor, b: Tensor, *, system: SolveAttributes) -> Tensor:
    """Solve by RLX's op. Complex matrices are solved by substitution, one row per step."""
    left_side, lower, unit_diagonal, transpose_a = (
        system.left_side,
        system.lower,
        system.unit_diagonal,
        system.transpose_a,
    )
    if a.dtype.is_complex and transpose_a == "ADJOINT":
        a = g.conjugate(a)
    if transpose_a in ("TRANSPOSE", "ADJOINT"):
        a, lower = g.swapaxes(a, -1, -2), not lower
    if not left_side:
        a, b, lower = g.swapaxes(a, -1, -2), g.swapaxes(b, -1, -2), not lower
    if not a.dtype.is_complex:
        x = g.triangular_solve(a, b, lower=lower, unit_diagonal=unit_diagonal)
        return x if left_side else g.swapaxes(x, -1, -2)
    if not lower:  # with rows and columns reversed, it is a lower triangular matrix
        a, b = g.reverse(a, [a.rank - 2, a.rank - 1]), g.reverse(b, [b.rank - 2])
    x = _substituted(g, a, b, unit_diagonal=unit_diagonal)
    x = x if lower else g.reverse(x, [x.rank - 2])
    return x if left_side else g.swapaxes(x, -1, -2)


def _substituted(g: Graph, a: Tensor, b: Tensor, *, unit_diagonal: bool) -> Tensor:
    """Return x with `a·x = b`, for a lower triangular matrix `[…, n, n]` and `b […, n, m]`."""
    *batch, n, m = b.shape.static
    if 0 in (*batch, n, m):
        return b
    count = math.prod(batch)
    rows = g.transpose(g.reshape(a, (count, n, n)), (1, 0, 2))  # [n, batch, n]
    right = g.transpose(g.reshape(b, (count, n, m)), (1, 0, 2))
    places = g.reshape(g.iota((n,), 0, "i32"), (n, 1))
    zero = g.constant(np.zeros((), a.dtype.numpy))

    def step(x: Tensor, row_of: Any) -> Any:
        row, value, place = row_of
        before = g.where(g.reshape(places, (1, n)) < place, row, zero)
        rest = value - g.squeeze(g.matmul(g.expand_dims(before, 1), x), 1)
        if not unit_diagonal:
            diagonal = g.sum(g.where(g.reshape(places, (1, n)) == place, row, zero), axis=1, keepdims=True)
            rest = rest / diagonal
        return g.where(g.reshape(places, (1, n, 1)) == place, g.expand_dims(rest, 1), x), ()

    start = g.zeros((count, n, m), b.dtype)
    x, _ = g.scan(step, start, (rows, right, g.iota((n,), 0, "i32")))
    return g.reshape(x, b.shape.dims)


@imports("cholesky")
def cholesky(g: Graph, a: Tensor, *, lower: bool = False, results: list[Shape]) -> Tensor:
    """Return the Cholesky factor. Real matrices use RLX's op; complex ones are factored one column per step.

    The other triangle is zero. All elements are NaN if there is no factor.
    """
    *batch, n, _ = a.shape.static
    if 0 in (*batch, n):
        return a
    if not a.dtype.is_complex:
        factor = g.cholesky(a if lower else g.swapaxes(a, -1, -2))
        last = factor[..., -1:, -1:]
        factor = g.where(last == last, factor, float("nan"))
        return factor if lower else g.swapaxes(factor, -1, -2)
    if not lower:
        a = g.swapaxes(a, -1, -2)
        a = g.conjugate(a) if a.dtype.is_complex else a
    count = math.prod(batch)
    matrix = g.reshape(a, (count, n, n))
    places = g.iota((n,), 0, "i32")
    zero = g.constant(np.zeros((), a.dtype.numpy))

    def step(kept: Tensor, column_of: Any) -> Any:
        column, place = column_of  # [batch, n]
        row = g.sum(g.where(g.reshape(places, (1, n, 1)) == place, kept, zero), axis=1)
        row = g.conjugate(row) if row.dtype.is_complex else row
        rest = column - g.squeeze(g.matmul(kept, g.expand_dims(row, -1)), -1)
        here = g.reshape(places, (1, n)) == place
        diagonal = g.sqrt(g.sum(g.where(here, rest, zero), axis=1, keepdims=True))
        found = g.where(g.reshape(places, (1, n)) < place, zero, g.where(here, diagonal, rest / diagonal))
        return g.where(g.reshape(places, (1, 1, n)) == place, g.expand_dims(found, -1), kept), ()

    start = g.zeros((count, n, n), a.dtype)
    result, _ = g.scan(step, start, (g.transpose(matrix, (2, 0, 1)), places))
    result = g.reshape(result, a.shape.dims)
    if lower:
        return result
    result = g.swapaxes(result, -1, -2)
    return g.conjugate(result) if result.dtype.is_complex else result
