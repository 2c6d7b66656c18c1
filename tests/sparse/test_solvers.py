"""Iterative solvers of linear systems, judged by the true residual, SciPy and dense solutions."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import convection, laplacian, laplacian_2d, neumann, saddle

SYMMETRIC, GENERAL = ("cg", "minres"), ("bicgstab", "gmres")
METHODS = (*SYMMETRIC, *GENERAL)
RNG = np.random.default_rng(0)
ANY: Any = linalg  # for wrong calls


def solved(name, a, b, x0=None, **options):
    """Return `x, info, iterations, residual_norm, converged` of the evaluator."""
    g = rlx.Graph("solve")
    side = g.input("b", b.shape, dtype=b.dtype)
    matrix = g.input("a", a.shape, dtype=a.dtype) if isinstance(a, np.ndarray) else a
    values = {"b": b, "a": a} if isinstance(a, np.ndarray) else {"b": b}
    r = getattr(linalg, name)(matrix, side, x0, **options)
    g.set_outputs({"x": r.x, "info": r.info, "k": r.iterations, "norm": r.residual_norm, "ok": r.converged})
    return rlx.evaluate(g, values)


def systems(name):
    matrices = {"line": laplacian(24), "square": laplacian_2d(5), "one": np.array([[3.0]])}
    if name != "cg":
        matrices["saddle"] = saddle(12)
    if name in GENERAL:
        matrices["convection"] = convection(24)
    return matrices.items()


@pytest.mark.parametrize("dtype", ["f64", "c64"])
@pytest.mark.parametrize("name", METHODS)
def test_the_true_residual_is_small(name, dtype):
    kind = {"f64": np.float64, "f32": np.float32, "c64": np.complex64}[dtype]
    rtol = 1e-10 if dtype == "f64" else 1e-4
    for case, a in systems(name):
        b = RNG.normal(size=len(a))
        if dtype == "c64":
            phase = np.exp(1j * np.arange(len(a)))
            a, b = phase[:, None] * a * phase.conj(), b + 1j * b[::-1]  # still Hermitian where a is symmetric
        a, b = a.astype(kind), b.astype(kind)
        x, info, iterations, norm, converged = solved(
            name, a, b, rtol=rtol, **({"restart": 30} if name == "gmres" else {})
        )
        wide = np.complex128 if dtype == "c64" else np.float64
        left = np.linalg.norm(b.astype(wide) - a.astype(wide) @ x)
        assert x.dtype == kind, case
        assert converged, case
        assert info == 0, case
        assert left <= 1.1 * rtol * np.linalg.norm(b), case
        np.testing.assert_allclose(norm, left, atol=float(0.1 * rtol * np.linalg.norm(b)))
        assert 0 < iterations <= 4 * len(a), case


@pytest.mark.parametrize("name", METHODS)
def test_as_many_iterations_as_scipy(name):
    a = laplacian_2d(7) if name != "minres" else saddle(24)
    b, counted = RNG.normal(size=len(a)), []
    more = {"callback_type": "legacy"} if name == "gmres" else {}
    getattr(scipy_linalg, name)(a, b, rtol=1e-8, callback=lambda *_: counted.append(1), **more)
    iterations = solved(name, a, b, rtol=1e-8)[2]
    assert iterations <= len(counted) * (2.0 if name == "minres" else 1.2) + 2  # SciPy's minres tests another norm


@pytest.mark.parametrize("name", METHODS)
def test_sides_and_guesses_at_the_edges(name):
    a = laplacian(10)
    exact = RNG.normal(size=10)
    x, info, iterations, norm, converged = solved(name, a, np.zeros(10))
    assert (x == 0).all() and info == 0 and iterations == 0 and norm == 0 and converged
    x, info, iterations, _, converged = solved(name, a, a @ exact, exact)
    assert (x == exact).all() and info == 0 and iterations == 0 and converged
    x, info, *_, converged = solved(name, a, a @ exact, exact + 1.0, rtol=1e-10)
    np.testing.assert_allclose(x, exact, atol=1e-8)
    x, info, iterations, norm, converged = solved(name, laplacian(60), RNG.normal(size=60), maxiter=2, rtol=1e-12)
    assert info == iterations > 0 and not converged and np.isfinite(x).all() and norm > 0
    x, info, *_, converged = solved(name, a, np.full(10, 1e-30, np.float32).astype(np.float32), rtol=1e-4)
    assert converged and np.linalg.norm(a @ (x * 1e30) - 1.0) < 1e-3  # squares of 1e-30 are 0 in f32
    for bad in (np.nan, np.inf):
        x, info, *_, converged = solved(name, a, np.full(10, bad))
        assert info < 0 and not converged
    x, info, *_, converged = solved(name, a * np.nan, np.ones(10))
    assert info < 0 and not converged
    x, info, *_, converged = solved(name, np.zeros((4, 4)), np.ones(4))
    assert info < 0 and not converged and np.isfinite(x).all()


@pytest.mark.parametrize("name", METHODS)
def test_singular_systems(name):
    a = neumann(12)
    b = RNG.normal(size=12)
    x, info, *_, converged = solved(name, a, b - b.mean(), rtol=1e-8)
    assert converged and info == 0
    np.testing.assert_allclose(a @ x, b - b.mean(), atol=1e-6)
    x, info, _, norm, converged = solved(name, a, b, rtol=1e-8)
    assert info != 0 and not converged
    np.testing.assert_allclose(norm, np.linalg.norm(b - a @ x), rtol=1e-6)
    if name == "minres":
        np.testing.assert_allclose(norm, abs(b.mean()) * 12**0.5, rtol=1e-6)


def test_the_recursive_residual_is_not_believed():
    """A hard system in f32: the recursive residual becomes small, the true one stops above the tolerance."""
    n = 30
    q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    a = ((q * np.logspace(0, 6, n)) @ q.T).astype(np.float32)
    b = RNG.normal(size=n).astype(np.float32)
    for name in METHODS:
        x, _, _, norm, converged = solved(name, (a + a.T) / 2, b, rtol=1e-7, maxiter=200 if name != "gmres" else 10)
        true = np.linalg.norm(b - ((a + a.T) / 2).astype(np.float64) @ x)
        assert converged == (norm <= 1e-7 * np.linalg.norm(b)), name
        assert converged or true > 0.3 * norm, name
        assert not converged or true <= 1e-6 * np.linalg.norm(b), name


def test_preconditioners():
    a = laplacian(12) + np.diag(np.linspace(0, 1000, 12) ** 2)
    b = RNG.normal(size=12)

    class Solver:
        def solve(self, r):
            return r / np.diag(a)

    for name in METHODS:
        plain = solved(name, a, b, rtol=1e-10, maxiter=60)
        for m in (np.diag(1 / np.diag(a)), lambda r: r / np.diag(a), Solver()):
            x, _, iterations, *_, converged = solved(name, a, b, rtol=1e-10, M=m)
            assert converged and iterations < max(plain[2], 15), name
            np.testing.assert_allclose(a @ x, b, atol=1e-8)


def test_results_unpack_as_scipys_in_jit_and_eagerly():
    a, b = convection(9), RNG.normal(size=9)

    @rlx.jit
    def solve(a, b):
        result = linalg.gmres(lambda x: a @ x, b, rtol=1e-10)
        x, info = result
        return result, x, info

    result, x, info = solve(a, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b))
    np.testing.assert_array_equal(result.x, x)
    assert info == result.info == 0 and result.converged
    with rlx.eager():
        for name in GENERAL:
            x, info = getattr(linalg, name)(a, b, rtol=1e-10)
            np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b))
            assert info.item() == 0


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_programs_agree(device):
    g = rlx.Graph("all")
    n = 12
    a, u, b = g.input("a", (n, n)), g.input("u", (n, n)), g.input("b", (n,))
    results = [getattr(linalg, name)(a if name in SYMMETRIC else u, b, rtol=1e-5) for name in METHODS]
    g.set_outputs([t for r in results for t in (r.x, r.info, r.residual_norm)])
    values = {"a": laplacian(n), "u": convection(n), "b": RNG.normal(size=n)}
    values = {k: v.astype(np.float32) for k, v in values.items()}
    for i, (x, info, norm) in enumerate(zip(*[iter(rlx.Session(device).compile(g).run(values))] * 3, strict=True)):
        m = values["a" if METHODS[i] in SYMMETRIC else "u"]
        assert info == 0
        assert norm <= 1e-5 * np.linalg.norm(values["b"])
        np.testing.assert_allclose(m @ x, values["b"], atol=1e-4)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda a, b: linalg.cg(a[:3], b), r"A must be square, got \[3, 4\]"),
        (lambda a, b: linalg.cg(a, b[:3]), r"b must be a vector \[4\]"),
        (lambda a, b: linalg.cg(a, a), "rlx.vmap solves for several"),
        (lambda a, b: linalg.cg(b, b), "A must be a matrix"),
        (lambda a, b: linalg.cg("a", b), "A must be a matrix, a sparse matrix or a function"),
        (lambda a, b: linalg.cg(a, b, b[:2]), "x0 must be shaped like the solution"),
        (lambda a, b: linalg.cg(a, b, rtol=-1.0), "rtol must be a number from 0 on"),
        (lambda a, b: ANY.cg(a, b, maxiter=1.5), "maxiter must be an integer"),
        (lambda a, b: linalg.gmres(a, b, restart=0), "restart must be an integer from 1 on"),
        (lambda a, b: linalg.cg(lambda x: x[:2], b), "expected a tensor like b"),
        (lambda a, b: ANY.cg(a, b, tol=1.0), "tol"),
    ],
)
def test_wrong_arguments(call, match):
    g = rlx.Graph("wrong")
    with pytest.raises(rlx.Error, match=match) as raised:
        call(g.input("a", (4, 4)), g.input("b", (4,)))
    assert "test_solvers.py" in str(raised.value)
