"""The functions of `rlx.linalg` of complex and real matrices against NumPy and SciPy: of batches, and of sizes 0, 1 and 5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from rlx import linalg
from tests.linalg.cases import agree, evaluated, flat, graph_of
from tests.transforms.checks import check_jvp, check_vjp

NP: Any = np.linalg
SP: Any = scipy.linalg
SHAPES = [(2, 3, 3), (0, 0), (1, 1), (5, 5)]
KINDS = ["float64", "complex128"]


def _operands(kind: str, shape: Sequence[int]) -> dict[str, np.ndarray]:
    """Return square matrices a, well-conditioned s, hermitian h, positive definite p, tall t, right-hand sides b."""
    rng = np.random.default_rng(3)

    def normal(*sizes: int) -> np.ndarray:
        x = rng.standard_normal(sizes)
        return x + 1j * rng.standard_normal(sizes) if kind == "complex128" else x

    *batch, _, size = shape
    a, unit = normal(*shape), np.eye(size)
    h, p = a + _adjoint(a), a @ _adjoint(a) + unit
    t, b, v = normal(*batch, size + 2, size), normal(*batch, size, 2), normal(*batch, size)
    return {
        "a": a,
        "s": a + 4 * size**0.5 * unit,
        "h": h,
        "p": p,
        "t": t,
        "b": b,
        "v": v,
        "c": normal(*batch, size + 2, 2),
    }


def _adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of batches, for one of SciPy's."""

    def of_batch(*arrays: np.ndarray) -> Any:
        if arrays[0].ndim == 2:
            return function(*arrays)
        found = [flat(function(*xs)) for xs in zip(*arrays, strict=True)]
        return [np.stack(xs) for xs in zip(*found, strict=True)]

    return of_batch


def _composed(values: Any, vectors: Any) -> Any:
    """Return a matrix from its eigenvalues and orthonormal eigenvectors."""
    return (vectors * values[..., None, :]) @ _adjoint(vectors)


def _h(x: Any) -> Any:
    """Return the conjugate transposes of tensors."""
    return x.builder.conjugate(linalg.matrix_transpose(x)) if x.dtype.is_complex else linalg.matrix_transpose(x)


def _spectral(result: Any) -> Any:
    values, vectors = result
    return values, vectors @ (vectors.builder.expand_dims(values, -1) * _h(vectors))


def _eig(a: Any) -> Any:
    """Return functions of the eigenvalues that do not depend on their order, and the matrix from all of them."""
    w, v = linalg.eig(a)
    b = w.builder
    return b.sum(w**3, axes=-1), v @ (b.expand_dims(w, -1) * linalg.inv(v))


def _reflections(t: np.ndarray, v: np.ndarray) -> Any:
    """Return the first columns of the product of `I - tau·w·wᴴ`, by matrices."""
    q = np.eye(t.shape[-2])
    for k in range(t.shape[-1]):
        w = t[..., :, k : k + 1] * (np.arange(t.shape[-2]) > k)[:, None] + np.eye(t.shape[-2])[:, k : k + 1]
        q = q @ (np.eye(t.shape[-2]) - v[..., k, None, None] * w @ _adjoint(w))
    return q[..., : t.shape[-1]]


# The function, the same of arrays, and its operands.
Case = tuple[Callable[..., Any], Callable[..., Any], str]
CASES: dict[str, Case] = {
    "cholesky": (linalg.cholesky, NP.cholesky, "p"),
    "cholesky upper": (lambda p: linalg.cholesky(p, upper=True), lambda p: _adjoint(NP.cholesky(p)), "p"),
    "cho_factor": (lambda p, b: linalg.cho_solve(linalg.cho_factor(p), b), NP.solve, "pb"),
    "cho_solve": (lambda p, b: linalg.cho_solve(linalg.cho_factor(p, True), b), NP.solve, "pb"),
    "cond": (lambda s: linalg.cond(s, "fro"), lambda s: NP.cond(s, "fro"), "s"),
    "cross": (linalg.cross, NP.cross, "ah"),
    "det": (linalg.det, NP.det, "a"),
    "diagonal": (linalg.diagonal, NP.diagonal, "t"),
    "diag_set": (lambda a, v: linalg.diag_set(a, v), lambda a, v: a + (v - _diagonals(a))[..., None] * np.eye(a.shape[-1]),
                 "av"),
    "block_diag": (linalg.block_diag, _each(SP.block_diag), "at"),
    "eig": (_eig, lambda a: [(NP.eigvals(a) ** 3).sum(-1), a.astype(complex)], "a"),
    "eigvals": (lambda a: a.builder.sum(linalg.eigvals(a) ** 3, axes=-1), lambda a: (NP.eigvals(a) ** 3).sum(-1), "a"),
    "eigh": (lambda h: _spectral(linalg.eigh(_whole(h))), lambda h: [NP.eigvalsh(h), h], "h"),
    "eigvalsh": (lambda h: linalg.eigvalsh(_whole(h), UPLO="U"), NP.eigvalsh, "h"),
    "expm": (linalg.expm, _each(SP.expm), "a"),
    "householder_product": (linalg.householder_product, _reflections, "tv"),
    "inv": (linalg.inv, NP.inv, "s"),
    "inv_sqrtm": (lambda p: linalg.inv_sqrtm(_whole(p)), lambda p: _of_values(p, lambda w: w**-0.5), "p"),
    "kron": (lambda v: linalg.kron(v, v * 2.0), lambda v: np.einsum("...i,...j->...ij", v, 2 * v).reshape(*v.shape[:-1], -1)
             if v.ndim == 1 else np.kron(v, 2 * v), "v"),
    "logdet": (linalg.logdet, lambda p: np.log(NP.det(p)), "p"),
    "logm": (lambda p: linalg.logm(_whole(p)), lambda p: _of_values(p, np.log), "p"),
    "lstsq": (lambda t, c: linalg.lstsq(t, c).x, lambda t, c: NP.pinv(t) @ c, "tc"),
    "lu": (lambda s: linalg.lu(s)[1:], lambda s: SP.lu(s)[1:], "s"),
    "lu_factor": (lambda s, b: linalg.lu_solve(linalg.lu_factor(s), b, 2), lambda s, b: NP.solve(_adjoint(s), b), "sb"),
    "lu_solve": (lambda s, b: linalg.lu_solve(linalg.lu_factor(s), b), NP.solve, "sb"),
    "matmul": (linalg.matmul, np.matmul, "ab"),
    "matrix_norm": (linalg.matrix_norm, NP.matrix_norm, "s"),
    "matrix_power": (lambda s: linalg.matrix_power(s, -2), lambda s: NP.matrix_power(s, -2), "s"),
    "matrix_rank": (linalg.matrix_rank, lambda t: NP.matrix_rank(t).astype(np.int32), "t"),
    "matrix_transpose": (linalg.matrix_transpose, np.matrix_transpose, "t"),
    "multi_dot": (lambda t: linalg.multi_dot([t, linalg.matrix_transpose(t), t]) if t.rank == 2 else t,
                  lambda t: t @ t.T @ t if t.ndim == 2 else t, "t"),
    "norm": (lambda s: linalg.norm(s, axis=-1), lambda s: NP.norm(s, axis=-1), "s"),
    "outer": (lambda v: linalg.outer(v, v) if v.rank == 1 else v, lambda v: np.outer(v, v) if v.ndim == 1 else v, "v"),
    "pinv": (linalg.pinv, NP.pinv, "t"),
    "polar": (linalg.polar, _each(SP.polar), "t"),
    "qr": (lambda t: _signed(linalg.qr(t)), lambda t: _signed_array(*NP.qr(t)), "t"),
    "slogdet": (linalg.slogdet, NP.slogdet, "s"),
    "solve": (linalg.solve, NP.solve, "sb"),
    "solve_sylvester": (linalg.solve_sylvester, _each(SP.solve_sylvester), "spa"),
    "solve_triangular": (lambda s, b: linalg.solve_triangular(s, b, "C", lower=True),
                         lambda s, b: NP.solve(_adjoint(np.tril(s)), b), "sb"),
    "sqrtm": (lambda p: linalg.sqrtm(_whole(p)), lambda p: _of_values(p, np.sqrt), "p"),
    "svd": (lambda t: _svd(linalg.svd(t, full_matrices=False)), lambda t: [NP.svdvals(t), t], "t"),
    "svdvals": (linalg.svdvals, NP.svdvals, "t"),
    "tensordot": (lambda a, b: linalg.tensordot(a, b, 1) if a.rank == 2 else a,
                  lambda a, b: np.tensordot(a, b, 1) if a.ndim == 2 else a, "ab"),
    "trace": (linalg.trace, NP.trace, "t"),
    "vecdot": (linalg.vecdot, np.vecdot, "vv"),
    "vector_norm": (linalg.vector_norm, NP.vector_norm, "s"),
}  # fmt: skip
# Functions whose derivatives are not defined at these operands, or that have none.
_WITHOUT_DERIVATIVE = {"matrix_rank"}


def _diagonals(a: np.ndarray) -> np.ndarray:
    return np.diagonal(a, axis1=-2, axis2=-1)


def _whole(a: Any) -> Any:
    """Return the hermitian part, so that differences of all elements stay hermitian."""
    return 0.5 * (a + _h(a))


def _of_values(p: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    w, v = NP.eigh(p)
    return _composed(function(w), v)


def _signed(factors: Any) -> Any:
    """Return what does not depend on the signs of the rows of r."""
    q, r = factors
    return q @ _h(q), _h(r) @ r


def _signed_array(q: Any, r: Any) -> Any:
    return [q @ _adjoint(q), _adjoint(r) @ r]


def _svd(factors: Any) -> Any:
    u, s, vh = factors
    return s, u @ (u.builder.expand_dims(s, -1) * vh)


def test_all_functions_are_here() -> None:
    assert set(dir(linalg)) == {name.partition(" ")[0] for name in CASES}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, kind: str) -> None:
    ours, theirs, names = CASES[name]
    for shape in SHAPES:
        arrays = [_operands(kind, shape)[n] for n in names]
        if (name == "cross" and shape[-1] != 3) or (name == "cond" and not shape[-1]):
            continue  # they are refused
        found = evaluated(ours, *arrays)
        assert all(np.isfinite(f).all() for f in found) or not shape[-1]
        if shape[-1]:  # NumPy and SciPy refuse some empty matrices
            agree(found, theirs(*arrays), 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [n for n in CASES if n not in _WITHOUT_DERIVATIVE])
def test_derivatives(name: str, kind: str) -> None:
    """In both modes: against differences, and one as the adjoint of the other."""
    ours, _, names = CASES[name]
    arrays = [_operands(kind, (2, 3, 3))[n] for n in names]
    graph = graph_of(ours, *arrays)
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    check_jvp(graph, values, tolerance=1e-5)
    check_vjp(graph, values, tolerance=1e-9)
