"""Eigenvectors as roots, which the implicit function theorem differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.factorization.degenerate import are_zero, gaps_of, quotient, sums_of
from rlx.ops.factorization.matrices import adjoint
from rlx.ops.factorization.phases import phases
from rlx.sparse.linalg import krylov
from rlx.sparse.linalg.lanczos import Pairs
from rlx.sparse.linalg.operators import Operator, conjugate
from rlx.sparse.linalg.solvers import Method, iterate, known
from rlx.support.errors import Error, ShapeError

_NAN = float("nan")


@dataclass(frozen=True)
class SymmetricOperator:
    """A symmetric (Hermitian) operator on vectors `[N]` and on blocks of them.

    Attributes:
        g: The builder.
        operator: The operator.
        domain: The shape of a vector, in the dtype of the computation.
        size: N.
    """

    g: Builder
    operator: Operator
    domain: Shape
    size: int

    def vector(self, x: Tensor) -> Tensor:
        """Return the operator's value for a vector `[N]`."""
        y = self.operator.apply(x)
        if y.shape.dims != x.shape.dims:
            raise ShapeError(f"A maps {x.shape} to {y.shape}; expected a tensor like v0")
        return y if y.dtype is x.dtype else self.g.cast(y, x.dtype)

    def columns(self, x: Tensor) -> Tensor:
        """Return the operator's values for the columns of `x [N, K]`."""
        g = self.g
        if self.operator.shape is None:
            _, rows = g.scan(lambda _, v: (None, self.vector(v)), None, g.transpose(x))
            return g.transpose(rows)
        y = self.operator.apply(x)
        return y if y.dtype is x.dtype else g.cast(y, x.dtype)

    def dense(self, key: Callable[[Builder, Tensor], Tensor], count: int, *, ascending: bool) -> Pairs:
        """Return the first pairs by a key of the dense matrix, in ascending order or in that of the key."""
        g = self.g
        matrix = self.columns(g.eye(self.size, dtype=self.domain.dtype))
        values, vectors = g.eigh(0.5 * (matrix + adjoint(g, matrix)))
        order = g.argsort(key(g, values), axis=0, descending=True)[:count]
        scale = g.max(g.abs(values))
        found = g.gather(values, order, axis=0), g.gather(g.transpose(vectors), order, axis=0)
        # The values are finite if this is 0.
        done = g.sum(values) - g.sum(values) == 0.0
        pairs = Pairs(*found, scale, g.constant(np.zeros((), np.int32)), done, rules.zeros(g, scale.shape))
        return self.ascending(pairs) if ascending else pairs

    def ascending(self, pairs: Pairs) -> Pairs:
        """Return pairs in ascending order."""
        g, order = self.g, self.g.argsort(pairs.values, axis=0)
        values, rows = g.gather(pairs.values, order, axis=0), g.gather(pairs.rows, order, axis=0)
        limits = pairs.limits if pairs.limits.rank == 0 else g.gather(pairs.limits, order, axis=0)
        return Pairs(values, rows, pairs.scale, pairs.iterations, pairs.done, limits)


def symmetric_operator(g: Builder, operator: Operator, domain: Shape) -> SymmetricOperator:
    """Return an operator on vectors of a shape.

    Raises:
        Error: The size is symbolic.
    """
    (size,) = domain.dims
    if type(size) is not int:
        raise Error(f"the number of rows of A must be known, got {size}", hint="compile the graph for one size")
    return SymmetricOperator(g, operator, domain, size)


def eigen_root(
    block: SymmetricOperator, pairs: Callable[[], Pairs], tol: float, *, is_partial: bool
) -> tuple[Tensor, ...]:
    """Return eigenvalues, vectors as columns, iterations, norms of residuals, and which pairs have converged.

    The values and vectors are a root of `(A·v - v·λ, (1 - vᴴ·v)/2)`, whose derivatives do not go through `pairs`.

    Args:
        block: The operator.
        pairs: Computes the pairs.
        tol: The accepted residual of the systems of derivatives, relative to their right-hand sides. Rounding errors count
            as zero.
        is_partial: Whether pairs that have not converged are returned, else NaN.
    """
    g, eps = block.g, float(np.finfo(block.domain.dtype.part.numpy).eps)

    def primal() -> list[Tensor]:
        found = pairs()
        x = g.transpose(found.rows)
        x = x / g.sqrt(g.sum(g.square(g.abs(x)), axes=0))
        left = block.columns(x) - x * found.values
        # The largest one separately: the squares of the others are in the range of the dtype.
        largest = g.max(g.abs(left), axes=0)
        divisor = g.where(largest > 0.0, largest, 1.0)
        norms = divisor * g.sqrt(g.sum(g.square(g.abs(left / divisor)), axes=0))
        rounding = (4.0 * block.size**0.5 + 40.0) * eps * found.scale
        converged = found.done & (norms <= g.maximum(found.limits, rounding))
        return [x, found.values, found.scale, found.iterations, norms, converged]

    def residual(x: Tensor, values: Tensor, scale: Tensor) -> list[Tensor]:
        lengths = g.sum(g.square(g.abs(x)), axes=0)
        # The norm of the operator has no derivative. It is a root to be available to the solvers.
        return [block.columns(x) - x * values, 0.5 * (1.0 - lengths), scale * 1.0]

    def solve(root: Sequence[Tensor], c: Sequence[Tensor]) -> list[Tensor]:
        return _solved(block, root, c, tol, is_adjoint=False)

    def solve_adjoint(root: Sequence[Tensor], c: Sequence[Tensor]) -> list[Tensor]:
        return _solved(block, root, c, tol, is_adjoint=True)

    x, values, _, iterations, norms, converged = g.custom_root(residual, primal, solve, solve_adjoint)
    x = x * conjugate(phases(g, x, g.where))
    if not is_partial:
        factor = g.where(converged, 1.0, _NAN)
        x, values = x * factor, values * factor
    return values, x, iterations, norms, converged


def _solved(
    block: SymmetricOperator, root: Sequence[Tensor], c: Sequence[Tensor], tol: float, *, is_adjoint: bool
) -> list[Tensor]:
    """Solve `A·t - t·λ - v·μ = c`, `-Re(vᴴ·t) = γ` for `t [N, K]` and `μ [K]`.

    The parts of `t` along the vectors of `root` are quotients by differences of their eigenvalues. The rest is orthogonal to
    all of them, and the solution of a system for each vector.
    """
    g, (x, values, scale), (side, lengths, other) = block.g, root, c
    inner = g.matmul(adjoint(g, x), side)
    eye = g.eye(values.shape.dims[0], dtype=values.dtype)
    diagonal = g.sum((g.real(inner) if inner.dtype.is_complex else inner) * eye, axes=-1)
    parts = _along(block, inner * (1.0 - eye), c, values, scale, is_adjoint=is_adjoint)
    rest = side - g.matmul(x, inner)
    rest = rest - g.matmul(x, g.matmul(adjoint(g, x), rest))
    _, found = g.scan(
        lambda _, row: (None, _deflated(block, x, row[0], row[1], tol)), None, (g.transpose(rest), values)
    )
    t = g.transpose(found) + g.matmul(x, parts) - x * lengths
    return [t, -diagonal, other]


def _along(
    block: SymmetricOperator, inner: Tensor, c: Sequence[Tensor], values: Tensor, scale: Tensor, *, is_adjoint: bool
) -> Tensor:
    """Return `inner[i, j]/(λ[i] - λ[j])`; where eigenvalues are equal up to rounding, 0 if that is right, else NaN.

    Tangents may not mix the vectors of equal eigenvalues. The sum of two cotangents counts, and functions of both the
    vectors and the values are not known: the rules of `eigh`.
    """
    g, eps = block.g, float(np.finfo(values.dtype.numpy).eps)
    gaps = -gaps_of(g, values)
    close = g.abs(gaps) <= 100.0 * eps * scale
    if is_adjoint:
        sizes = g.sqrt(g.sum(g.square(g.abs(c[0])), axes=0))
        sizes, moved = sums_of(g, sizes), sums_of(g, g.abs(c[1]))
        zero = (sizes == 0.0) | (are_zero(g, inner - adjoint(g, inner), sizes) & (moved == 0.0))
    else:
        zero = g.abs(inner) == 0.0
    zero = zero | (g.eye(values.shape.dims[0]) > 0.0)
    return quotient(g, inner, gaps, close, zero)


def _deflated(block: SymmetricOperator, x: Tensor, side: Tensor, value: Tensor, tol: float) -> Tensor:
    """Return the solution of `A·t - λ·t = side` that is orthogonal to the columns of `x`, as `side` is; NaN without one."""
    g, eps = block.g, float(np.finfo(value.dtype.numpy).eps)

    def apply(t: Tensor) -> Tensor:
        y = block.vector(t) - value * t
        return y - g.matmul(x, conjugate(g.matmul(conjugate(y), x)))

    minres = Method(krylov.minres, symmetric=True, default=5)
    found = known(g, iterate(g, minres, apply, None, side, None, max(0.01 * tol, 10.0 * eps), 0.0, None), side)
    return found - g.matmul(x, conjugate(g.matmul(conjugate(found), x)))
