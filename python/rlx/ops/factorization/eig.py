"""Eigenvalues and eigenvectors of general matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors
from rlx.ir.op.card import Card, OpSample, sample
from rlx.ir.op.results import EigResult
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization import jacobi
from rlx.ops.factorization.degenerate import are_close, divided, divided_cotangent, gaps_of
from rlx.ops.factorization.matrices import Factorization, adjoint, order_of, precision
from rlx.ops.factorization.phases import phases, turned_cotangent, turned_tangents
from rlx.ops.factorization.schur import balanced, schur, vectors_of_triangular
from rlx.ops.lift import cast

_NAN = float("nan")


class Eig(Factorization, op="eig"):
    """Balancing, Hessenberg form, the shifted QR algorithm, and substitution, as in LAPACK, in complex numbers."""

    named = EigResult

    work = 250

    # The order of eigenvalues is that in which the algorithm finds them, so that the evaluator has the same algorithm.
    evaluate = Card.evaluate

    def infer(self, a: Shape) -> tuple[Shape, Shape]:
        size, _ = order_of(a, square=True)
        return Shape((*a.dims[:-2], size), a.dtype.complex), a.with_dtype(a.dtype.complex)

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
        batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
        scale = jacobi.scale_of(b, a)
        similar, diagonal = balanced(b, cast(b, a / scale, a.dtype.complex))
        t, z, is_done = schur(b, similar)
        vectors = b.reshape(diagonal, (batch, size, 1)) * b.matmul(z, vectors_of_triangular(b, t))
        vectors = vectors / b.max(b.abs(vectors), axes=1, keep_dims=True)
        vectors = vectors / b.sqrt(b.sum(b.square(b.abs(vectors)), axes=1, keep_dims=True))
        vectors = vectors * b.conjugate(phases(b, vectors, b.where))
        values = b.diagonal(t, 0, 1, 2) * b.reshape(scale, (batch, 1))
        is_done = b.reshape(is_done, (batch, 1))
        return b.where(is_done, values, _NAN), b.where(b.expand_dims(is_done, -1), vectors, _NAN)

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor]:
        """Return `dw = diag(v⁻¹·da·v)` and `dv = v·(F∘v⁻¹·da·v)`, where `F[i, j] = 1/(w[j] - w[i])` off the diagonal.

        The parts of `dv` along `v` keep their lengths and phases. Where eigenvalues are equal up to rounding, `dv` is NaN,
        unless the tangent does not mix their vectors. Where vectors are parallel up to rounding, both are NaN.
        """
        (values, vectors), (da,) = results, tangents
        size = order_of(vectors.shape, square=True)[0]
        eye = b.eye(size, dtype=values.dtype.part)
        inner = b.solve(vectors, b.matmul(cast(b, da, vectors.dtype), vectors))
        gaps = gaps_of(b, values)
        d_vectors = b.matmul(vectors, divided(b, inner * (1.0 - eye), gaps, are_close(b, gaps, values)))
        d_vectors = d_vectors - vectors * _parts_along(b, vectors, d_vectors)
        (d_vectors,) = turned_tangents(b, vectors, (vectors, d_vectors))
        is_defective = b.any(_are_parallel(b, vectors), axis=-2)
        d_values = b.where(is_defective, _NAN, b.sum(inner * eye, axes=-1))
        return d_values, b.where(b.expand_dims(is_defective, -2), _NAN, d_vectors)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Sequence[Tensor | None]
    ) -> rules.Cotangents:
        """Return the adjoint of the jvp. Functions of the spaces of equal eigenvalues have right derivatives."""
        (values, vectors), (d_values, d_vectors), a = results, cotangents, operands[0]
        eye = b.eye(values.shape.dims[-1], dtype=values.dtype.part)
        inner = None if d_values is None else eye * b.expand_dims(d_values, -2)
        d_vectors = turned_cotangent(b, vectors, d_vectors)
        if d_vectors is not None:
            d_vectors = d_vectors - vectors * _parts_along(b, vectors, d_vectors)
            gaps, off = gaps_of(b, values), b.matmul(adjoint(b, vectors), d_vectors) * (1.0 - eye)
            turn = divided_cotangent(b, off, b.conjugate(gaps), are_close(b, gaps, values), [d_vectors], d_values)
            inner = turn if inner is None else inner + turn
        assert inner is not None
        whole = b.solve(adjoint(b, vectors), b.matmul(cast(b, inner, vectors.dtype), adjoint(b, vectors)))
        is_defective = b.any(_are_parallel(b, vectors), axis=(-2, -1), keepdims=True)
        whole = b.where(is_defective, _NAN, whole)
        return (whole if a.dtype.is_complex else cast(b, b.real(whole), a.dtype),)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS, tolerance=32)
        yield sample((2, 3, 3), dtypes=COMPLEXES, tolerance=32)
        yield sample((1, 1), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(("batch", 3, 3), dtypes=("f32",), tolerance=32)


def _parts_along(b: Builder, vectors: Tensor, x: Tensor) -> Tensor:
    """Return the real parts of the inner products of each vector, of length 1, with the same column of `x`, `[…, 1, N]`."""
    return b.sum(b.real(b.conjugate(vectors) * x), axes=-2, keep_dims=True)


def _are_parallel(b: Builder, vectors: Tensor) -> Tensor:
    """Return which pairs of vectors of length 1 are parallel up to rounding, `[…, N, N]`. The diagonal does not count."""
    cosines = b.square(b.abs(b.matmul(adjoint(b, vectors), vectors)))
    least = 1.0 - 4.0 * precision(vectors) ** (2 / 3)
    return cosines * (1.0 - b.eye(vectors.shape.dims[-1], dtype=cosines.dtype)) >= least
