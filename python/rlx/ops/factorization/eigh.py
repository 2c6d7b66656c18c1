"""Eigenvalues and eigenvectors of symmetric matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors
from rlx.ir.op.card import OpSample, sample
from rlx.ir.op.results import EighResult
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import swap_last_axes
from rlx.ops.factorization import jacobi
from rlx.ops.factorization.degenerate import antisymmetric, are_close, divided, divided_cotangent, gaps_of
from rlx.ops.factorization.matrices import Factorization, columns_of, order_of, signs, symmetric


class Eigh(Factorization, op="eigh"):
    """Jacobi's method: rotations from both sides."""

    named = EighResult

    work = 60

    def infer(self, a: Shape) -> tuple[Shape, Shape]:
        size, _ = order_of(a, square=True)
        return a.with_dims((*a.dims[:-2], size)), a

    def read(self, b: Builder | ModuleType, a: Tensor | np.ndarray) -> Any:
        return symmetric(b, a)

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(a)
        return values, vectors * signs(np, vectors, np.where) if vectors.size else vectors

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
        batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
        places = b.iota((size,), dtype="i32")
        eye = b.eye(size, dtype=a.dtype)
        scale = jacobi.scale_of(b, a)
        a = a / scale
        least = jacobi.tolerance(b, a, size) * b.sqrt(b.sum(b.square(a), axes=(1, 2))) / size

        def step(carry: tuple[Tensor, ...], partners: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            matrix, vectors = carry
            own = b.sum(matrix * eye, axes=2)
            meets = b.reshape(partners, (size, 1)) == places
            products = b.sum(b.where(meets, matrix, 0.0), axes=2)
            cosine, sine = jacobi.rotation(b, own, products, partners)
            columns = jacobi.turned(b, matrix, cosine, sine, partners, 2)
            following = jacobi.turned(b, columns, cosine, sine, partners, 1)
            is_pair = b.reshape(places != partners, (1, size))
            busy = b.any(b.logical_and(b.abs(products) > b.reshape(least, (batch, 1)), is_pair))
            return (following, jacobi.turned(b, vectors, cosine, sine, partners, 2)), busy

        start = (a, b.expand(eye, a.shape.dims))
        matrix, vectors = jacobi.swept(b, start, step, size)
        values = b.sum(matrix * eye, axes=2)
        order = b.argsort(values, axis=1)
        vectors = columns_of(b, vectors, order)
        values = b.gather_batched(values, order, axis=1) * b.reshape(scale, (batch, 1))
        return values, vectors * signs(b, vectors, b.where)

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> tuple[Tensor, Tensor]:
        """Return `dw = diag(vᵀ·da·v)` and `dv = v·(F∘vᵀ·da·v)`, where `F[i, j] = 1/(w[j] - w[i])` off the diagonal.

        Where eigenvalues are equal up to rounding, `dv` is NaN, unless the tangent does not mix their vectors.
        """
        (values, vectors), (da,) = results, tangents
        eye, gaps = b.eye(values.shape.dims[-1], dtype=values.dtype), gaps_of(b, values)
        inner = b.matmul(swap_last_axes(b, vectors), b.matmul(symmetric(b, da), vectors))
        turn = divided(b, inner * (1.0 - eye), gaps, are_close(b, gaps, values))
        return b.sum(inner * eye, axes=-1), b.matmul(vectors, turn)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Sequence[Tensor | None]
    ) -> rules.Cotangents:
        """Return the adjoint of the jvp. Functions of the spaces of equal eigenvalues have right derivatives."""
        (values, vectors), (d_values, d_vectors) = results, cotangents
        eye = b.eye(values.shape.dims[-1], dtype=values.dtype)
        inner = None if d_values is None else eye * b.expand_dims(d_values, -2)
        if d_vectors is not None:
            gaps, turn = gaps_of(b, values), antisymmetric(b, vectors, d_vectors)
            turn = 0.5 * divided_cotangent(b, turn, gaps, are_close(b, gaps, values), [d_vectors], d_values)
            inner = rules.total(b, [inner, turn])
        assert inner is not None
        whole = b.matmul(vectors, b.matmul(inner, swap_last_axes(b, vectors)))
        return (b.tril(whole) + b.tril(swap_last_axes(b, whole), -1),)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 3), dtypes=FLOATS, tolerance=8)
        yield sample((4, 4), dtypes=("f32",), tolerance=8)
        yield sample((1, 1), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(("batch", 3, 3), dtypes=("f32",), tolerance=8)
