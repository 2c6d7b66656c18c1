"""Generalised minimal residuals: a cycle of Arnoldi's method with rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops import rules
from rlx.sparse.linalg.krylov import Cycle, Problem
from rlx.sparse.linalg.operators import conjugate, is_finite
from rlx.sparse.linalg.orthogonal import orthogonalised, row


def cycle_of(restart: int) -> Cycle:
    """Return the cycle of GMRES(restart) (Y. Saad, M. Schultz, 1986), preconditioned from the right.

    Arnoldi's vectors are orthogonalised twice. The rotations that make the Hessenberg matrix triangular are kept as their
    product, so that a new column takes one product with it.
    """

    def cycle(p: Problem, x: Tensor, r: Tensor, norm: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        g, size, dtype = p.g, r.size, r.dtype
        flat = g.reshape(r, (1, size)) / norm
        vectors = g.concat([flat, g.broadcast_to(rules.zeros(g, flat.shape), (restart, size))], 0)
        rotations, triangle = g.eye(restart + 1, dtype=dtype), g.eye(restart, dtype=dtype)
        rows = g.iota((restart + 1,), dtype="i32")

        def directed(v: Tensor) -> Tensor:
            direction = g.reshape(v, r.shape.dims)
            return direction if p.precondition is None else p.precondition(direction)

        def holds(v: Tensor, q: Tensor, t: Tensor, j: Tensor, left: Tensor, k: Tensor, ok: Tensor) -> Tensor:
            return ok & (left > p.limit) & (j < restart) & (k < p.maxiter)

        def step(v: Tensor, q: Tensor, t: Tensor, j: Tensor, left: Tensor, k: Tensor, ok: Tensor) -> tuple[Any, ...]:
            h, w, length = orthogonalised(g, v, g.reshape(p.apply(directed(row(g, v, j))), (size,)))
            h = g.where(rows == j + 1, length, h)
            q, column, ok = _rotated(g, q, g.matmul(q, h), j)
            inside = ok & (rows[:restart] == j)
            t = g.where(g.expand_dims(inside, 0), g.expand_dims(column[:restart], 1), t)
            v = g.dynamic_update_slice_in_dim(v, g.expand_dims(w, 0), j + 1, 0)
            left = g.where(ok, norm * g.abs(row(g, g.expand_dims(q[:, 0], 1), j + 1)[0]), left)
            return v, q, t, g.where(ok, j + 1, j), left, k + 1, ok

        zero, true = g.constant(np.zeros((), np.int32)), g.constant(np.array(True))
        v, q, t, j, left, k, ok = g.while_(holds, step, vectors, rotations, triangle, zero, norm, k, true)
        side = g.where(rows[:restart] < j, q[:restart, 0] * norm, 0.0)
        combined = g.matmul(_substituted(g, t, side), v[:restart])
        return x + directed(combined), k, left, ok | (j > 0)

    return cycle


def _rotated(g: Builder, q: Tensor, h: Tensor, j: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rotations with the one that makes a new column triangular, the column, and whether it is not singular."""
    rows = g.iota(h.shape.dims, dtype="i32")
    a, c = row(g, h, j), row(g, h, j + 1)
    length = g.sqrt(g.abs(a) * g.abs(a) + g.abs(c) * g.abs(c))
    ok = is_finite(length) & (length > 0.0)
    divisor = g.where(ok, length, 1.0)
    cosine, sine = a / divisor, c / divisor
    upper, lower = row(g, q, j), row(g, q, j + 1)
    above, below = conjugate(cosine) * upper + conjugate(sine) * lower, cosine * lower - sine * upper
    at = g.expand_dims(rows, 1)
    turned = g.where(at == j, above, g.where(at == j + 1, below, q))
    column = g.where(rows < j, h, g.where(rows == j, length, 0.0))
    return g.where(ok, turned, q), column, ok


def _substituted(g: Builder, t: Tensor, side: Tensor) -> Tensor:
    """Return the solution of a triangular system by back substitution."""
    count, rows = side.shape.dims[0], g.iota(side.shape.dims, dtype="i32")
    assert type(count) is int

    def step(y: Tensor, i: Tensor) -> tuple[Tensor, None]:
        line = row(g, t, i)
        value = (row(g, side, i) - g.sum(line * y)) / row(g, line, i)
        return g.where(rows == i, value, y), None

    y, _ = g.scan(step, rules.zeros(g, side.shape), rows, reverse=True)
    return y
