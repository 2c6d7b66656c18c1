"""Products of Householder reflections in LAPACK's compact form: the factors of `geqrf`, and products with them.

Column k of the compact form has, below the diagonal, the elements after the 1 in the vector v of reflection
`I - tau[k]·v·vᴴ`. On and above the diagonal it has the triangular factor.
"""

from __future__ import annotations

from rlx.functions.factorization.operands import adjoint, as_inexact
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.matrices import order_of
from rlx.ops.factorization.qr import applied, reflected
from rlx.ops.lift import cast, same_dtype
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError


def packed_reflections(b: Builder, a: TensorLike) -> tuple[Tensor, Tensor]:
    """LAPACK's `geqrf`: the compact form `[…, M, N]` of the factors of `a […, M, N]`, and `tau […, min(M, N)]`."""
    a = as_inexact(b, a)
    *batch, rows, columns = a.shape.dims
    steps = min(order_of(a.shape, square=False))
    if 0 in (rows, columns, *batch):
        return a, b.zeros((*batch, steps), a.dtype)
    matrices = statistics_input(b, b.reshape(a, (product(batch), rows, columns)))
    reduced, vectors, factors = reflected(b, matrices)
    below = b.tril(b.transpose(vectors, (1, 2, 0)), -1)
    rest = b.zeros((*below.shape.dims[:-1], columns - steps), below.dtype)
    packed = b.triu(reduced) + b.concat([below, rest], axis=2)
    taus = b.transpose(b.squeeze(factors, 2), (1, 0))
    return cast(b, b.reshape(packed, a.shape.dims), a.dtype), cast(b, b.reshape(taus, (*batch, steps)), a.dtype)


def reflections_product(
    b: Builder, a: TensorLike, tau: TensorLike, c: TensorLike, *, left: bool = True, is_adjoint: bool = False
) -> Tensor:
    """LAPACK's `ormqr`: the product of the square orthonormal factor q of a compact form with matrices.

    Args:
        b: The builder.
        a: The compact form `[…, M, K]`.
        tau: The factors `[…, K]`.
        c: `[…, M, N]`; without `left`, `[…, N, M]`.
        left: Whether to return `op(q)·c`, else `c·op(q)`.
        is_adjoint: Whether `op(q)` is `qᴴ`, else q.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    if not left:  # c·op(q) is the adjoint of op(q)ᴴ·cᴴ
        turned = adjoint(b, as_inexact(b, c))
        return adjoint(b, reflections_product(b, a, tau, turned, is_adjoint=not is_adjoint))
    a, taus, c = (as_inexact(b, x) for x in (a, tau, c))
    same_dtype(a.shape, taus.shape)
    same_dtype(a.shape, c.shape)
    rows, columns = order_of(a.shape, square=False)
    steps = taus.shape.dims[-1] if taus.rank else None
    batch = a.shape.dims[:-2]
    if type(steps) is not int or steps > min(rows, columns) or c.rank != a.rank or c.shape.dims[-2] != rows:
        raise ShapeError(f"expected a […, M, K], tau […, K] and c […, M, N], got {a.shape}, {taus.shape} and {c.shape}")
    if 0 in (steps, *c.shape.dims):
        return c
    count, width = product(batch), c.shape.dims[-1]
    vectors = b.narrow(b.tril(a, -1) + b.eye(rows, columns, dtype=a.dtype), -1, 0, steps)
    vectors = b.transpose(b.reshape(vectors, (count, rows, steps)), (2, 0, 1))
    factors = b.reshape(b.transpose(b.reshape(taus, (count, steps)), (1, 0)), (steps, count, 1))

    def step(matrix: Tensor, reflection: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        vector, factor = reflection
        return applied(b, vector, b.conjugate(factor) if is_adjoint else factor, matrix), ()

    start = b.reshape(c, (count, rows, width))
    found, _ = b.scan(step, start, (vectors, factors), reverse=not is_adjoint)
    return b.reshape(found, c.shape.dims)
