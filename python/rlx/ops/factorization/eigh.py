"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors
from rlx.ir.op.card import OpSample, sample
from rlx.ir.op.results import EighResult
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization import jacobi
from rlx.ops.factorization.degenerate import antihermitian, are_close, divided, divided_cotangent, gaps_of
from rlx.ops.factorization.matrices import Factorization, adjoint, columns_of, hermitian, identities, order_of
from rlx.ops.factorization.phases import phases, turned_cotangent, turned_tangents
from rlx.ops.lift import cast


class Eigh(Factorization, op="eigh"):
    """Jacobi's method: rotations from both sides."""

    named = EighResult

    work = 60

    def infer(self, a: Shape) -> tuple[Shape, Shape]:
        size, _ = order_of(a, square=True)
        return Shape((*a.dims[:-2], size), a.dtype.part), a

    def read(self, b: Builder | ModuleType, a: Tensor | np.ndarray) -> Any:
        return hermitian(b, a)

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(a)
        return values, vectors * np.conjugate(phases(np, vectors, np.where)) if vectors.size else vectors

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
        """Diagonalise twice: from the identity, and from these vectors, orthonormal again, which removes rounding errors."""
        batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
        scale = jacobi.scale_of(b, a)
        a = a / scale
        norm = b.sqrt(b.sum(b.square(b.abs(a)), axes=(1, 2)))
        least = b.reshape(norm * (jacobi.tolerance(a, size) / size), (batch, 1))

        def improve(carry: tuple[Tensor, Tensor], _: None) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
            vectors = jacobi.orthonormalised(b, carry[0])
            inner = b.matmul(adjoint(b, vectors), b.matmul(a, vectors))
            values, turned = _diagonalised(b, inner, least)
            return (b.matmul(vectors, turned), values), ()

        start = (identities(b, a), rules.zeros(b, Shape((batch, size), a.dtype.part)))
        (vectors, values), _ = b.scan(improve, start, None, length=2)
        order = b.argsort(values, axis=1)
        vectors = columns_of(b, vectors, order)
        values = b.gather_batched(values, order, axis=1) * b.reshape(scale, (batch, 1))
        return values, vectors * b.conjugate(phases(b, vectors, b.where))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor]:
        """Return `dw = diag(vᴴ·da·v)` and `dv = v·(F∘vᴴ·da·v)`, where `F[i, j] = 1/(w[j] - w[i])` off the diagonal.

        Where eigenvalues are equal up to rounding, `dv` is NaN, unless the tangent does not mix their vectors.
        """
        (values, vectors), (da,) = results, tangents
        eye, gaps = b.eye(values.shape.dims[-1], dtype=values.dtype), gaps_of(b, values)
        inner = b.matmul(adjoint(b, vectors), b.matmul(hermitian(b, da), vectors))
        turn = divided(b, inner * (1.0 - eye), gaps, are_close(b, gaps, values))
        (d_vectors,) = turned_tangents(b, vectors, (vectors, b.matmul(vectors, turn)))
        return b.sum(b.real(inner) * eye, axes=-1), d_vectors

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Sequence[Tensor | None]
    ) -> rules.Cotangents:
        """Return the adjoint of the jvp. Functions of the spaces of equal eigenvalues have right derivatives."""
        (values, vectors), (d_values, d_vectors) = results, cotangents
        eye = b.eye(values.shape.dims[-1], dtype=values.dtype)
        inner = None if d_values is None else eye * b.expand_dims(d_values, -2)
        d_vectors = turned_cotangent(b, vectors, d_vectors)
        if d_vectors is not None:
            gaps, turn = gaps_of(b, values), antihermitian(b, vectors, d_vectors)
            turn = 0.5 * divided_cotangent(b, turn, gaps, are_close(b, gaps, values), [d_vectors], d_values)
            inner = turn if inner is None else inner + turn
        assert inner is not None
        whole = b.matmul(b.matmul(vectors, cast(b, inner, vectors.dtype)), adjoint(b, vectors))
        below = b.tril(whole, -1) + adjoint(b, b.triu(whole, 1))
        return (below + b.real(b.tril(b.triu(whole))),)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS, tolerance=8)
        yield sample((4, 4), dtypes=("f32",), tolerance=8)
        yield sample((1, 1), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(("batch", 3, 3), dtypes=("f32",), tolerance=8)
        yield sample((2, 3, 3), dtypes=COMPLEXES, tolerance=8)


def _diagonalised(b: Builder, a: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues `[B, N]`, in any order, and the vectors of Hermitian matrices `[B, N, N]`.

    Elements up to `least [B, 1]` count as zero.
    """
    size, _ = order_of(a.shape, square=True)
    places = b.iota((size,), dtype="i32")
    eye = b.eye(size, dtype=a.dtype.part)

    def step(carry: tuple[Tensor, ...], partners: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        matrix, vectors = carry
        own = b.sum(b.real(matrix) * eye, axes=2)
        meets = b.reshape(partners, (size, 1)) == places
        products = b.sum(b.where(meets, matrix, 0.0), axes=2)
        cosine, sine, busy = jacobi.rotation(b, own, products, partners, least)
        columns = jacobi.turned(b, matrix, cosine, sine, partners, 2)
        following = jacobi.turned(b, columns, cosine, sine, partners, 1)
        return (following, jacobi.turned(b, vectors, cosine, sine, partners, 2)), busy

    matrix, vectors = jacobi.swept(b, (a, identities(b, a)), step, size)
    return b.sum(b.real(matrix) * eye, axes=2), vectors
