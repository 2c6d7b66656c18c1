"""Orthonormal and triangular factors, by Householder reflections."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import product
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ir.op.card import OpSample, sample
from rlx.ir.op.results import QRResult
from rlx.ir.shape import Shape
from rlx.ops.contraction.contraction import swap_last_axes
from rlx.ops.factorization.matrices import Factorization, as_floats, order_of
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input


class Qr(Factorization, op="qr"):
    named = QRResult

    def infer(self, a: Shape) -> tuple[Shape, Shape]:
        rows, columns = order_of(a, square=False)
        batch, inner = a.dims[:-2], min(rows, columns)
        return a.with_dims((*batch, rows, inner)), a.with_dims((*batch, inner, columns))

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q, r = np.linalg.qr(a)
        return q, r

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
        inner = min(order_of(a.shape, square=False))
        reduced, vectors, factors = reflected(b, a)
        return reflected_identity(b, vectors, factors, inner), b.triu(b.narrow(reduced, 1, 0, inner))

    def build(self, b: Builder, a: TensorLike, full_matrices: bool = False) -> tuple[Tensor, Tensor]:
        """With `full_matrices`, `q` is `[…, M, M]` and `r` is `[…, M, N]`."""
        a = as_floats(b, a)
        rows, columns = order_of(a.shape, square=False)
        return _completed(b, a) if full_matrices and rows > columns else b.emit("qr", (a,))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor]:
        """Return `dq = q·(S - qᵀ·dx) + dx` for `dx = da·r⁻¹` of the square part.

        S is skew and has the lower triangle of `qᵀ·dx`. Source: Walter and Lehmann, "Algorithmic differentiation of
        linear algebra functions", 2010.
        """
        (q, r), (da,) = results, tangents
        inner = q.shape.dims[-1]
        square, of_square = b.narrow(r, -1, 0, inner), b.narrow(da, -1, 0, inner)
        dx = swap_last_axes(b, b.triangular_solve(swap_last_axes(b, square), swap_last_axes(b, of_square)))
        along = b.matmul(swap_last_axes(b, q), dx)
        lower = b.tril(along, -1)
        skew = lower - swap_last_axes(b, lower)
        dq = b.matmul(q, skew - along) + dx
        if r.shape.dims[-1] == inner:
            return dq, b.matmul(along - skew, r)
        return dq, b.matmul(swap_last_axes(b, q), da - b.matmul(dq, r))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS)
        yield sample((5, 3), dtypes=("f32",))
        yield sample((2, 4), dtypes=("f32",))
        yield sample((3, 0), dtypes=("f32",))
        yield sample(("batch", 3, 2), dtypes=("f32",))


def reflected(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make matrices `[B, M, N]` upper triangular with `K = min(M, N)` reflections `I - factor·v·vᵀ`.

    Returns:
        The matrices, vectors `[K, B, M]` and factors `[K, B, 1]`. Elements of the matrices below the diagonal are
        undefined.
    """
    batch, (rows, columns) = a.shape.dims[0], order_of(a.shape, square=False)
    places = b.iota((rows,), dtype="i32")

    def step(matrix: Tensor, place: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        column = b.gather(matrix, place, axis=2)
        head = b.reshape(b.gather(column, place, axis=1), (batch, 1))
        tail = b.where(places > place, column, 0.0)
        largest = b.max(b.abs(b.where(places >= place, column, 0.0)), axes=1, keep_dims=True)
        scale = b.stop_gradient(b.where(largest == 0.0, 1.0, largest))  # otherwise squares would overflow or underflow
        squares = b.sum(b.square(tail / scale), axes=1, keep_dims=True)
        is_done = squares == 0.0
        length = b.sqrt(b.where(is_done, 1.0, squares + b.square(head / scale))) * scale
        beta = b.where(is_done, head, b.where(head < 0.0, length, -length))
        factor = b.where(is_done, 0.0, (beta - head) / b.where(is_done, 1.0, beta))
        vector = b.where(places == place, 1.0, tail / b.where(is_done, 1.0, head - beta))
        return _applied(b, vector, factor, matrix), (vector, factor)

    reduced, (vectors, factors) = b.scan(step, a, b.iota((min(rows, columns),), dtype="i32"))
    return reduced, vectors, factors


def _applied(b: Builder, vector: Tensor, factor: Tensor, matrix: Tensor) -> Tensor:
    """Return `(I - factor·v·vᵀ)·matrix` for `v [B, M]` and `matrix [B, M, N]`."""
    column = b.reshape(vector, (*vector.shape.dims, 1))
    products = b.sum(column * matrix, axes=1, keep_dims=True)
    return matrix - b.reshape(factor, (*factor.shape.dims, 1)) * column * products


def reflected_identity(b: Builder, vectors: Tensor, factors: Tensor, columns: int) -> Tensor:
    """Return the first columns of the product of reflections, `[B, M, columns]`."""
    batch, rows = vectors.shape.dims[1:]
    assert type(rows) is int
    start = b.expand(b.eye(rows, columns, dtype=vectors.dtype), (batch, rows, columns))

    def step(q: Tensor, reflection: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        vector, factor = reflection
        return _applied(b, vector, factor, q), ()

    return b.scan(step, start, (vectors, factors), reverse=True)[0]


def _completed(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of tall matrices with a square `q`, as ordinary ops, because their derivative has no closed form."""
    *batch, rows, columns = (*a.shape.dims[:-2], *order_of(a.shape, square=False))
    if columns == 0 or 0 in batch:
        return b.expand(b.eye(rows, dtype=a.dtype), (*batch, rows, rows)), a
    reduced, vectors, factors = reflected(b, statistics_input(b, b.reshape(a, (product(batch), rows, columns))))
    q = b.reshape(reflected_identity(b, vectors, factors, int(rows)), (*batch, rows, rows))
    return cast(b, q, a.dtype), cast(b, b.reshape(b.triu(reduced), a.shape.dims), a.dtype)
