"""Eigenvalues and eigenvectors of `lobpcg`, judged by dense ones of NumPy and by SciPy."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as scipy_linalg

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import laplacian, laplacian_2d, neumann

RNG = np.random.default_rng(6)
ANY: Any = linalg  # for wrong calls


def hermitian(n: int) -> np.ndarray:
    a = RNG.normal(size=(n, n)) + 1j * RNG.normal(size=(n, n))
    return a + a.conj().T


MATRICES = {
    "line": laplacian(50),
    "square": laplacian_2d(7),  # double eigenvalues
    "hermitian": hermitian(30),
    "negative": -laplacian(40),
    "singular": neumann(40),
    "zero": np.zeros((20, 20)),
    "identity": np.eye(20),
    "few rows": laplacian(6),
    "one row": np.array([[3.0]]),
}


def solved(a: Any, x: Any, m: Any = None, **options: Any) -> Any:
    """Return eigenvalues, vectors, iterations, norms of residuals and flags of the evaluator."""
    g: Any = rlx.Graph("lobpcg")
    r = linalg.lobpcg(g.input("a", a.shape, dtype=a.dtype), x, m, **options)
    g.set_outputs([r.eigenvalues, r.eigenvectors, r.iterations, r.residual_norms, r.converged])
    return rlx.evaluate(g, {"a": a})


def expected(a: np.ndarray, k: int, largest: bool) -> np.ndarray:
    w = np.linalg.eigvalsh(a)
    return w[::-1][:k] if largest else w[:k]


@pytest.mark.parametrize("name", MATRICES)
def test_the_pairs_are_those_of_a_dense_matrix(name: str) -> None:
    exact = MATRICES[name]
    k, scale = min(3, len(exact)), np.abs(exact).sum(0).max()
    x = RNG.normal(size=(len(exact), k))
    for largest in (True, False):
        for dtype in (np.float64, np.float32):
            a = exact.astype(np.result_type(dtype, np.complex64) if exact.dtype.kind == "c" else dtype)
            w, v, _, norms, converged = solved(a, x.astype(dtype), largest=largest, maxiter=200)
            case, eps = f"{largest} {a.dtype}", float(np.finfo(dtype).eps)
            assert converged.all() and w.dtype == dtype and v.dtype == a.dtype, case
            np.testing.assert_allclose(w, expected(a, k, largest), atol=50 * eps * scale + 1e-30, err_msg=case)
            assert (norms <= eps**0.5 * scale + 1e-30).all(), case
            np.testing.assert_allclose(norms, np.linalg.norm(a @ v - v * w, axis=0), atol=20 * eps * scale + 1e-30)
            np.testing.assert_allclose(v.conj().T @ v, np.eye(k), atol=50 * eps)
            if a.dtype.kind == "f":
                assert (v.max(0) + v.min(0) >= -10 * eps).all(), case


@pytest.mark.parametrize("largest", [True, False])
def test_as_many_iterations_as_scipy(largest: bool) -> None:
    a, x = laplacian_2d(10), RNG.normal(size=(100, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w, _, history = scipy_linalg.lobpcg(a, x, tol=1e-7, maxiter=200, largest=largest, retResidualNormsHistory=True)
    values, _, iterations, norms, converged = solved(a, x, tol=1e-7, maxiter=200, largest=largest)
    assert converged.all() and norms.max() <= 1e-7 and iterations <= 1.2 * len(history) + 2
    np.testing.assert_allclose(values, w, rtol=1e-10)


def test_preconditioners_in_all_forms() -> None:
    a = laplacian(60) + np.diag(np.linspace(0, 30, 60) ** 2)
    inverse, x = np.linalg.inv(a), RNG.normal(size=(60, 3))
    options: Any = {"largest": False, "maxiter": 100, "tol": 1e-9}
    plain = solved(a, x, **options)

    class Solver:
        def solve(self, r: Any) -> Any:
            return rlx.ops.matmul(inverse, r)

    for m in (inverse, scipy.sparse.csr_array(inverse), Solver().solve, Solver()):
        w, _, iterations, _, converged = solved(a, x, m, **options)
        assert converged.all() and iterations < plain[2]
        np.testing.assert_allclose(w, expected(a, 3, False), rtol=1e-10)


def test_guesses_at_the_edges() -> None:
    a = laplacian(30)
    v = np.linalg.eigh(a)[1]
    one = RNG.normal(size=(30, 1))
    guesses = (
        np.zeros((30, 3)),
        np.hstack([one, one, 2 * one]),
        np.hstack([v[:, :1], one, one]),
        v[:, :3] * [1e-200, 1, 1e200],
    )
    for x in guesses:
        w, vectors, *_, converged = solved(a, x, largest=False, maxiter=200)
        assert converged.all()
        np.testing.assert_allclose(w, expected(a, 3, False), atol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-13)
    *_, iterations, _, _ = solved(a, v[:, :3], largest=False)
    assert iterations == 0


def test_few_iterations_are_flagged() -> None:
    a, x = laplacian(200), RNG.normal(size=(200, 3))
    w, v, iterations, norms, converged = solved(a, x, largest=False)
    assert iterations == 20 and not converged.all() and np.isfinite(w).all()
    np.testing.assert_allclose(norms, np.linalg.norm(a @ v - v * w, axis=0), rtol=1e-9)
    np.testing.assert_allclose(w, np.diag(v.T @ a @ v), atol=1e-12)
    w, _, iterations, *_ = solved(a, x, maxiter=0)
    assert iterations == 0
    np.testing.assert_allclose(w[::-1], np.linalg.eigvalsh(np.linalg.qr(x)[0].T @ a @ np.linalg.qr(x)[0]))
    for n in (40, 5):
        bad = np.eye(n)
        bad[1, 1] = np.nan
        w, *_, converged = solved(bad, RNG.normal(size=(n, 2)))
        assert not converged.any() and np.isnan(w).all()


def test_block_magnitudes_whose_squares_leave_the_range() -> None:
    x = RNG.normal(size=(40, 2)).astype(np.float32)
    for factor in (1e-30, 1e30):
        w, *_, converged = solved((laplacian(40) * factor).astype(np.float32), x, maxiter=200)
        assert converged.all()
        np.testing.assert_allclose(w / factor, expected(laplacian(40), 2, True), rtol=1e-5)


def test_functions_and_derivatives() -> None:
    """The derivative of an eigenvalue with respect to a diagonal is the square of the vector."""
    a, diagonal, x = laplacian(40), np.linspace(0, 3, 40), RNG.normal(size=(40, 2))
    weights = RNG.normal(size=40)
    g: Any = rlx.Graph("potential")
    d = g.param("d", (40,), "f64")
    result = linalg.lobpcg(lambda v: g.matmul(a, v) + d * v, g.constant(x), tol=1e-12, maxiter=200, largest=False)
    w, v = result
    g.set_outputs({"y": w[1] + g.sum(v[:, 0] * weights)})
    (slope,) = rlx.evaluate(rlx.grad(g, ["d"]), {"d": diagonal})
    values, vectors = np.linalg.eigh(a + np.diag(diagonal))
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(40)])
    turn = (vectors.T @ weights)[1:] / (values[0] - values[1:])
    np.testing.assert_allclose(slope, vectors[:, 1] ** 2 + vectors[:, 1:] @ turn * vectors[:, 0], atol=1e-8)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_block_methods_agree(device: str) -> None:
    a = scipy.sparse.csr_array(laplacian_2d(5).astype(np.float32))
    g: Any = rlx.Graph("lobpcg")
    data = g.input("a", a.data.shape)
    matrix = rlx.sparse.csr_array((data, a.indices, a.indptr), shape=a.shape)
    r = linalg.lobpcg(matrix, RNG.normal(size=(25, 3)).astype(np.float32), linalg.jacobi(matrix), maxiter=60)
    g.set_outputs([r.eigenvalues, r.eigenvectors, r.converged])
    w, v, converged = rlx.Session(device).compile(g).run({"a": a.data})
    assert converged.all()
    np.testing.assert_allclose(w, expected(a.toarray(), 3, True), rtol=1e-5)
    np.testing.assert_allclose(a @ v, v * w, atol=5e-3)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda a, x: linalg.lobpcg(a, x[:, 0]), r"X must be a matrix \[N, K\]"),
        (lambda a, x: linalg.lobpcg(a, x[:3]), r"the columns of X must be a vector \[4\]"),
        (lambda a, x: linalg.lobpcg(a, x[:1]), r"X must be a matrix \[N, K\] of known sizes with 1 to N columns"),
        (lambda a, x: linalg.lobpcg(a[:3], x), r"A must be square, got \[3, 4\]"),
        (lambda a, x: linalg.lobpcg(a, x, a[:3, :3]), r"M must be a matrix \[4, 4\] as A is"),
        (lambda a, x: linalg.lobpcg(a, x, tol=-1.0), "tol must be a number from 0 on"),
        (lambda a, x: ANY.lobpcg(a, x, maxiter=None), "maxiter must be an integer"),
        (lambda a, x: ANY.lobpcg(a, x, largest="no"), "largest must be True or False"),
        (lambda a, x: linalg.lobpcg(lambda v: v[:2], x), "a tensor like"),
        (lambda a, x: ANY.lobpcg(a, x, B=a), "B"),
    ],
)
def test_wrong_arguments_of_lobpcg(call: Any, match: str) -> None:
    g = rlx.Graph("wrong")
    with pytest.raises(rlx.Error, match=match) as raised:
        call(g.input("a", (4, 4)), g.input("x", (4, 2)))
    assert "test_lobpcg.py" in str(raised.value)
