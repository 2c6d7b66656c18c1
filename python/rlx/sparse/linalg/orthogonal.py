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


def orthonormal(g: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return orthonormal columns `[N, K]` that span those of `x`, and which of them exist, `[K]`; the others are zero.

    The Gram matrix is diagonalised (A. Stathopoulos, K. Wu, 2002: SVQB), twice against its rounding errors.
    """
    eps = float(np.finfo(x.dtype.part.numpy).eps)
    count, exist = x.shape.dims[1], None
    assert isinstance(count, int)
    for least in (4.0 * count * eps, 0.25):
        square = g.sum(g.square(g.abs(x)), axes=0)
        size = g.sqrt(square)
        x = x / g.where(size > 0.0, size, 1.0)
        values, vectors = g.eigh(g.matmul(adjoint(g, x), x))
        exist = values > least
        factors = g.where(exist, 1.0 / g.sqrt(g.where(exist, values, 1.0)), 0.0)
        x = g.matmul(x, vectors) * factors
    assert exist is not None
    return x, exist
