"""Preconditioners: approximate inverses with a method `solve`."""

from __future__ import annotations

from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.sparse.computing import located
from rlx.sparse.linalg.operators import as_matrix, builder_for, operator_of
from rlx.support.errors import Error, ShapeError


class Jacobi:
    """The inverse of the diagonal of a matrix: `solve(b)` is `b / diagonal`. Zeros on the diagonal count as ones."""

    def __init__(self, diagonal: Tensor):
        self.diagonal = diagonal

    def solve(self, b: Tensor) -> Tensor:
        """Return the vector `b [N]` divided by the diagonal."""
        g = self.diagonal.builder
        return b / g.where(self.diagonal == 0.0, 1.0, self.diagonal)


@located
def jacobi(A: Any) -> Jacobi:
    """Return the preconditioner that divides by the diagonal of a square matrix `[N, N]` or sparse matrix.

    Raises:
        Error: `A` is a function, which has no known diagonal, or it is not square.
    """
    g = builder_for(A)
    matrix = as_matrix(g, A)
    operator = operator_of(g, matrix)
    if operator.shape is None:
        raise Error("a function has no known diagonal", hint="pass M=lambda r: r / diagonal to the solver")
    if operator.shape[0] != operator.shape[1]:
        raise ShapeError(f"A must be square, got [{operator.shape[0]}, {operator.shape[1]}]")
    return Jacobi(g.diagonal(matrix) if isinstance(matrix, Tensor) else matrix.diagonal())
