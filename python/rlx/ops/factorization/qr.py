"""Orthonormal and triangular factors, by Householder reflections."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import product
from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ir.op.card import OpSample, sample
from rlx.ir.op.results import QRResult
from rlx.ir.shape import Shape
from rlx.ops.contraction.contraction import swap_last_axes
from rlx.ops.factorization.matrices import Factorization, adjoint, as_inexact, order_of
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
        a = as_inexact(b, a)
        rows, columns = order_of(a.shape, square=False)
        return _completed(b, a) if full_matrices and rows > columns else b.emit("qr", (a,))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor]:
        """Return `dq = q·(S - qᴴ·dx) + dx` for `dx = da·r⁻¹` of the square part.

        S is skew-Hermitian and has the lower triangle of `qᴴ·dx`, with the imaginary parts of the
        diagonal. Source: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010.
        """
        (q, r), (da,) = results, tangents
        inner = q.shape.dims[-1]
        square, of_square = b.narrow(r, -1, 0, inner), b.narrow(da, -1, 0, inner)
        dx = swap_last_axes(b, b.triangular_solve(swap_last_axes(b, square), swap_last_axes(b, of_square)))
        along = b.matmul(adjoint(b, q), dx)
        lower = b.tril(along, -1)
        skew = lower - adjoint(b, lower)
        if q.dtype.is_complex:
            skew = skew + b.complex(0.0, b.imag(along) * b.eye(inner, dtype=q.dtype.part))  # the diagonal of r is real
        dq = b.matmul(q, skew - along) + dx
        if r.shape.dims[-1] == inner:
            return dq, b.matmul(along - skew, r)
        return dq, b.matmul(adjoint(b, q), da - b.matmul(dq, r))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS)
        yield sample((5, 3), dtypes=("f32",))
        yield sample((2, 4), dtypes=("f32",))
        yield sample((3, 0), dtypes=("f32",))
        yield sample(("batch", 3, 2), dtypes=("f32",))
        yield sample((2, 3, 3), dtypes=COMPLEXES)
        yield sample((3, 4), dtypes=("c64",))


def reflected(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make matrices `[B, M, N]` upper triangular with `K = min(M, N)` reflections `I - conj(factor)·v·vᴴ`.

    The diagonal becomes real. The orthonormal factor is the product of `I - factor·v·vᴴ`, as in LAPACK.

    Returns:
        The matrices, vectors `[K, B, M]` and factors `[K, B, 1]`. Elements of the matrices below the diagonal are
        undefined.
    """
    rows, columns = order_of(a.shape, square=False)
    places = b.iota((rows,), dtype="i32")

    def step(matrix: Tensor, place: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        column = b.gather(matrix, place, axis=2)
        vector, factor = reflection(b, column, place, places)
        return applied(b, vector, b.conjugate(factor), matrix), (vector, factor)

    reduced, (vectors, factors) = b.scan(step, a, b.iota((min(rows, columns),), dtype="i32"))
    return reduced, vectors, factors


def reflection(b: Builder, column: Tensor, place: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vector `[B, M]` and the factor `[B, 1]` that make the elements of a column after a place zero."""
    batch = column.shape.dims[0]
    sizes = b.abs(b.where(places >= place, column, 0.0))
    largest = b.max(sizes, axes=1, keep_dims=True)
    # Neither depends on the scale. Without it squares would overflow or vanish, and denormal lengths have few digits.
    column = column / b.stop_gradient(b.where(largest == 0.0, 1.0, largest))
    head = b.reshape(b.gather(column, place, axis=1), (batch, 1))
    tail = b.where(places > place, column, 0.0)
    squares = b.sum(_square(b, tail), axes=1, keep_dims=True)
    real = b.real(head)
    is_done = squares == 0.0
    if head.dtype.is_complex:
        is_done = b.logical_and(is_done, b.imag(head) == 0.0)
    length = b.sqrt(b.where(is_done, 1.0, squares + _square(b, head)))
    beta = b.where(is_done, real, b.where(real < 0.0, length, -length))
    factor = b.where(is_done, 0.0, (beta - head) / b.where(is_done, 1.0, beta))
    return b.where(places == place, 1.0, tail / b.where(is_done, 1.0, head - beta)), factor


def _square(b: Builder, x: Tensor) -> Tensor:
    """Return the square of the magnitude."""
    return b.complex_norm_sq(x) if x.dtype.is_complex else b.square(x)


def applied(b: Builder, vector: Tensor, factor: Tensor, matrix: Tensor) -> Tensor:
    """Return `(I - factor·v·vᴴ)·matrix` for `v [B, M]` and `matrix [B, M, N]`."""
    column = b.reshape(vector, (*vector.shape.dims, 1))
    products = b.sum(b.conjugate(column) * matrix, axes=1, keep_dims=True)
    return matrix - b.reshape(factor, (*factor.shape.dims, 1)) * column * products


def reflected_identity(b: Builder, vectors: Tensor, factors: Tensor, columns: int) -> Tensor:
    """Return the first columns of the product of reflections, `[B, M, columns]`."""
    batch, rows = vectors.shape.dims[1:]
    assert type(rows) is int
    start = b.expand(b.eye(rows, columns, dtype=vectors.dtype), (batch, rows, columns))

    def step(q: Tensor, reflection: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        vector, factor = reflection
        return applied(b, vector, factor, q), ()

    return b.scan(step, start, (vectors, factors), reverse=True)[0]


def _completed(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of tall matrices with a square `q`, as ordinary ops, because their derivative has no closed form."""
    *batch, rows, columns = (*a.shape.dims[:-2], *order_of(a.shape, square=False))
    if columns == 0 or 0 in batch:
        return b.expand(b.eye(rows, dtype=a.dtype), (*batch, rows, rows)), a
    reduced, vectors, factors = reflected(b, statistics_input(b, b.reshape(a, (product(batch), rows, columns))))
    q = b.reshape(reflected_identity(b, vectors, factors, int(rows)), (*batch, rows, rows))
    return cast(b, q, a.dtype), cast(b, b.reshape(b.triu(reduced), a.shape.dims), a.dtype)
