"""Singular values and singular vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Tensors
from rlx.ir.op.card import OpSample, sample
from rlx.ir.op.results import SVDResult
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization import jacobi
from rlx.ops.factorization.degenerate import (
    antihermitian,
    are_close,
    are_zero,
    divided,
    divided_cotangent,
    gaps_of,
    quotient,
    sums_of,
)
from rlx.ops.factorization.matrices import Factorization, adjoint, as_inexact, columns_of, identities, order_of
from rlx.ops.factorization.phases import phases, turned_cotangent, turned_tangents
from rlx.ops.factorization.qr import reflected, reflected_identity
from rlx.ops.lift import cast


class Svd(Factorization, op="svd"):
    """Hestenes' method: rotations until the columns are orthogonal. Tall matrices are first reduced to a square factor."""

    named = SVDResult

    work = 60

    def infer(self, a: Shape) -> tuple[Shape, Shape, Shape]:
        rows, columns = order_of(a, square=False)
        batch, inner = a.dims[:-2], min(rows, columns)
        return (
            a.with_dims((*batch, rows, inner)),
            Shape((*batch, inner), a.dtype.part),
            a.with_dims((*batch, inner, columns)),
        )

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, s, vt = np.linalg.svd(a, full_matrices=False)
        if not u.size:
            return u, s, vt
        phase = phases(np, u, np.where)
        return u * np.conjugate(phase), s, vt * np.swapaxes(phase, -1, -2)

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = order_of(a.shape, square=False)
        u, s, v = _of_tall(b, a if rows >= columns else adjoint(b, a))
        u, v = (u, v) if rows >= columns else (v, u)
        turn = b.conjugate(phases(b, u, b.where))
        return u * turn, s, adjoint(b, v * turn)

    def build(self, b: Builder, a: TensorLike, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """With `full_matrices`, `u` is `[…, M, M]` and `vt` is `[…, N, N]`. The additional vectors come last."""
        a = as_inexact(b, a)
        rows, columns = order_of(a.shape, square=False)
        u, s, vt = b.emit("svd", (a,))
        if full_matrices and rows > columns:
            u = _completed(b, u)
        elif full_matrices and rows < columns:
            vt = adjoint(b, _completed(b, adjoint(b, vt)))
        return u, s, vt

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tangents: Townsend, "Differentiating the singular value decomposition", 2016.

        Where singular values are equal or zero up to rounding, those of vectors are NaN, unless the tangent does not mix them.
        """
        (u, s, vt), (da,) = results, tangents
        v, uh = adjoint(b, vt), adjoint(b, u)
        eye = b.eye(s.shape.dims[-1], dtype=s.dtype)
        inner = b.matmul(uh, b.matmul(da, v))
        across = adjoint(b, inner)
        gaps, sums = gaps_of(b, s), sums_of(b, s)
        # The sum and the difference of the rotations of u and v: the second is also right for equal singular values.
        both = divided(b, (inner + across) * (1.0 - eye), gaps, are_close(b, gaps, s))
        apart = divided(b, inner - across, sums, are_close(b, sums, s))
        du = b.matmul(u, 0.5 * (both + apart))
        dv = b.matmul(v, 0.5 * (both - apart))
        if u.shape.dims[-2] != s.shape.dims[-1]:
            du = du + _outside(b, u, b.matmul(da, v), s)
        if v.shape.dims[-2] != s.shape.dims[-1]:
            dv = dv + _outside(b, v, b.matmul(adjoint(b, da), u), s)
        du, dv = turned_tangents(b, u, (u, du), (v, dv))
        return du, b.sum(b.real(inner) * eye, axes=-1), adjoint(b, dv)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Sequence[Tensor | None]
    ) -> rules.Cotangents:
        """Return the adjoint of the jvp. Functions of the spaces of equal singular values, and u·vt, have right derivatives."""
        (u, s, vt), (du, ds, dvt) = results, cotangents
        v, dv = adjoint(b, vt), None if dvt is None else adjoint(b, dvt)
        du = turned_cotangent(b, u, du, (v, dv))
        inner = None if ds is None else b.eye(s.shape.dims[-1], dtype=s.dtype) * b.expand_dims(ds, -2)
        given = [d for d in (du, dv) if d is not None]
        if given:
            of_u, of_v = (None if d is None else antihermitian(b, x, d) for x, d in ((u, du), (v, dv)))
            both, apart = _sum_and_difference(of_u, of_v)
            gaps, sums, is_complex = gaps_of(b, s), sums_of(b, s), u.dtype.is_complex
            turn = divided_cotangent(b, both, gaps, are_close(b, gaps, s), given, ds)
            turn = turn + divided_cotangent(b, apart, sums, are_close(b, sums, s), given, ds, has_diagonal=is_complex)
            inner = 0.5 * turn if inner is None else inner + 0.5 * turn
        assert inner is not None
        result = b.matmul(b.matmul(u, cast(b, inner, u.dtype)), vt)
        if du is not None and u.shape.dims[-2] != s.shape.dims[-1]:
            result = result + b.matmul(_outside(b, u, du, s), vt)
        if dv is not None and v.shape.dims[-2] != s.shape.dims[-1]:
            result = result + b.matmul(u, adjoint(b, _outside(b, v, dv, s)))
        return (result,)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS, tolerance=8)
        yield sample((5, 3), dtypes=("f32",), tolerance=8)
        yield sample((2, 4), dtypes=("f32",), tolerance=8)
        yield sample((2, 0), dtypes=("f32",))
        yield sample(("batch", 3, 2), dtypes=("f32",), tolerance=8)
        yield sample((2, 3, 3), dtypes=COMPLEXES, tolerance=8)
        yield sample((2, 3), dtypes=("c64",), tolerance=8)


def _sum_and_difference(x: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return `x + y` and `x - y`, where None is zero; not both are."""
    if x is None:
        assert y is not None
        return y, -y
    return (x, x) if y is None else (x + y, x - y)


def _outside(b: Builder, vectors: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """Return the part of `x […, M, N]` outside of the space of the vectors, divided by the singular values.

    For singular values that are zero up to rounding, it is 0 where the part is zero up to rounding, else NaN.
    """
    part = x - b.matmul(vectors, b.matmul(adjoint(b, vectors), x))
    row = b.expand_dims(s, -2)
    lengths = b.sqrt(b.sum(b.square(b.abs(x)), axes=-2, keep_dims=True))
    return quotient(b, part, row, are_close(b, row, s), are_zero(b, part, lengths))


def _of_tall(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `u [B, M, N]`, `s [B, N]` and `v [B, N, N]` of matrices `[B, M, N]` with at least as many rows as columns."""
    rows, columns = order_of(a.shape, square=False)
    if rows == columns:
        return _of_square(b, a)
    reduced, vectors, factors = reflected(b, a)
    u, s, v = _of_square(b, b.triu(b.narrow(reduced, 1, 0, columns)))
    return b.matmul(reflected_identity(b, vectors, factors, columns), u), s, v


def _of_square(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Orthogonalise the columns twice: of `a`, and of `a·v` for orthonormal `v` again, which removes rounding errors."""
    batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    scale = jacobi.scale_of(b, a)
    a = a / scale

    def improve(carry: tuple[Tensor, Tensor], _: None) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        v = jacobi.orthonormalised(b, carry[0])
        matrix, turned = _orthogonal_columns(b, b.matmul(a, v))
        return (b.matmul(v, turned), matrix), ()

    (v, matrix), _ = b.scan(improve, (identities(b, a), a), None, length=2)
    lengths = b.sqrt(b.sum(b.square(b.abs(matrix)), axes=1))
    order = b.argsort(-lengths, axis=1)
    # The columns are orthogonal, so the reflections return their directions; for zero columns they return other
    # orthogonal directions.
    reduced, vectors, factors = reflected(b, columns_of(b, matrix, order))
    diagonal = b.sum(b.real(reduced) * b.eye(size, dtype=a.dtype.part), axes=1, keep_dims=True)
    u = reflected_identity(b, vectors, factors, size) * b.where(diagonal < 0.0, -1.0, 1.0)
    s = b.gather_batched(lengths, order, axis=1) * b.reshape(scale, (batch, 1))
    return u, s, columns_of(b, v, order)


def _orthogonal_columns(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices `[B, N, N]` with orthogonal columns, and the rotations that made them from `a`."""
    size, _ = order_of(a.shape, square=True)
    tolerance = jacobi.tolerance(a, size)

    def step(carry: tuple[Tensor, ...], partners: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        matrix, turned = carry
        squares = b.sum(b.square(b.abs(matrix)), axes=1)
        products = b.sum(b.conjugate(matrix) * b.gather(matrix, partners, axis=2), axes=1)
        both = b.sqrt(squares) * b.sqrt(b.gather(squares, partners, axis=1))
        # Columns that are zero up to rounding never become orthogonal.
        negligible = tolerance * tolerance * b.max(squares, axes=1, keep_dims=True)
        least = b.where(both > negligible, tolerance * both, float("inf"))
        cosine, sine, busy = jacobi.rotation(b, squares, products, partners, least)
        return tuple(jacobi.turned(b, x, cosine, sine, partners, 2) for x in (matrix, turned)), busy

    matrix, turned = jacobi.swept(b, (a, identities(b, a)), step, size)
    return matrix, turned


def _completed(b: Builder, u: Tensor) -> Tensor:
    """Complete orthonormal columns `[…, M, K]` to `[…, M, M]`; the additional columns come last."""
    rows, count = order_of(u.shape, square=False)
    q, _ = b.qr(u, full_matrices=True)
    return b.concat([u, b.narrow(q, -1, count, rows - count)], axis=u.rank - 1)
