"""Eigenvalues and eigenvectors of `eigsh`, judged by dense ones of NumPy and by SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as scipy_linalg

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import laplacian, laplacian_2d, neumann

RNG = np.random.default_rng(4)
KEYS = {"LM": np.abs, "SM": lambda w: -np.abs(w), "LA": lambda w: w, "SA": lambda w: -w}
ANY: Any = linalg  # for wrong calls


def random_symmetric(n: int, dtype: Any = np.float64) -> np.ndarray:
    a = scipy.sparse.random_array((n, n), density=0.1, rng=RNG).toarray()
    if np.dtype(dtype).kind == "c":
        a = a * np.exp(2j * np.pi * RNG.random(size=(n, n)))
    return (a + a.T.conj()).astype(dtype)


MATRICES = {
    "line": laplacian(60),
    "square": laplacian_2d(7),  # double eigenvalues
    "random": random_symmetric(50),
    "hermitian": random_symmetric(50, np.complex128),
    "negative": -laplacian(45),
    "singular": neumann(40),
    "zero": np.zeros((40, 40)),
    "identity": np.eye(45),
    "clusters": np.diag(np.r_[np.ones(4), 1 + 1e-9 * np.arange(3), np.linspace(2, 3, 33), 3 * np.ones(5)]),
    "null space": np.diag(np.r_[np.zeros(40), np.arange(5.0)]),
    "rows by one": laplacian(7),
    "two rows": np.array([[2.0, 1.0], [1.0, -3.0]]),
}


def solved(a: Any, k: int, which: str = "LM", container: bool = False, **options: Any) -> Any:
    """Return eigenvalues, vectors, iterations, norms of residuals and flags of the evaluator."""
    g: Any = rlx.Graph("eigsh")
    if container:
        sparse = scipy.sparse.csr_array(a)
        values = {"a": sparse.data}
        data = g.input("a", sparse.data.shape, dtype=sparse.data.dtype)
        matrix: Any = rlx.sparse.csr_array((data, sparse.indices, sparse.indptr), shape=a.shape)
    else:
        values, matrix = {"a": a}, g.input("a", a.shape, dtype=a.dtype)
    r = linalg.eigsh(matrix, k, which, **options)
    g.set_outputs([r.eigenvalues, r.eigenvectors, r.iterations, r.residual_norms, r.converged])
    return rlx.evaluate(g, values)


def expected(a: np.ndarray, k: int, which: str) -> np.ndarray:
    w = np.linalg.eigvalsh(a)
    return np.sort(w[np.argsort(-KEYS[which](w), kind="stable")[:k]])


@pytest.mark.parametrize("name", MATRICES)
def test_the_pairs_are_those_of_a_dense_matrix(name: str) -> None:
    exact = MATRICES[name]
    k, scale = min(6, len(exact) - 1), np.abs(exact).sum(0).max()
    for which in ("LM", "SA", "LA"):
        for wide in (True, False):
            kinds = (np.complex128, np.complex64) if exact.dtype.kind == "c" else (np.float64, np.float32)
            a = exact.astype(kinds[0] if wide else kinds[1])
            w, v, _, norms, converged = solved(a, k, which, container=wide)
            case, eps = f"{which} {a.dtype}", np.finfo(a.dtype).eps
            assert converged.all() and w.dtype == np.finfo(a.dtype).dtype and v.dtype == a.dtype, case
            np.testing.assert_allclose(w, expected(a, k, which), atol=50 * eps * scale + 1e-30, err_msg=case)
            left = a @ v - v * w
            assert np.abs(left).max() <= 100 * eps * scale + 1e-30, case
            np.testing.assert_allclose(norms, np.linalg.norm(left, axis=0), atol=20 * eps * scale + 1e-30)
            np.testing.assert_allclose(v.conj().T @ v, np.eye(k), atol=200 * eps)
            largest = v[np.abs(v).argmax(0), np.arange(k)]
            assert (largest.real > 0).all() and np.abs(largest.imag).max() <= 10 * eps, case


def test_the_smallest_magnitudes() -> None:
    w, _, _, _, converged = solved(MATRICES["null space"], 3, "SM")
    assert converged.all() and np.abs(w).max() < 1e-12
    a = np.diag(np.linspace(-3.2, 5, 40))
    w, _, _, _, converged = solved(a, 3, "SM")
    assert converged.all()
    np.testing.assert_allclose(w, expected(a, 3, "SM"), atol=1e-12)


def test_all_copies_of_a_multiple_eigenvalue() -> None:
    """A Krylov space has one vector of each eigenspace: five fold eigenvalues at the end that is asked for."""
    a = np.diag(np.r_[np.full(5, -1.0), np.linspace(0, 1, 195)])
    w, v, *_, converged = solved(a, 6, "SA", container=True)
    assert converged.all()
    np.testing.assert_allclose(w, np.r_[np.full(5, -1.0), 0.0], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(v[:5, :5], 2), 1.0)


def test_invariant_spaces_and_spectra_of_many_magnitudes() -> None:
    """The residual of a step is rounding noise, which needs a second pass to be orthogonal to the basis."""
    for n in (37, 45, 59):
        spectra = (
            np.r_[np.zeros(n // 2), RNG.normal(size=n - n // 2)],
            10.0 ** RNG.uniform(-12, 3, n) * RNG.choice([-1, 1], n),
            np.r_[np.ones(n - 3), 1e6 * RNG.normal(size=3)],
        )
        for values in spectra:
            q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
            for dtype in (np.float64, np.float32):
                a = ((q * values) @ q.T).astype(dtype)
                a = (a + a.T) / 2
                w, v, *_, converged = solved(a, 5, "SA")
                scale = np.finfo(dtype).eps * np.abs(values).max()
                assert converged.all()
                np.testing.assert_allclose(w, np.linalg.eigvalsh(a.astype(float))[:5], atol=100 * scale)
                np.testing.assert_allclose(v.T @ v, np.eye(5), atol=float(200 * np.finfo(dtype).eps))


def test_magnitudes_whose_squares_leave_the_range() -> None:
    for factor in (1e-30, 1e30):
        a = (laplacian(40) * factor).astype(np.float32)
        w, _, _, norms, converged = solved(a, 4, container=True)
        assert converged.all() and (norms > 0).any()
        np.testing.assert_allclose(w / factor, expected(laplacian(40), 4, "LM"), rtol=1e-5)


def test_failures_are_flagged() -> None:
    a = laplacian(200)
    w, v, iterations, norms, converged = solved(a, 4, "SA", container=True, maxiter=2)
    assert iterations == 2 and not converged.any() and np.isnan(w).all() and np.isnan(v).all()
    assert np.isfinite(norms).all() and norms.max() > 1e-6
    for bad in (np.nan, np.inf):
        for n in (40, 5):
            a = np.eye(n)
            a[1, 2] = a[2, 1] = bad
            w, v, *_, converged = solved(a, 3)
            assert np.isnan(w).all() and np.isnan(v).all() and not converged.any()


def test_a_tolerance_saves_iterations() -> None:
    exact, loose = (solved(laplacian(100), 4, "SA", container=True, tol=tol) for tol in (0, 1e-3))
    assert loose[4].all() and loose[2] < exact[2] and loose[3].max() <= 2e-3 * loose[0].max()
    np.testing.assert_allclose(loose[0], exact[0], rtol=1e-3)


def test_first_vectors() -> None:
    a = laplacian(40)
    vectors = np.linalg.eigh(a)[1]
    for v0 in (np.zeros(40), vectors[:, 20], np.full(40, 1e-200)):
        w, *_, converged = solved(a, 3, v0=v0)
        assert converged.all()
        np.testing.assert_allclose(w, expected(a, 3, "LM"), atol=1e-13)


def test_functions_in_jit_and_eagerly() -> None:
    a = laplacian(40) + np.diag(np.linspace(0, 1, 40))
    w, _ = scipy_linalg.eigsh(a, 3, which="SA")

    @rlx.jit
    def lowest(a: Any) -> Any:
        result = linalg.eigsh(lambda x: a @ x, 3, which="SA", v0=rlx.ops.ones((40,), dtype="f64"))
        w, v = result
        return w, v, result[0], result.converged

    values, v, same, converged = lowest(a)
    np.testing.assert_allclose(values, w, rtol=1e-10)
    np.testing.assert_array_equal(values, same)
    assert converged.all() and np.abs(a @ v - v * values).max() < 1e-13
    with rlx.eager():
        values, v = linalg.eigsh(scipy.sparse.csr_array(a), 3, "SA")
        np.testing.assert_allclose(values.numpy(), w, rtol=1e-10)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_eigenvalues_agree(device: str) -> None:
    a = scipy.sparse.csr_array(laplacian_2d(6).astype(np.float32))
    g: Any = rlx.Graph("eigsh")
    data = g.input("a", a.data.shape)
    r = linalg.eigsh(rlx.sparse.csr_array((data, a.indices, a.indptr), shape=a.shape), 4)
    g.set_outputs([r.eigenvalues, r.eigenvectors, r.converged])
    w, v, converged = rlx.Session(device).compile(g).run({"a": a.data})
    assert converged.all()
    np.testing.assert_allclose(w, expected(a.toarray(), 4, "LM"), rtol=1e-5)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda a, v: linalg.eigsh(a, 4), "k must be less than the 4 rows of A, got 4"),
        (lambda a, v: linalg.eigsh(a, 0), "k must be an integer from 1 on, got 0"),
        (lambda a, v: ANY.eigsh(a, 1.5), "k must be an integer"),
        (lambda a, v: linalg.eigsh(a, 2, "BE"), "which must be one of 'LA', 'LM', 'SA', 'SM', got 'BE'"),
        (lambda a, v: linalg.eigsh(a[:3], 2), r"A must be square, got \[3, 4\]"),
        (lambda a, v: linalg.eigsh(v, 2), "A must be a matrix"),
        (lambda a, v: linalg.eigsh(a, 2, v0=v[:3]), r"v0 must be a vector \[4\] to go with A"),
        (lambda a, v: linalg.eigsh(a, 2, v0=a), r"v0 must be a vector \[N\]"),
        (lambda a, v: linalg.eigsh(lambda x: a @ x, 2), "expected tensors of a graph"),
        (lambda a, v: linalg.eigsh(lambda x: x[:2], 2, v0=v), "expected a tensor like v0"),
        (lambda a, v: linalg.eigsh(a, 2, tol=-1), "tol must be a number from 0 on"),
        (lambda a, v: linalg.eigsh(a, 2, maxiter=0), "maxiter must be an integer from 1 on"),
        (lambda a, v: ANY.eigsh(a, 2, sigma=1.0), "sigma"),
    ],
)
def test_wrong_arguments_of_eigsh(call: Any, match: str) -> None:
    g = rlx.Graph("wrong")
    with pytest.raises(rlx.Error, match=match) as raised:
        call(g.input("a", (4, 4)), g.input("v", (4,)))
    assert "test_eigsh.py" in str(raised.value)


def test_a_function_needs_a_vector_and_a_matrix_its_size() -> None:
    with rlx.eager(), pytest.raises(rlx.Error, match="v0 is needed, because a function does not tell"):
        linalg.eigsh(lambda x: x, 2)
    g: Any = rlx.Graph("symbolic")
    with pytest.raises(rlx.Error, match="the number of rows of A must be known, got n"):
        linalg.eigsh(g.input("a", ("n", "n")), 2)
