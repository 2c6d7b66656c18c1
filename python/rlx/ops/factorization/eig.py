"""Eigenvalues and eigenvectors of general matrices."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors
from rlx.ir.op.card import Card, OpSample, sample
from rlx.ir.op.results import EigResult
from rlx.ir.shape import Shape
from rlx.ops.factorization import jacobi
from rlx.ops.factorization.degenerate import are_close, divided, gaps_of
from rlx.ops.factorization.matrices import Factorization, adjoint, order_of, precision
from rlx.ops.factorization.phases import phases, turned_tangents
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
        along = b.sum(b.real(b.conjugate(vectors) * d_vectors), axes=-2, keep_dims=True)
        (d_vectors,) = turned_tangents(b, vectors, (vectors, d_vectors - vectors * along))
        cosines = b.square(b.abs(b.matmul(adjoint(b, vectors), vectors)))
        is_defective = b.any(cosines * (1.0 - eye) >= 1.0 - 4.0 * precision(values) ** (2 / 3), axis=-2)
        d_values = b.where(is_defective, _NAN, b.sum(inner * eye, axes=-1))
        return d_values, b.where(b.expand_dims(is_defective, -2), _NAN, d_vectors)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS, tolerance=32)
        yield sample((2, 3, 3), dtypes=COMPLEXES, tolerance=32)
        yield sample((1, 1), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(("batch", 3, 3), dtypes=("f32",), tolerance=32)
