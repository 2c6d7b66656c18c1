"""Products of Householder reflections in LAPACK's compact form: QR with and without pivoting, Hessenberg form.

Column k of the compact form has, below the diagonal, the elements after the 1 in the vector v of reflection
`I - tau[k]·v·vᴴ`. On and above the diagonal it has the triangular factor.
"""

from __future__ import annotations

from rlx.functions.factorization.operands import adjoint, as_inexact, conjugated
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.matrices import order_of
from rlx.ops.factorization.qr import applied, reflected, reflected_identity, reflection
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
    return _compact(b, a, reduced, vectors, factors, 0)


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


def pivoted_qr(b: Builder, a: TensorLike, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's `geqp3`: `a[:, order] = q·r` for `a […, M, N]`. The diagonal of r has decreasing magnitudes.

    Returns:
        `q […, M, K]` and `r […, K, N]` with `K = min(M, N)`, with `full_matrices` `[…, M, M]` and `[…, M, N]`; and the
        order of the columns, i32 `[…, N]`.
    """
    a = as_inexact(b, a)
    *batch, rows, columns = a.shape.dims
    rows, columns = order_of(a.shape, square=False)
    count, inner, steps = product(batch), rows if full_matrices else min(rows, columns), min(rows, columns)
    places, row_places = b.iota((columns,), dtype="i32"), b.iota((rows,), dtype="i32")
    if 0 in (steps, *batch):
        q = b.broadcast_to(b.eye(rows, inner, dtype=a.dtype), (*batch, rows, inner))
        return q, b.zeros((*batch, inner, columns), a.dtype), b.broadcast_to(places, (*batch, columns))

    def step(carry: tuple[Tensor, Tensor], place: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        matrix, order = carry
        rest = b.abs(b.where(b.reshape(row_places, (rows, 1)) >= place, matrix, 0.0))
        largest = b.max(rest, axes=(1, 2), keep_dims=True)
        scaled = rest / b.where(largest > 0.0, largest, 1.0)
        sizes = b.where(places >= place, b.sum(scaled * scaled, axes=1), -1.0)
        chosen = b.reshape(b.cast(b.argmax(b.stop_gradient(sizes), 1), "i32"), (count, 1))
        exchange = b.where(places == place, chosen, b.where(places == chosen, place, places))
        matrix = b.swapaxes(b.gather_batched(b.swapaxes(matrix, 1, 2), exchange, axis=1), 1, 2)
        order = b.gather_batched(order, exchange, axis=1)
        vector, factor = reflection(b, b.gather(matrix, place, axis=2), place, row_places)
        return (applied(b, vector, b.conjugate(factor), matrix), order), (vector, factor)

    start = statistics_input(b, b.reshape(a, (count, rows, columns))), b.broadcast_to(places, (count, columns))
    (r, order), (vectors, factors) = b.scan(step, start, b.iota((steps,), dtype="i32"))
    q, r = reflected_identity(b, vectors, factors, inner), b.triu(b.narrow(r, 1, 0, inner))
    found = [cast(b, b.reshape(x, (*batch, *x.shape.dims[1:])), a.dtype) for x in (q, r)]
    return found[0], found[1], b.reshape(order, (*batch, columns))


def packed_hessenberg(b: Builder, a: TensorLike) -> tuple[Tensor, Tensor]:
    """LAPACK's `gehrd`: Hessenberg form h with `a = q·h·qᴴ`, and q in compact form below it, for `a […, N, N]`.

    Returns:
        `[…, N, N]`, where column k has, below row k + 1, the elements after the 1 of the vector of reflection k; and
        `tau […, N - 1]`. The subdiagonal of h is real.
    """
    a = as_inexact(b, a)
    *batch, _, size = a.shape.dims
    size, _ = order_of(a.shape, square=True)
    if size < 2 or 0 in batch:
        return a, b.zeros((*batch, max(size - 1, 0)), a.dtype)
    count, places = product(batch), b.iota((size,), dtype="i32")

    def step(matrix: Tensor, place: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        vector, factor = reflection(b, b.gather(matrix, place, axis=2), place + 1, places)
        matrix = applied(b, vector, conjugated(b, factor), matrix)
        matrix = adjoint(b, applied(b, vector, conjugated(b, factor), adjoint(b, matrix)))
        return matrix, (vector, factor)

    start = statistics_input(b, b.reshape(a, (count, size, size)))
    reduced, (vectors, factors) = b.scan(step, start, b.iota((size - 1,), dtype="i32"))
    return _compact(b, a, reduced, vectors, factors, -1)


def _compact(
    b: Builder, a: Tensor, reduced: Tensor, vectors: Tensor, factors: Tensor, diagonal: int
) -> tuple[Tensor, Tensor]:
    """Return the compact form, shaped like `a`, and `tau […, K]`.

    Args:
        b: The builder.
        a: The matrices that were reduced, `[…, M, N]`.
        reduced: The result of the reflections, `[B, M, N]`.
        vectors: Those of the reflections, `[K, B, M]`.
        factors: Those of the reflections, `[K, B, 1]`.
        diagonal: The lowest diagonal of `reduced` that is not zero. The vectors are stored below it.
    """
    steps, count, rows = vectors.shape.dims
    rest = b.zeros((count, rows, reduced.shape.dims[-1] - steps), vectors.dtype)
    below = b.concat([b.tril(b.transpose(vectors, (1, 2, 0)), diagonal - 1), rest], axis=2)
    packed, taus = b.triu(reduced, diagonal) + below, b.transpose(b.squeeze(factors, 2), (1, 0))
    shapes = (a.shape.dims, (*a.shape.dims[:-2], steps))
    packed, taus = (cast(b, b.reshape(x, dims), a.dtype) for x, dims in zip((packed, taus), shapes, strict=True))
    return packed, taus
