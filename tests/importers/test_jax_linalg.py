"""All functions of `jax.numpy.linalg`, `jax.scipy.linalg` and `jax.lax.linalg` through `rlx.from_jax`: JAX's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
pytest.importorskip("jax.scipy.linalg")
import jax.numpy as jnp  # noqa: E402

NP: Any = jnp.linalg
SP: Any = jax.scipy.linalg
LAX: Any = jax.lax.linalg
TOLERANCES = {"float32": 3e-4, "complex64": 3e-4, "float64": 1e-9, "complex128": 1e-9}


def _operands(kind: str) -> dict[str, np.ndarray]:
    """Return matrices by name: in capitals batched, a square, h hermitian, p positive definite, t tall, w wide."""
    rng = np.random.default_rng(38)

    def normal(*shape: int) -> np.ndarray:
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if kind.startswith("complex") else x).astype(kind)

    a, t, w, b = normal(2, 3, 3), normal(2, 5, 3), normal(2, 3, 5), normal(2, 3, 2)
    adjoint = np.conj(a.swapaxes(-1, -2))
    of = {"A": a, "H": a + adjoint, "P": a @ adjoint + 2 * np.eye(3, dtype=a.dtype), "T": t, "W": w, "B": b}
    of |= {name.lower(): x[0] for name, x in of.items()}
    return of | {"C": normal(5, 2), "G": normal(6, 2, 3), "F": normal(2, 3, 6), "d": normal(2, 3), "v": normal(3)}


Case = tuple[Callable[..., Any], str]
CASES: dict[str, Sequence[Case]] = {
    "numpy.cholesky": [(NP.cholesky, "P"), (lambda p: NP.cholesky(p, upper=True), "P")],
    "numpy.cond": [(NP.cond, "A"), (lambda a: NP.cond(a, 1), "A")],
    "numpy.cross": [(NP.cross, "AH")],
    "numpy.det": [(NP.det, "A"), (lambda g: NP.det(g.reshape(6, 6)), "F")],
    "numpy.diagonal": [(lambda t: NP.diagonal(t, offset=-1), "T")],
    "numpy.eig": [(NP.eig, "A")],
    "numpy.eigh": [(NP.eigh, "H"), (lambda a: NP.eigh(a, UPLO="U", symmetrize_input=False), "A")],
    "numpy.eigvals": [(NP.eigvals, "A")],
    "numpy.eigvalsh": [(NP.eigvalsh, "H")],
    "numpy.inv": [(NP.inv, "A")],
    "numpy.lstsq": [(NP.lstsq, "tC")],
    "numpy.matmul": [(NP.matmul, "AB")],
    "numpy.matrix_norm": [(lambda t, p=p: NP.matrix_norm(t, ord=p), "T") for p in ("fro", "nuc", 2, 1)],
    "numpy.matrix_power": [(lambda a: (NP.matrix_power(a, 3), NP.matrix_power(a, -2)), "A")],
    "numpy.matrix_rank": [(NP.matrix_rank, "T")],
    "numpy.matrix_transpose": [(NP.matrix_transpose, "T")],
    "numpy.multi_dot": [(lambda t, w, a: NP.multi_dot([w, t, a]), "twa")],
    "numpy.norm": [(NP.norm, "T"), (lambda t: NP.norm(t, 2, axis=(0, 2)), "T")],
    "numpy.outer": [(NP.outer, "vv")],
    "numpy.pinv": [(NP.pinv, "T"), (lambda h: NP.pinv(h, hermitian=True), "H")],
    "numpy.qr": [(lambda t, mode=mode: NP.qr(t, mode=mode), "T") for mode in ("reduced", "r", "raw")]
                + [(lambda t: NP.qr(t, mode="complete")[1], "T")],
    "numpy.slogdet": [(NP.slogdet, "A")],
    "numpy.solve": [(NP.solve, "AB")],
    "numpy.svd": [(lambda w: NP.svd(w, full_matrices=False), "W"), (lambda h: NP.svd(h, hermitian=True), "H")],
    "numpy.svdvals": [(NP.svdvals, "T")],
    "numpy.tensordot": [(lambda t, w: NP.tensordot(t, w, axes=1), "tw")],
    "numpy.tensorinv": [(lambda g: NP.tensorinv(g, ind=1), "G")],
    "numpy.tensorsolve": [(NP.tensorsolve, "Fd")],
    "numpy.trace": [(NP.trace, "T")],
    "numpy.vecdot": [(NP.vecdot, "TT")],
    "numpy.vector_norm": [(NP.vector_norm, "T")],
    "scipy.block_diag": [(SP.block_diag, "ab")],
    "scipy.cho_factor": [(lambda p, low=low: SP.cho_factor(p, low)[0], "p") for low in (False, True)],
    "scipy.cho_solve": [(lambda p, b, low=low: SP.cho_solve(SP.cho_factor(p, low), b), "pb") for low in (False, True)],
    "scipy.cholesky": [(lambda p, low=low: SP.cholesky(p, low), "P") for low in (False, True)],
    "scipy.circulant": [(SP.circulant, "v")],
    "scipy.companion": [(SP.companion, "v")],
    "scipy.convolution_matrix": [(lambda v: SP.convolution_matrix(v, 4), "v")],
    "scipy.det": [(SP.det, "A")],
    "scipy.dft": [(lambda a: SP.dft(3) + a, "a")],
    "scipy.eigh": [(SP.eigh, "H"), (lambda h: SP.eigh(h, eigvals_only=True), "H")],
    "scipy.eigh_tridiagonal": [
        (lambda v, d: SP.eigh_tridiagonal(v.real, d[0, :2].real, eigvals_only=True), "vd"),
        (lambda v, d: SP.eigh_tridiagonal(v.real, d[0, :2].real, eigvals_only=True, select="i", select_range=(0, 1)),
         "vd"),
    ],
    "scipy.expm": [(SP.expm, "A"), (lambda a: SP.expm(jnp.triu(a), upper_triangular=True), "a")],
    "scipy.expm_frechet": [(SP.expm_frechet, "ah")],
    "scipy.fiedler": [(SP.fiedler, "v")],
    "scipy.fiedler_companion": [(SP.fiedler_companion, "v")],
    "scipy.funm": [(lambda a: SP.funm(a.astype(complex), jnp.sin), "a")],
    "scipy.hadamard": [(lambda a: SP.hadamard(4)[:3, :3] + a, "a")],
    "scipy.hankel": [(lambda v, d: SP.hankel(v, d[0]), "vd")],
    "scipy.helmert": [(lambda a: SP.helmert(4) @ jnp.pad(a, 1)[:4], "a")],
    "scipy.hessenberg": [(SP.hessenberg, "A"), (lambda a: SP.hessenberg(a, calc_q=True), "A"), (SP.hessenberg, "F6")],
    "scipy.hilbert": [(lambda a: SP.hilbert(3) + a, "a")],
    "scipy.inv": [(SP.inv, "A")],
    "scipy.invhilbert": [(lambda a: SP.invhilbert(3) + a, "a")],
    "scipy.invpascal": [(lambda a: SP.invpascal(3) + a, "a")],
    "scipy.leslie": [(lambda v, d: SP.leslie(v, d[0, :2]), "vd")],
    "scipy.lu": [(SP.lu, "t"), (SP.lu, "w"), (lambda t: SP.lu(t, permute_l=True), "t")],
    "scipy.lu_factor": [(SP.lu_factor, "A")],
    "scipy.lu_solve": [(lambda a, b, k=k: SP.lu_solve(SP.lu_factor(a), b, trans=k), "ab") for k in (0, 1, 2)],
    "scipy.pascal": [(lambda a: SP.pascal(3).astype("float32") + a.astype("complex64"), "a")],
    "scipy.polar": [(SP.polar, "t"), (lambda w: SP.polar(w, side="left"), "w"),
                    (lambda t: SP.polar(t, method="svd"), "t")],
    "scipy.qr": [(lambda t: SP.qr(t, mode="economic"), "T"), (lambda t: SP.qr(t, mode="economic", pivoting=True), "T"),
                 (lambda w: SP.qr(w, pivoting=True), "W"), (lambda t: SP.qr(t, mode="r", pivoting=True), "t")],
    "scipy.qr_multiply": [(SP.qr_multiply, "tw"), (lambda t, c: SP.qr_multiply(t, c, mode="left"), "ta"),
                          (lambda t, w: SP.qr_multiply(t, w, mode="right", conjugate=True), "tw")],
    "scipy.rsf2csf": [(lambda a, p: SP.rsf2csf(jnp.triu(a), p), "ap")],
    "scipy.schur": [(lambda a: SP.schur(a, output="complex"), "a")],
    "scipy.solve": [(SP.solve, "AB"), (lambda p, b: SP.solve(p, b, assume_a="pos"), "pb")],
    "scipy.solve_sylvester": [(SP.solve_sylvester, "aph")],
    "scipy.solve_triangular": [(lambda a, b, k=k: SP.solve_triangular(a, b, trans=k, lower=k == 1, unit_diagonal=k > 0),
                                "ab") for k in (0, 1, 2)],
    "scipy.sqrtm": [(SP.sqrtm, "p"), (SP.sqrtm, "a")],
    "scipy.svd": [(lambda w: SP.svd(w, full_matrices=False), "W"), (lambda t: SP.svd(t, compute_uv=False), "T")],
    "scipy.toeplitz": [(lambda v, d: SP.toeplitz(v, d[0]), "vd"), (SP.toeplitz, "v")],
    "lax.cholesky": [(lambda a: LAX.cholesky(a, symmetrize_input=False), "P")],
    "lax.eig": [(lambda a: LAX.eig(a)[1:], "A")],
    "lax.hessenberg": [(LAX.hessenberg, "A")],
    "lax.householder_product": [(lambda t, v: LAX.householder_product(t, v), "tv")],
    "lax.lu": [(LAX.lu, "T")],
    "lax.ormqr": [(lambda t, v, c: LAX.ormqr(t, v, c, transpose=True), "tvC")],
    "lax.qdwh": [(lambda t: LAX.qdwh(t)[:2], "t")],
    "lax.triangular_solve": [
        (lambda a, b: LAX.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True, conjugate_a=True), "AB"),
        (lambda a, w: LAX.triangular_solve(a, w.mT, left_side=False, lower=False, unit_diagonal=True), "AW"),
    ],
    "lax.tridiagonal": [(LAX.tridiagonal, "H"), (LAX.tridiagonal, "A")],
    "lax.tridiagonal_solve": [
        (lambda d, v, b: LAX.tridiagonal_solve(jnp.pad(d[0, 1:], (1, 0)), v + 4, jnp.pad(d[1, :2], (0, 1)), b), "dvb")
    ],
}  # fmt: skip

Results = Sequence[np.ndarray]


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.conj(a.swapaxes(-1, -2))


def _lengths(*vectors: np.ndarray) -> np.ndarray:
    """Return what does not depend on phases and order: the sum of the projectors on eigenvectors."""
    return np.stack([v @ _adjoint(v) for v in vectors])


# Results with free signs, phases or order: the values in one order, and a matrix that the factors determine.
COMPOSED: dict[str, Callable[..., Results]] = {
    "numpy.eig": lambda w, v: [_sorted(w), (v * w[..., None, :]) @ np.linalg.inv(v)],
    "numpy.eigvals": lambda w: [_sorted(w)],
    "numpy.eigh": lambda w, v: [w, (v * w[..., None, :]) @ _adjoint(v)],
    "scipy.eigh": lambda w, v=None: [w] if v is None else [w, (v * w[..., None, :]) @ _adjoint(v)],
    "numpy.svd": lambda u, s, vh: [s, (u * s[..., None, :]) @ vh],
    "scipy.svd": lambda u, s=None, vh=None: [u] if s is None or vh is None else [s, (u * s[..., None, :]) @ vh],
    "scipy.schur": lambda t, z: [_sorted(np.diagonal(t)), np.tril(t, -1), z @ t @ _adjoint(z), z @ _adjoint(z)],
    "scipy.rsf2csf": lambda t, z: [_sorted(np.diagonal(t)), z @ t @ _adjoint(z)],
    "lax.eig": lambda left, right: [_lengths(left, right)],
}


def _sorted(values: Any) -> Any:
    """Return eigenvalues in one order. Their parts are rounded, so that the order does not depend on rounding."""
    order = np.lexsort((np.round(values.imag, 2), np.round(values.real, 2)))
    return np.take_along_axis(values, order, -1)


def test_all_functions_are_here() -> None:
    for module, prefix in ((NP, "numpy"), (SP, "scipy"), (LAX, "lax")):
        found = {n for n in dir(module) if n[0].islower() and not n.endswith("_p")}
        of_others = {"svd", "eigh", "qr", "schur", "lu_pivots_to_permutation", "cholesky_update", "symmetric_product"}
        names = {n.partition(".")[2] for n in CASES if n.startswith(prefix)}
        assert found - names - (of_others if prefix == "lax" else set()) == set()


@drawn("kind", list(TOLERANCES))
@pytest.mark.parametrize("name", CASES)
def test_results_are_jaxs(name: str, kind: str) -> None:
    operands = _operands(kind)
    operands["6"] = operands["F"].reshape(6, 6)
    for function, names in CASES[name]:
        arrays = [operands[n] for n in (["6"] if names == "F6" else names)]
        with jax.enable_x64(kind in ("float64", "complex128")):
            wanted = [np.asarray(r) for r in jax.tree.leaves(function(*arrays))]
            graph = rlx.from_jax(function, *arrays)
        found = rlx.evaluate(graph, {i.name: x for i, x in zip(graph.inputs, arrays, strict=True)})
        assert [(f.dtype, f.shape) for f in found] == [(w.dtype, w.shape) for w in wanted]
        tolerance = max([TOLERANCES.get(str(w.dtype), 0) for w in wanted] + [TOLERANCES[kind]])
        compose = COMPOSED.get(name, lambda *results: results)
        for ours, theirs in zip(compose(*found), compose(*wanted), strict=True):
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


REFUSED = {
    "schur": (SP.schur, "a", r"hint: jax.scipy.linalg.schur\(a, output='complex'\)"),
    "funm": (lambda a: SP.funm(a, jnp.sin), "a", "output='complex'"),
    "tridiagonal": (lambda h: LAX.tridiagonal(h, lower=False), "H", "lower=True"),
    "eigh_tridiagonal": (lambda v: SP.eigh_tridiagonal(v, v[:2]), "v", "hint: eigvals_only=True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name: str) -> None:
    function, names, message = REFUSED[name]
    with pytest.raises(rlx.UnsupportedError, match=message):
        rlx.from_jax(function, *(_operands("float32")[n] for n in names))


DERIVATIVES: dict[str, Case] = {
    "solve": (NP.solve, "ab"),
    "cholesky": (NP.cholesky, "p"),
    "eigh": (lambda a: NP.eigvalsh(a @ a.conj().T), "a"),
    "svd": (lambda t: NP.svd(t, full_matrices=False)[1], "t"),
    "qr": (NP.qr, "t"),
    "eigvals": (lambda p: jnp.sum(NP.eigvals(p) ** 2), "p"),
    "det": (NP.det, "P"),
    "expm": (SP.expm, "a"),
    "pinv": (NP.pinv, "t"),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_tangents_of_complex_matrices_are_jaxs(name: str) -> None:
    function, names = DERIVATIVES[name]
    arrays = [_operands("complex128")[n] for n in names]
    rng = np.random.default_rng(1)
    tangents = [rng.standard_normal(a.shape) + 1j * rng.standard_normal(a.shape) for a in arrays]
    if name == "cholesky":
        tangents = [t + t.conj().T for t in tangents]
    with jax.enable_x64(True):
        wanted = jax.tree.leaves(jax.jvp(function, arrays, tangents))
        graph = rlx.jvp(rlx.from_jax(function, *arrays), [f"arg{i}" for i in range(len(arrays))])
    found = rlx.evaluate(graph, dict(zip([i.name for i in graph.inputs], [*arrays, *tangents], strict=True)))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9 * max(1.0, float(np.abs(theirs).max())))
