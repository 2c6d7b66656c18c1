"""Some eigenvalues and eigenvectors of symmetric and Hermitian operators, with SciPy's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape
from rlx.ops.lift import tensor_like
from rlx.sparse.computing import located
from rlx.sparse.linalg.eigen_root import SymmetricOperator, eigen_root, symmetric_operator
from rlx.sparse.linalg.lanczos import KEYS, Spectrum, basis_of, lanczos
from rlx.sparse.linalg.operators import builder_for, count_of, operator_of, result_shape, tolerance_of
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr


@dataclass(frozen=True)
class EigenResult:
    """The result of `eigsh` and `lobpcg`. It unpacks as SciPy's: `w, v = eigsh(A)`.

    Attributes:
        eigenvalues: `[K]`, real.
        eigenvectors: The vectors as columns `[N, K]`, of length 1. The element of largest magnitude of each is positive.
        iterations: The number of restarts of `eigsh`, or of iterations of `lobpcg`, i32.
        residual_norms: `‖A·v - λ·v‖` of these vectors, computed from them, `[K]`.
        converged: Whether each pair is one of those that were asked for, `[K]`.
    """

    eigenvalues: Any
    eigenvectors: Any
    iterations: Any
    residual_norms: Any
    converged: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.eigenvalues, self.eigenvectors))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        return (self.eigenvalues, self.eigenvectors)[index]


@located
def eigsh(
    A: Any, k: int = 6, which: str = "LM", v0: Any = None, maxiter: int | None = None, tol: float = 0
) -> EigenResult:
    """Return `k` eigenvalues, in ascending order, and eigenvectors of a symmetric (Hermitian) `A`.

    Lanczos' method with thick restarts (K. Wu, H. Simon, 2000). Multiple eigenvalues are found with all their copies: when
    the vectors have converged, the method looks for others that are orthogonal to them. A matrix with at most
    `max(2·k + 20, 32)` rows is diagonalised as a dense one.

    Args:
        A: A matrix `[N, N]`, a sparse matrix, or a linear function of a tensor `[N]`, which needs `v0`. Both triangles are
            used, and must be adjoint to each other. Floats or complex numbers.
        k: The number of eigenvalues, from 1 to N - 1.
        which: "LM" for the largest magnitudes, "SA" for the smallest, "LA" for the largest eigenvalues, "SM" for the smallest
            magnitudes. The last one converges slowly: there is no `sigma`.
        v0: The first vector `[N]`, by default a random one, always the same. It has no derivative.
        maxiter: The largest number of restarts, by default 10·N.
        tol: The residual relative to the eigenvalue. Rounding errors relative to the norm of `A` are always accepted.

    Returns:
        An `EigenResult`. Pairs that have not converged are NaN.

    Raises:
        Error: An argument does not fit. Failures to converge are results: see `EigenResult.converged`.
    """
    if which not in KEYS:
        names = ", ".join(map(repr, sorted(KEYS)))
        raise Error(f"which must be one of {names}, got {short_repr(which)}")
    tolerance, limit, count = tolerance_of("tol", tol), count_of("maxiter", maxiter, 1), count_of("k", k, 1)
    assert count is not None
    g = builder_for(v0, A)
    block, first = _problem(g, A, v0)
    if count >= block.size:
        hint = "rlx.linalg.eigh(A.todense()) has all eigenvalues"
        raise Error(f"k must be less than the {block.size} rows of A, got {count}", hint=hint)
    spectrum = Spectrum(
        g, block.vector, block.domain, count, which, tolerance, limit or min(10 * block.size, 2**31 - 2)
    )

    def pairs() -> Any:
        if block.size <= basis_of(count):
            return block.dense(KEYS[which], count, ascending=True)
        return block.ascending(lanczos(spectrum, first))

    return EigenResult(*eigen_root(block, pairs, tolerance, is_partial=False))


def _problem(g: Builder, matrix: Any, v0: Any) -> tuple[SymmetricOperator, Tensor | None]:
    """Return a square operator on vectors, and the first vector.

    Raises:
        Error: The matrix is not square, a function comes without a vector, or the vector does not fit.
    """
    first = None
    if v0 is not None:
        first = tensor_like(g, np.asarray(v0) if isinstance(v0, (list, tuple)) else v0, f32)  # pyright: ignore[reportUnknownArgumentType]
        first = first if first.dtype.is_inexact else g.cast(first, f32)
        if first.rank != 1:
            raise ShapeError(f"v0 must be a vector [N], got {first.shape}")
    operator = operator_of(g, matrix)
    if operator.shape is None:
        if first is None:
            raise Error(
                "v0 is needed, because a function does not tell the number of rows", hint="v0=rlx.ops.ones((n,)) is one"
            )
        kind = promote(first.dtype.compute, result_shape(g, operator.apply, first.shape).dtype.compute)
        block = symmetric_operator(g, operator, Shape(first.shape.dims, kind))
    else:
        assert operator.dtype is not None
        rows, columns = operator.shape
        if rows != columns:
            raise ShapeError(f"A must be square, got [{rows}, {columns}]")
        kind = operator.dtype.compute
        kind = kind if first is None else promote(kind, first.dtype.compute)
        block = symmetric_operator(g, operator, Shape((rows,), kind))
        if first is not None and first.shape.dims != (rows,):
            raise ShapeError(f"v0 must be a vector [{rows}] to go with A [{rows}, {columns}], got {first.shape}")
    return block, first if first is None or first.dtype is kind else g.cast(first, kind)
