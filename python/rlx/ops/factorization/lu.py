"""Triangular factors with partial pivoting."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.dtype import COMPLEXES, FLOATS, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors
from rlx.ir.op.card import OpSample, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.factorization import blocked
from rlx.ops.factorization.matrices import Factorization, order_of
from rlx.ops.factorization.phases import is_complex


class Lu(Factorization, op="lu"):
    """Gaussian elimination, one column per step; large square matrices in blocks of columns."""

    def infer(self, a: Shape) -> tuple[Shape, Shape, Shape]:
        rows, columns = order_of(a, square=False)
        batch = a.dims[:-2]
        return a, Shape((*batch, min(rows, columns)), i32), Shape((*batch, rows), i32)

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        *batch, rows, columns = a.shape
        steps = min(rows, columns)
        flat = (
            a.reshape(-1, rows, columns).copy() if a.size else np.zeros((int(np.prod(batch)), rows, columns), a.dtype)
        )
        pivots = np.zeros((len(flat), steps), np.int32)
        order = np.tile(np.arange(rows, dtype=np.int32), (len(flat), 1))
        for matrix, pivot, permutation in zip(flat, pivots, order, strict=True):
            for k in range(steps):
                pivot[k] = found = k + int(np.argmax(pivot_sizes(np, matrix[k:, k])))
                matrix[[k, found]], permutation[[k, found]] = matrix[[found, k]], permutation[[found, k]]
                if matrix[k, k] != 0:
                    matrix[k + 1 :, k] /= matrix[k, k]
                matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
        return flat.reshape(a.shape), pivots.reshape(*batch, steps), order.reshape(*batch, rows)

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = order_of(a.shape, square=False)
        if rows == columns > blocked.LARGEST:
            return blocked.lu(b, a, lambda b, panel, first: _eliminated(b, panel, first, blocked.BLOCK))
        return _eliminated(b, a, b.constant(0, dtype="i32"), min(rows, columns))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor | None, ...]:
        """Return `dL = L·lower(X)` and `dU = upper(X)·U` for `X = L⁻¹·P·dA·U⁻¹`.

        Rows and columns of the identity make both factors square.
        """
        (packed, _, permutation), (da,) = results, tangents
        rows, columns = order_of(packed.shape, square=False)
        steps, batch = min(rows, columns), packed.rank - 2
        permuted = b.gather_batched(da, permutation, axis=batch)
        lower = b.tril(_square(b, b.narrow(packed, -1, 0, steps), rows), -1) + b.eye(rows, dtype=packed.dtype)
        upper = b.triu(_square(b, b.narrow(packed, -2, 0, steps), columns))
        ones = b.constant((np.arange(columns) >= steps).astype(packed.dtype.numpy))
        upper = upper + b.eye(columns, dtype=packed.dtype) * ones
        left = b.triangular_solve(lower, permuted, unit_diagonal=True)
        both = b.swapaxes(b.triangular_solve(b.swapaxes(upper, -1, -2), b.swapaxes(left, -1, -2)), -1, -2)
        return b.matmul(lower, b.tril(both, -1)) + b.matmul(b.triu(both), upper), None, None

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS)
        yield sample((4, 2), dtypes=("f32",))
        yield sample((2, 5), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(SampleOperand(("batch", 3, 3)), dtypes=("f32",))
        yield sample((2, 3, 3), dtypes=COMPLEXES)


def pivot_sizes(xp: Builder | ModuleType, column: Any) -> Any:
    """Return by what pivots are chosen: the magnitude, of complex numbers `|re| + |im|`, as in LAPACK."""
    return xp.abs(xp.real(column)) + xp.abs(xp.imag(column)) if is_complex(column) else xp.abs(column)


def _eliminated(b: Builder, a: Tensor, first: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Eliminate the first columns of matrices `[B, M, N]` below the diagonal that begins in row `first`.

    Returns:
        The matrices, the rows that were exchanged, `[B, count]`, and the resulting order of the rows, `[B, M]`.
    """
    batch, (rows, columns) = a.shape.dims[0], order_of(a.shape, square=False)
    row_places, column_places = (b.iota((n,), dtype="i32") for n in (rows, columns))

    def eliminate(carry: tuple[Tensor, Tensor], step: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        matrix, order = carry
        place = first + step
        at_place, at_step = b.reshape(place, (1,)), b.reshape(step, (1,))
        column = b.gather(matrix, step, axis=2)  # [B, M]
        pivot = b.argmax(b.where(row_places >= place, pivot_sizes(b, column), -1.0), 1, keep_dims=True)  # [B, 1]
        is_pivot, is_place = row_places == pivot, row_places == place
        pivot_row, step_row = b.gather_batched(matrix, pivot, axis=1), b.gather(matrix, at_place, axis=1)
        exchanged = b.where(
            b.reshape(is_place, (rows, 1)),
            pivot_row,
            b.where(b.reshape(is_pivot, (batch, rows, 1)), step_row, matrix),
        )
        pivot_place, step_place = b.gather_batched(order, pivot, axis=1), b.gather(order, at_place, axis=1)
        order = b.where(is_place, pivot_place, b.where(is_pivot, step_place, order))
        value = b.gather(pivot_row, at_step, axis=2)  # [B, 1, 1]
        below = b.where(row_places > place, b.gather(exchanged, step, axis=2), 0.0)
        factor = b.reshape(below, (batch, rows, 1)) / b.where(value == 0.0, 1.0, value)
        kept = b.where(column_places > step, exchanged - factor * pivot_row, exchanged)
        is_factor = b.logical_and(b.reshape(row_places > place, (rows, 1)), column_places == step)
        return (b.where(is_factor, factor, kept), order), b.squeeze(pivot, 1)

    start = (a, b.expand(row_places, (batch, rows)))
    (matrix, order), pivots = b.scan(eliminate, start, b.iota((count,), dtype="i32"))
    return matrix, b.transpose(pivots, (1, 0)), order


def _square(b: Builder, a: Tensor, size: int) -> Tensor:
    """Pad matrices with zeros below and on the right, up to a size."""
    padding = [(0, 0)] * (a.rank - 2) + [(0, size - d) for d in order_of(a.shape, square=False)]
    return b.pad(a, padding)
