"""Rules for JAX's primitives of `jax.lax.linalg`: factorisations of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.functions.factorization.operands import adjoint
from rlx.functions.factorization.reflections import (
    packed_hessenberg,
    packed_reflections,
    pivoted_qr,
    reflections_product,
)
from rlx.functions.factorization.schur_form import schur_form
from rlx.importers.jax.primitives import primitives
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ops.factorization.phases import phases
from rlx.support.errors import UnsupportedError


@primitives("cholesky")
def cholesky(g: Graph, a: Tensor) -> Tensor:
    """Return the factor in one triangle, with the other triangle unchanged. All elements are NaN if there is no factor."""
    factor = g.cholesky(a)
    last = factor[..., -1:, -1:] if a.shape.dims[-1] != 0 else factor
    row, column = (g.iota(a.shape.dims[-2:], axis=axis, dtype="i32") for axis in (0, 1))
    return g.where(last == last, g.where(column <= row, factor, a), float("nan")) if a.shape.num_elements else a


@primitives("eigh")
def eigh(g: Graph, a: Tensor, *, lower: bool, subset_by_index: Any = None, algorithm: Any = None) -> Sequence[Tensor]:
    if subset_by_index is not None and tuple(subset_by_index) != (0, a.shape.dims[-1]):
        raise UnsupportedError("of a part of the eigenvalues cannot be imported")
    values, vectors = g.eigh(a if lower else adjoint(g, a))
    return vectors, values


@primitives("svd")
def svd(
    g: Graph, a: Tensor, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, algorithm: Any = None
) -> Sequence[Tensor]:
    if subset_by_index is not None and tuple(subset_by_index) != (0, min(a.shape.static[-2:])):
        raise UnsupportedError("of a part of the singular values cannot be imported")
    if not compute_uv:
        return [g.svdvals(a)]
    u, s, vt = g.svd(a, full_matrices=full_matrices)
    return s, u, vt


@primitives("qr")
def qr(g: Graph, a: Tensor, *, full_matrices: bool, pivoting: bool = False, use_magma: Any = None) -> Sequence[Tensor]:
    return pivoted_qr(g, a, full_matrices) if pivoting else g.qr(a, full_matrices=full_matrices)


@primitives("lu")
def lu(g: Graph, a: Tensor) -> Sequence[Tensor]:
    return g.lu(a)


@primitives("householder_product")
def householder_product(g: Graph, a: Tensor, factors: Tensor) -> Tensor:
    return g.householder_product(a, factors)


@primitives("geqrf")
def geqrf(g: Graph, a: Tensor) -> Sequence[Tensor]:
    return packed_reflections(g, a)


@primitives("ormqr")
def ormqr(g: Graph, a: Tensor, factors: Tensor, c: Tensor, *, left: bool = True, transpose: bool = False) -> Tensor:
    return reflections_product(g, a, factors, c, left=left, is_adjoint=transpose)


@primitives("eig")
def eig(
    g: Graph,
    a: Tensor,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
) -> Sequence[Tensor]:
    """Return eigenvalues, left and right vectors. Left vectors are the columns of `v⁻ᴴ`, with length 1."""
    values, right = g.eig(a)
    results = [values]
    if compute_left_eigenvectors:
        left = adjoint(g, g.inv(right))
        left = left / g.sqrt(g.sum(g.square(g.abs(left)), axes=-2, keep_dims=True))
        results.append(left * g.conjugate(phases(g, left, g.where)))
    return [*results, right] if compute_right_eigenvectors else results


@primitives("schur")
def schur(
    g: Graph,
    a: Tensor,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Any = None,
) -> Sequence[Tensor]:
    if not a.dtype.is_complex:
        raise UnsupportedError(
            "of real matrices cannot be imported: RLX has the complex Schur form",
            hint="jax.scipy.linalg.schur(a, output='complex'), or jax.numpy.linalg.eig",
        )
    if sort_eig_vals:
        raise UnsupportedError("with sorted eigenvalues cannot be imported")
    t, z = schur_form(g, a)
    return (t, z) if compute_schur_vectors else (t,)


@primitives("hessenberg")
def hessenberg(g: Graph, a: Tensor) -> Sequence[Tensor]:
    return packed_hessenberg(g, a)


@primitives("tridiagonal")
def tridiagonal(g: Graph, a: Tensor, *, lower: bool = True) -> Sequence[Tensor]:
    """Return the compact form, the diagonal, the subdiagonal and the factors of the reflections."""
    if not lower:
        raise UnsupportedError(
            "of the upper triangle cannot be imported", hint="jax.lax.linalg.tridiagonal(a, lower=True)"
        )
    strict = g.tril(a, -1)
    packed, factors = packed_hessenberg(g, strict + adjoint(g, strict) + g.real(a) * g.eye(a.shape.static[-1]))
    diagonals = [g.real(g.diagonal(packed, k, -2, -1)) for k in (0, -1)]
    return [g.tril(packed) + g.triu(a, 1), *diagonals, factors]
