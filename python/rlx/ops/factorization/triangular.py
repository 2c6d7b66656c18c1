"""Triangular matrices: the Cholesky factor, and linear systems by substitution."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization import blocked
from rlx.ops.factorization.matrices import Factorization, adjoint, as_inexact, hermitian, order_of, widest
from rlx.ops.lift import cast, common, same_dtype
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError


class Cholesky(Factorization, op="cholesky"):
    """The Cholesky-Banachiewicz method, one column per step; large matrices in blocks of columns."""

    def infer(self, a: Shape) -> Shape:
        order_of(a, square=True)
        return a

    def read(self, b: Builder | ModuleType, a: Tensor | np.ndarray) -> Any:
        return hermitian(b, a)

    def factors(self, a: np.ndarray) -> tuple[np.ndarray]:
        size = a.shape[-1]
        result = np.zeros_like(a)
        for k in range(size):
            rest = a[..., k:, k] - np.einsum("...ij,...j->...i", result[..., k:, :k], np.conjugate(result[..., k, :k]))
            pivot = np.real(rest[..., :1])
            root = np.sqrt(np.where(pivot > 0, pivot, np.nan))
            result[..., k:, k] = np.concatenate([root, rest[..., 1:] / root], -1)
        return (result,)

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor]:
        batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
        if size > blocked.LARGEST:
            return (blocked.cholesky(b, a),)
        places = b.iota((size,), dtype="i32")

        def step(kept: Tensor, column_of: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
            column, place = column_of  # [B, N]
            row = b.gather(kept, b.reshape(place, (1,)), axis=1)
            rest = column - b.sum(kept * b.conjugate(row), axes=2)
            pivot = b.real(b.reshape(b.gather(rest, place, axis=1), (batch, 1)))
            root = b.sqrt(b.where(pivot > 0.0, pivot, float("nan")))
            found = b.where(places < place, 0.0, b.where(places == place, root, rest / root))
            return b.where(places == place, b.reshape(found, (batch, size, 1)), kept), ()

        start = rules.zeros(b, a.shape)
        return (b.scan(step, start, (b.transpose(a, (2, 0, 1)), places))[0],)

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors) -> Tensor:
        """Return `dL = L·phi(L⁻¹·dA·L⁻ᴴ)`, where phi takes the lower triangle and half of the diagonal."""
        (factor,), (da,) = results, tangents
        inner = b.triangular_solve(factor, hermitian(b, da))
        inner = b.triangular_solve(factor, adjoint(b, inner))  # the adjoint, which is Hermitian
        size, _ = order_of(inner.shape, square=True)
        half = b.tril(inner) - 0.5 * b.eye(size, dtype=inner.dtype) * inner
        return b.matmul(factor, half)

    def samples(self) -> Iterable[OpSample]:
        yield sample(SampleOperand((2, 3, 3), low=-1, high=1, diagonal=4), dtypes=FLOATS)
        yield sample(SampleOperand((5, 5), low=-1, high=1, diagonal=6), dtypes=("f32",))
        yield sample(SampleOperand((1, 1), low=0.5), dtypes=("f32",))
        yield sample((2, 0, 0), dtypes=("f32",))
        yield sample(SampleOperand(("batch", 3, 3), low=-1, high=1, diagonal=4), dtypes=("f32",))
        yield sample(SampleOperand((2, 3, 3), low=-1, high=1, diagonal=5), dtypes=COMPLEXES)


class TriangularSolve(Card, op="triangular_solve"):
    def infer(self, a: Shape, b: Shape, *, lower: bool, unit_diagonal: bool) -> Shape:
        same_dtype(a, b)
        size, _ = order_of(a, square=True)
        if b.rank != a.rank or b.dims[:-1] != a.dims[:-1]:
            raise ShapeError(f"expected b […, {size}, K], with the other axes of a {a}, got {b}")
        return b

    def evaluate(self, a: np.ndarray, b: np.ndarray, *, lower: bool, unit_diagonal: bool) -> np.ndarray:
        matrix, x = widest(a), widest(b)
        steps = range(a.shape[-1])
        for k in steps if lower else reversed(steps):
            before = slice(0, k) if lower else slice(k + 1, None)
            x[..., k, :] -= np.einsum("...j,...jk->...k", matrix[..., k, before], x[..., before, :])
            x[..., k, :] /= 1 if unit_diagonal else matrix[..., k, k, None]
        return x.astype(b.dtype)

    def decompose(self, builder: Builder, a: Tensor, b: Tensor, *, lower: bool, unit_diagonal: bool) -> Tensor:
        """Substitute one row per step; in large matrices in blocks of rows."""
        *batch, size, columns = b.shape.dims
        if 0 in (*batch, size, columns):
            return b
        count = product(batch)
        matrix = statistics_input(builder, builder.reshape(a, (count, size, size)))
        right = statistics_input(builder, builder.reshape(b, (count, size, columns)))
        if type(size) is int and size > blocked.LARGEST:
            x = blocked.triangular_solve(builder, matrix, right, lower=lower, unit_diagonal=unit_diagonal)
            return cast(builder, builder.reshape(x, b.shape.dims), b.dtype)
        places = builder.iota((size,), dtype="i32")
        if unit_diagonal:
            diagonal = builder.expand(builder.constant(1.0, dtype=matrix.dtype), (count, size))
        else:
            diagonal = builder.diagonal(matrix, 0, 1, 2)

        def step(x: Tensor, row_of: tuple[Tensor, ...]) -> tuple[Tensor, tuple[()]]:
            row, value, divisor, place = row_of
            # Unsolved elements of x are 0, but the part of the row that is not read may be infinite.
            known = builder.where(places < place if lower else places > place, row, 0.0)
            rest = value - builder.sum(builder.reshape(known, (count, size, 1)) * x, axes=1)
            found = rest / builder.reshape(divisor, (count, 1))
            here = builder.reshape(places == place, (size, 1))
            return builder.where(here, builder.reshape(found, (count, 1, columns)), x), ()

        rows = (builder.transpose(matrix, (1, 0, 2)), builder.transpose(right, (1, 0, 2)))
        steps = (*rows, builder.transpose(diagonal, (1, 0)), places)
        x, _ = builder.scan(step, rules.zeros(builder, right.shape), steps, reverse=not lower)
        return cast(builder, builder.reshape(x, b.shape.dims), b.dtype)

    def build(
        self, builder: Builder, a: TensorLike, b: TensorLike, lower: bool = True, unit_diagonal: bool = False
    ) -> Tensor:
        operands = [as_inexact(builder, x) for x in common(builder, a, b)]
        return builder.emit("triangular_solve", operands, lower=lower, unit_diagonal=unit_diagonal)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, lower: bool, unit_diagonal: bool
    ) -> Tensor:
        """Differentiate `a·x = b`: `da·x + a·dx = db`."""
        (a, _), (da, db), (x,) = operands, tangents, results
        if da is not None:
            moved = b.matmul(_triangle(b, da, lower, unit_diagonal), x)
            db = -moved if db is None else db - moved
        return b.emit("triangular_solve", (a, db), lower=lower, unit_diagonal=unit_diagonal)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, lower: bool, unit_diagonal: bool
    ) -> rules.Cotangents:
        (a, _), (x,), (dx,) = operands, results, cotangents
        db = b.emit("triangular_solve", (adjoint(b, a), dx), lower=not lower, unit_diagonal=unit_diagonal)
        return lambda: -_triangle(b, b.matmul(db, adjoint(b, x)), lower, unit_diagonal), db

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, **attributes: Any) -> Tensor:
        if not batched[0]:  # one matrix for all right-hand sides [size, …, N, K]: they become its columns
            a, right = operands
            *batch, rows, columns = right.shape.dims[1:]
            wide = b.reshape(b.moveaxis(right, 0, -2), (*batch, rows, size * columns))
            solved = b.reshape(b.emit("triangular_solve", (a, wide), **attributes), (*batch, rows, size, columns))
            return b.moveaxis(solved, -2, 0)
        whole = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(operands, batched, strict=True)]
        return b.emit("triangular_solve", whole, **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(operands[0].dims[-1] * results[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        matrix: Attributes = {"low": -1, "high": 1, "diagonal": 2}
        yield sample(SampleOperand((2, 3, 3), **matrix), (2, 3, 2), dtypes=FLOATS)
        yield sample(SampleOperand((4, 4), **matrix), (4, 1), lower=False, dtypes=("f32",))
        yield sample(SampleOperand((3, 3), **matrix), (3, 2), lower=False, unit_diagonal=True, dtypes=("f32",))
        yield sample((2, 0, 0), (2, 0, 3), dtypes=("f32",))
        yield sample(
            SampleOperand(("batch", 3, 3), **matrix), ("batch", 3, "columns"), unit_diagonal=True, dtypes=("f32",)
        )
        yield sample(SampleOperand((2, 3, 3), **matrix), (2, 3, 2), dtypes=COMPLEXES)


def _triangle(b: Builder, a: Tensor, lower: bool, unit_diagonal: bool) -> Tensor:
    """Return the part of a matrix that is read."""
    return b.tril(a, -int(unit_diagonal)) if lower else b.triu(a, int(unit_diagonal))
