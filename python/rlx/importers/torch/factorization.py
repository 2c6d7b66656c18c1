"""Factorisations of matrices, and functions computed from them."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.torch.rules import Results, aten, static_size
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ops.lift import broadcast
from rlx.support.errors import UnsupportedError


def _all_well(g: Graph, results: Results) -> list[Tensor]:
    """Return the status codes for success."""
    return [g.zeros(r.dims, dtype=r.dtype) for r in results]


@aten("linalg_qr")
def qr(g: Graph, a: Tensor, mode: str = "reduced", *, results: Results) -> list[Tensor]:
    q, r = g.qr(a, full_matrices=mode == "complete")
    return [g.zeros(results[0].dims, dtype=a.dtype) if mode == "r" else q, r]


@aten("linalg_svd")
def svd(g: Graph, a: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> list[Tensor]:
    return list(g.svd(a, full_matrices=full_matrices))


@aten("_linalg_svd")
def svd_or_values(
    g: Graph,
    a: Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
    results: Results,
) -> list[Tensor]:
    if compute_uv:
        return svd(g, a, full_matrices)
    return [g.svdvals(a) if i == 1 else g.zeros(r.dims, dtype=r.dtype) for i, r in enumerate(results)]


@aten("linalg_svdvals")
def svdvals(g: Graph, a: Tensor, *, driver: str | None = None) -> Tensor:
    return g.svdvals(a)


@aten("linalg_eigh", "_linalg_eigh")
def eigh(g: Graph, a: Tensor, uplo: str = "L", compute_v: bool = True, *, results: Results) -> list[Tensor]:
    values, vectors = g.eigh(_lower(g, a, uplo))
    return [values, vectors if compute_v else g.zeros(results[1].dims, dtype=a.dtype)]


@aten("linalg_eigvalsh")
def eigvalsh(g: Graph, a: Tensor, uplo: str = "L") -> Tensor:
    return g.eigvalsh(_lower(g, a, uplo))


def _lower(g: Graph, a: Tensor, uplo: str) -> Tensor:
    """Return a matrix with the selected triangle as its lower triangle."""
    return a if uplo.upper() == "L" else g.swapaxes(a, -1, -2)


def _factored(g: Graph, a: Tensor) -> list[Tensor]:
    """Return both factors in one matrix, and the exchanged rows, counted from 1."""
    packed, pivots, _ = g.lu(a)
    return [packed, g.add(pivots, 1)]


@aten("linalg_lu_factor", "linalg_lu_factor_ex")
def lu_factor(g: Graph, a: Tensor, *, pivot: bool = True, check_errors: bool = False, results: Results) -> list[Tensor]:
    _with_pivots(pivot)
    return [*_factored(g, a), *_all_well(g, results[2:])]


def _with_pivots(pivot: bool) -> None:
    if not pivot:
        raise UnsupportedError("with pivot=False cannot be imported: RLX exchanges rows")


@aten("linalg_lu")
def lu(g: Graph, a: Tensor, *, pivot: bool = True) -> list[Tensor]:
    """Return the permutation and the two factors."""
    _with_pivots(pivot)
    packed, _, order = g.lu(a)
    rows, columns = static_size(a, a.rank - 2), static_size(a, a.rank - 1)
    least = min(rows, columns)
    lower = g.add(g.tril(g.narrow(packed, a.rank - 1, 0, least), -1), g.eye(rows, least, dtype=a.dtype))
    upper = g.triu(g.narrow(packed, a.rank - 2, 0, least))
    return [g.swapaxes(g.one_hot(order, rows, dtype=a.dtype), -1, -2), lower, upper]


@aten("cholesky")
def cholesky(g: Graph, a: Tensor, upper: bool = False) -> Tensor:
    return g.swapaxes(g.cholesky(g.swapaxes(a, -1, -2)), -1, -2) if upper else g.cholesky(a)


@aten("linalg_cholesky", "linalg_cholesky_ex")
def linalg_cholesky(
    g: Graph, a: Tensor, *, upper: bool = False, check_errors: bool = False, results: Results
) -> list[Tensor]:
    return [cholesky(g, a, upper), *_all_well(g, results[1:])]


@aten("linalg_det", "_linalg_det")
def det(g: Graph, a: Tensor, *, results: Results) -> list[Tensor]:
    return [g.det(a), *(_factored(g, a) if len(results) > 1 else ())]


@aten("linalg_slogdet", "_linalg_slogdet")
def slogdet(g: Graph, a: Tensor, *, results: Results) -> list[Tensor]:
    return [*g.slogdet(a), *(_factored(g, a) if len(results) > 2 else ())]


@aten("logdet")
def logdet(g: Graph, a: Tensor) -> Tensor:
    sign, size = g.slogdet(a)
    return g.where(g.lt(sign, 0.0), math.nan, size)


@aten("linalg_solve_triangular")
def solve_triangular(
    g: Graph, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if not left:  # x·a = b is aᵀ·xᵀ = bᵀ
        turned = [g.swapaxes(t, -1, -2) for t in (a, b)]
        return g.swapaxes(solve_triangular(g, *turned, upper=not upper, unitriangular=unitriangular), -1, -2)
    batch = broadcast(a.shape.dims[:-2], b.shape.dims[:-2])
    a, b = (g.expand(t, (*batch, *t.shape.dims[-2:])) for t in (a, b))
    return g.triangular_solve(a, b, lower=not upper, unit_diagonal=unitriangular)


@aten("linalg_matrix_exp")
def matrix_exp(g: Graph, a: Tensor) -> Tensor:
    return g.matrix_exp(a)


@aten("linalg_pinv")
def pinv(
    g: Graph, a: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    if hermitian or atol is not None:
        raise UnsupportedError("with hermitian or atol cannot be imported", hint="rtol is")
    return g.pinv(a, rcond if rtol is None else rtol)


@aten("cholesky_solve")
def cholesky_solve(g: Graph, b: Tensor, a: Tensor, upper: bool = False) -> Tensor:
    turned = g.swapaxes(a, -1, -2)
    lower, above = (turned, a) if upper else (a, turned)
    return solve_triangular(g, above, solve_triangular(g, lower, b, upper=False), upper=True)
