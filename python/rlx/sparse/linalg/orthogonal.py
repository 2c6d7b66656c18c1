"""Orthogonal vectors: rows of a matrix, vectors orthogonal to them, and orthonormal blocks of columns."""

from __future__ import annotations

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.factorization.matrices import adjoint
from rlx.sparse.linalg.operators import conjugate, norm2


def row(g: Builder, x: Tensor, j: Tensor) -> Tensor:
    """Return a row of a matrix, or an element of a vector."""
    return g.reshape(g.dynamic_slice_in_dim(x, j, 1, 0), x.shape.dims[1:])


def with_row(g: Builder, x: Tensor, value: Tensor, j: Tensor) -> Tensor:
    """Return a matrix with another row."""
    return g.dynamic_update_slice_in_dim(x, g.expand_dims(value, 0), j, 0)


def orthogonalised(g: Builder, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the coefficients of `w` in the rows of `v`, the unit vector of the rest, and the length of the rest.

    A rest within rounding is zero: then the rows span an invariant subspace.
    """
    before, bar = norm2(w), conjugate(v)
    h = g.matmul(bar, w)
    w = w - g.matmul(h, v)
    again = g.matmul(bar, w)
    w = w - g.matmul(again, v)
    length = norm2(w)
    counts = length > 10.0 * float(np.finfo(before.dtype.numpy).eps) * before
    return h + again, g.where(counts, w / g.where(counts, length, 1.0), 0.0), g.where(counts, length, 0.0)


def random(g: Builder, like: Tensor, seed: Tensor) -> Tensor:
    """Return random numbers shaped like a tensor, the same on every device."""
    x = g.rng_uniform(like.shape.dims, seed, -1.0, 1.0, dtype="f32")
    return x if x.dtype is like.dtype else g.cast(x, like.dtype)


def orthonormal(g: Builder, x: Tensor, others: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return orthonormal columns `[N, K]` that span those of `x`, and which of them exist, `[K]`; the others are zero, and
    come first.

    The Gram matrix is diagonalised (A. Stathopoulos, K. Wu, 2002: SVQB), twice against its rounding errors. With `others`,
    which are orthonormal or zero, the columns span those of `x` up to them.
    """
    count = x.shape.dims[1]
    assert isinstance(count, int)
    kind = x.dtype.part
    eps = float(np.finfo(kind.numpy).eps)

    def step(carry: tuple[Tensor, Tensor], least: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        y = carry[0]
        if others is not None:
            y = y - g.matmul(others, g.matmul(adjoint(g, others), y))
        largest = g.max(g.abs(y), axes=0)  # squares of quotients by it are in the range of the dtype
        y = y / g.where(largest > 0.0, largest, 1.0)
        size = g.sqrt(g.sum(g.square(g.abs(y)), axes=0))
        y = y / g.where(size > 0.0, size, 1.0)
        values, vectors = g.eigh(g.matmul(adjoint(g, y), y))
        exist = values > least
        factors = g.where(exist, 1.0 / g.sqrt(g.where(exist, values, 1.0)), 0.0)
        return (g.matmul(y, vectors) * factors, exist), ()

    none = g.constant(np.zeros(count, bool))
    (x, exist), _ = g.scan(step, (x, none), g.constant(np.array([4.0 * count * eps, 0.25], kind.numpy)))
    return x, exist
