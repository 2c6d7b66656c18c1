"""Some eigenvalues and eigenvectors of symmetric and Hermitian operators, with SciPy's names."""

from __future__ import annotations

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
from rlx.sparse.linalg.operators import (
    builder_for,
    count_of,
    operator_of,
    preconditioner_of,
    result_shape,
    tolerance_of,
)
from rlx.sparse.linalg.rayleigh_ritz import LocallyOptimal, lobpcg_loop
from rlx.sparse.linalg.results import UnpackedResult
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr


@dataclass(frozen=True)
class EigenResult(UnpackedResult):
    """The result of `eigsh` and `lobpcg`. It unpacks as SciPy's: `w, v = eigsh(A)`.

    Attributes:
        eigenvalues: `[K]`, real.
        eigenvectors: The vectors as columns `[N, K]`, of length 1. The element of largest magnitude of each is positive.
        iterations: The number of restarts of `eigsh`, or of iterations of `lobpcg`, i32.
        residual_norms: `‖A·v - λ·v‖` of these vectors, computed from them, `[K]`.
        converged: Whether each pair is one of those that were asked for, `[K]`.
    """

    unpacked = ("eigenvalues", "eigenvectors")

    eigenvalues: Any
    eigenvectors: Any
    iterations: Any
    residual_norms: Any
    converged: Any


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


@located
def lobpcg(
    A: Any, X: Any, M: Any = None, tol: float | None = None, maxiter: int = 20, largest: bool = True
) -> EigenResult:
    """Return the K largest or smallest eigenvalues of a symmetric (Hermitian) `A`, and their vectors, from a first guess.

    The locally optimal block preconditioned conjugate gradient method (A. Knyazev, 2001). A matrix with fewer than 5·K rows is
    diagonalised as a dense one. Other eigenvalues are found if the columns of `X` are exact eigenvectors of them.

    Args:
        A: A matrix `[N, N]`, a sparse matrix, or a linear function of a tensor `[N]`. See `eigsh`.
        X: The first vectors as columns `[N, K]`. Those that depend on the others are replaced by random ones. They have no
            derivative.
        M: An approximate inverse of `A`, symmetric positive definite, in one of the forms of `A`, or an object with a method
            `solve`. It has no derivative.
        tol: The norm of a residual that is small enough. By default it is the root of the precision, times the norm of `A`, or
            times N if that is smaller. Rounding errors are always accepted.
        maxiter: The largest number of iterations.
        largest: Whether the largest eigenvalues are wanted, in descending order; else the smallest, in ascending order.

    Returns:
        An `EigenResult`. Pairs that have not converged are the best approximations.

    Raises:
        Error: An argument does not fit. Failures to converge are results: see `EigenResult.converged`.
    """
    tolerance, limit = None if tol is None else tolerance_of("tol", tol), count_of("maxiter", maxiter)
    if limit is None:
        raise Error("maxiter must be an integer from 0 on, got None")
    if not isinstance(largest, bool | np.bool_):
        raise Error(f"largest must be True or False, got {short_repr(largest)}")
    g = builder_for(X, A, M)
    block, x = _block_problem(g, A, X)
    count = x.shape.dims[1]
    assert isinstance(count, int)
    inverse = preconditioner_of(g, M, block.domain)
    if inverse is not None and inverse.shape not in (None, (block.size, block.size)):
        rows, columns = inverse.shape or (0, 0)
        raise ShapeError(f"M must be a matrix [{block.size}, {block.size}] as A is, got [{rows}, {columns}]")
    precondition = None if inverse is None else SymmetricOperator(g, inverse, block.domain, block.size).columns
    problem = LocallyOptimal(g, block.columns, precondition, tolerance, min(limit, 2**31 - 2), bool(largest))

    def pairs() -> Any:
        if block.size < 5 * count:
            return block.dense(KEYS["LA" if largest else "SA"], count, ascending=False)
        return lobpcg_loop(problem, x)

    return EigenResult(*eigen_root(block, pairs, 0.0, is_partial=True))


def _block_problem(g: Builder, matrix: Any, first: Any) -> tuple[SymmetricOperator, Tensor]:
    """Return a square operator and the first vectors, in its dtype.

    Raises:
        Error: They do not fit.
    """
    x = tensor_like(g, np.asarray(first) if isinstance(first, (list, tuple)) else first, f32)  # pyright: ignore[reportUnknownArgumentType]
    x = x if x.dtype.is_inexact else g.cast(x, f32)
    rows, columns = x.shape.dims if x.rank == 2 else (0, 0)
    if type(rows) is not int or type(columns) is not int or not 1 <= columns <= rows:
        raise ShapeError(f"X must be a matrix [N, K] of known sizes with 1 to N columns, got {x.shape}")
    block, column = _problem(g, matrix, g.reshape(x[:, :1], (rows,)), "the columns of X")
    assert column is not None
    return block, x if x.dtype is column.dtype else g.cast(x, column.dtype)


def _problem(g: Builder, matrix: Any, v0: Any, name: str = "v0") -> tuple[SymmetricOperator, Tensor | None]:
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
            raise ShapeError(f"{name} must be a vector [{rows}] to go with A [{rows}, {columns}], got {first.shape}")
    return block, first if first is None or first.dtype is kind else g.cast(first, kind)
