"""Factorisations of matrices, and functions computed from them."""

from __future__ import annotations

from rlx.functions.factorization.operands import adjoint
from rlx.functions.factorization.reflections import packed_reflections, reflections_product
from rlx.importers.torch.rules import Results, aten, static_size
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
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
    return a if uplo.upper() == "L" else adjoint(g, a)


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
    return g.logdet(a)


@aten("linalg_eig")
def eig(g: Graph, a: Tensor) -> list[Tensor]:
    return list(g.eig(a))


@aten("linalg_eigvals", "_linalg_eigvals")
def eigvals(g: Graph, a: Tensor) -> Tensor:
    return g.eigvals(a)


@aten("linalg_matrix_exp")
def matrix_exp(g: Graph, a: Tensor) -> Tensor:
    return g.matrix_exp(a)


@aten("linalg_householder_product", "orgqr")
def householder_product(g: Graph, a: Tensor, tau: Tensor) -> Tensor:
    return g.householder_product(a, tau)


@aten("geqrf")
def geqrf(g: Graph, a: Tensor) -> list[Tensor]:
    return list(packed_reflections(g, a))


@aten("ormqr")
def ormqr(g: Graph, a: Tensor, tau: Tensor, c: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    return reflections_product(g, a, tau, c, left=left, is_adjoint=transpose)


@aten("linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve")
def ldl(g: Graph, *_: Tensor, hermitian: bool = False, check_errors: bool = False) -> Tensor:
    raise UnsupportedError(
        "cannot be imported: RLX has no factors of symmetric indefinite matrices",
        hint="torch.linalg.solve(a, b), or torch.linalg.cholesky for positive definite matrices",
    )
