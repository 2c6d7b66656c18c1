"""The locally optimal block method for eigenvalues: Rayleigh and Ritz's procedure on residuals and previous directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization.matrices import adjoint
from rlx.sparse.linalg.lanczos import Pairs
from rlx.sparse.linalg.operators import Apply
from rlx.sparse.linalg.orthogonal import orthonormal, random


@dataclass(frozen=True)
class LocallyOptimal:
    """A problem for the block method.

    Attributes:
        g: The builder.
        apply: The operator, of the columns of a matrix.
        precondition: The preconditioner, of the columns of a matrix; None without one.
        tol: The norm of a residual that is small enough; None for the root of the precision, relative to the norm of the
            operator or to the number of rows, whichever is smaller.
        maxiter: The largest number of iterations.
        largest: Whether the largest eigenvalues are wanted, else the smallest.
    """

    g: Builder
    apply: Apply
    precondition: Apply | None
    tol: float | None
    maxiter: int
    largest: bool

    def limit(self, scale: Tensor, rows: int) -> Tensor:
        """Return the norm of a residual that is small enough, for the norm of the operator."""
        if self.tol is not None:
            return 0.0 * scale + self.tol
        return float(np.finfo(scale.dtype.numpy).eps) ** 0.5 * self.g.minimum(scale, float(rows))

    def ritz(self, projected: Tensor, exist: Tensor | None, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the wanted values of a projected matrix, in order, their vectors, and the largest magnitude of all.

        Columns of the basis that do not exist get values at the other end of the spectrum.
        """
        g = self.g
        matrix = 0.5 * (projected + adjoint(g, projected))
        largest = g.max(g.sum(g.abs(matrix), axes=0))
        if exist is not None:
            end = 2.0 * g.where(largest > 0.0, largest, 1.0) * (-1.0 if self.largest else 1.0)
            matrix = matrix + g.eye(exist.shape.dims[0], dtype=matrix.dtype) * g.where(exist, 0.0, end)
        values, vectors = g.eigh(matrix)
        if self.largest:
            values, vectors = g.flip(values, 0), g.flip(vectors, 1)
        values, vectors = values[:count], vectors[:, :count]
        return values, vectors, g.max(g.abs(values))


def lobpcg_loop(p: LocallyOptimal, x: Tensor) -> Pairs:
    """Run the method (A. Knyazev, 2001) from the columns of `x [N, K]`.

    The residuals and the directions are orthogonalised against the vectors and among themselves, and those that depend on the
    others are left out (U. Hetmaniuk, R. Lehoucq, 2006).
    """
    g, (rows, count) = p.g, x.shape.dims
    assert isinstance(rows, int) and isinstance(count, int)
    x = _complete(g, x)
    ax = p.apply(x)
    largest = g.max(g.abs(ax))
    # Numbers near 1, whose squares are in the range of the dtype.
    unit = g.where(largest > 0.0, largest, 1.0)
    ax = ax / unit
    values, turn, scale = p.ritz(g.matmul(adjoint(g, x), ax), None, count)
    x, ax = g.matmul(x, turn), g.matmul(ax, turn)
    rounding = 10.0 * float(np.finfo(scale.dtype.numpy).eps)

    def missing(x: Tensor, ax: Tensor, values: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        left = ax - x * values
        norms = g.sqrt(g.sum(g.square(g.abs(left)), axes=0))
        return left, norms > g.maximum(p.limit(scale * unit, rows) / unit, rounding * scale)

    def holds(x: Tensor, ax: Tensor, values: Tensor, d: Tensor, scale: Tensor, k: Tensor, more: Tensor) -> Tensor:
        return more & (k < p.maxiter)

    def step(x: Tensor, ax: Tensor, values: Tensor, d: Tensor, scale: Tensor, k: Tensor, _: Tensor) -> tuple[Any, ...]:
        left, wanted = missing(x, ax, values, scale)
        w = left if p.precondition is None else p.precondition(left)
        q, exist = orthonormal(g, g.concat([g.where(wanted, w, 0.0), d], 1), x)
        aq = p.apply(q) / unit
        basis, images = g.concat([x, q], 1), g.concat([ax, aq], 1)
        all_exist = g.concat([g.constant(np.ones(count, bool)), exist], 0)
        values, turn, size = p.ritz(g.matmul(adjoint(g, basis), images), all_exist, count)
        scale = g.maximum(scale, size)
        d = g.matmul(q, turn[count:])
        x, ax = g.matmul(basis, turn), g.matmul(images, turn)
        # Newton and Schulz: the rounding errors of many iterations do not add up.
        nearly = 1.5 * g.eye(count, dtype=x.dtype) - 0.5 * g.matmul(adjoint(g, x), x)
        x, ax = g.matmul(x, nearly), g.matmul(ax, nearly)
        return x, ax, values, d, scale, k + 1, g.any(missing(x, ax, values, scale)[1])

    zero = g.constant(np.zeros((), np.int32))
    directions = rules.zeros(g, Shape((rows, count), x.dtype))
    start = (x, ax, values, directions, scale, zero, g.any(missing(x, ax, values, scale)[1]))
    x, _, values, _, scale, k, _ = g.while_(holds, step, *start)
    scale = scale * unit
    return Pairs(values * unit, g.transpose(x), scale, k, g.constant(np.array(True)), p.limit(scale, rows))


def _complete(g: Builder, x: Tensor) -> Tensor:
    """Return orthonormal columns that span those of `x`, and random ones instead of those that depend on others."""
    x, exist = orthonormal(g, x)
    other = g.where(exist, 0.0, random(g, x, g.constant(np.array(1, np.int32))))
    other, _ = orthonormal(g, other, x)
    # Columns that do not exist come first.
    return orthonormal(g, g.concat([x, other], 1))[0][:, x.shape.dims[1] :]
