"""Derivatives of `eigsh`, judged by those of dense matrices of JAX and by formulas."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import laplacian, laplacian_2d

RNG = np.random.default_rng(5)


def dense_with(values: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """Return a matrix with these eigenvalues."""
    n = len(values)
    q = RNG.normal(size=(n, n)) + (1j * RNG.normal(size=(n, n)) if np.dtype(dtype).kind == "c" else 0)
    q = np.linalg.qr(q)[0]
    a = (q * values) @ q.T.conj()
    return ((a + a.T.conj()) / 2).astype(dtype)


def loss_of(ops: Any, w: Any, v: Any, weights: np.ndarray) -> Any:
    """Depends on values and vectors, with their signs."""
    return ops.sum(v * v * v * weights) + ops.sum(w * w * w)


def graph_of(n: int, weights: np.ndarray, *, dense: bool) -> Any:
    k, g = weights.shape[1], rlx.Graph("eigen")
    a: Any = g.input("a", (n, n), "f64")
    m = (a + g.transpose(a)) * 0.5
    if dense:
        w, v = g.eigh(m)
        w, v = w[:k], v[:, :k]
    else:
        w, v = linalg.eigsh(m, k, "SA")
    g.set_outputs({"y": loss_of(g, w, v, weights)})
    return g


@pytest.mark.parametrize("n", [40, 6])  # Lanczos' method, and a dense matrix
def test_derivatives_are_those_of_eigh(n: int) -> None:
    a, tangent, weights = (
        dense_with(np.linspace(-2, 3, n) ** 3),
        RNG.normal(size=(n, n)),
        RNG.normal(size=(n, 3)),
    )
    own = graph_of(n, weights, dense=False)

    def reference(a: Any) -> Any:
        w, v = jax.numpy.linalg.eigh((a + a.T) / 2)
        w, v = w[:3], v[:, :3]
        v = v * jax.lax.stop_gradient(jax.numpy.sign(v.max(0) + v.min(0)))
        return loss_of(jax.numpy, w, v, weights)

    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(reference)(a)
        _, along = jax.jvp(reference, (a,), (tangent,))
        _, second = jax.jvp(jax.grad(reference), (a,), (tangent,))
    (found,) = rlx.evaluate(rlx.grad(own, ["a"]), {"a": a})
    np.testing.assert_allclose(found, slope, atol=1e-9)
    forward = rlx.evaluate(rlx.jvp(own, ["a"]), {"a": a, "tangent_a": tangent})
    np.testing.assert_allclose(forward[0], value, atol=1e-10)
    np.testing.assert_allclose(forward[1], along, rtol=1e-9)
    twice = rlx.jvp(rlx.grad(own, ["a"]), ["a"])
    found, moved = rlx.evaluate(twice, {"a": a, "tangent_a": tangent})
    np.testing.assert_allclose(moved, second, atol=1e-7 * np.abs(second).max())


def test_batches_and_second_derivatives() -> None:
    n, weights = 6, RNG.normal(size=(6, 2))
    own, dense = (graph_of(n, weights, dense=d) for d in (False, True))
    stacked = np.stack([dense_with(np.arange(6.0)), dense_with(np.arange(6.0) ** 2 - 7)])
    for transform in (
        lambda q: rlx.vmap(rlx.grad(q, ["a"]), {"a": 0}, size=2),
        lambda q: rlx.vmap(rlx.hessian(q, ["a"]), {"a": 0}, size=2),
    ):
        found, expected = (rlx.evaluate(transform(q), {"a": stacked})[0] for q in (own, dense))
        np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


def test_hermitian_matrices_of_real_tensors() -> None:
    """`A(x) = A₀ + x₀·A₁ + x₁·A₂`, Hermitian for all x; the phases of vectors count."""
    for n in (36, 7):
        moves = RNG.normal(size=(2, n, n)) + 1j * RNG.normal(size=(2, n, n))
        parts = [dense_with(np.linspace(-2, 3, n), np.complex128), *((m + m.T.conj()) / n for m in moves)]
        weights = RNG.normal(size=(n, 3)) + 1j * RNG.normal(size=(n, 3))

        def build(n: int = n, parts: Any = parts, weights: Any = weights, *, dense: bool) -> Any:
            g: Any = rlx.Graph("hermitian")
            x = g.param("x", (2,), "f64")
            m = parts[0] + g.cast(x[0], "c128") * parts[1] + g.cast(x[1], "c128") * parts[2]
            w, v = g.eigh(m) if dense else linalg.eigsh(m, 3, "LA")
            w, v = w[-3:], v[:, -3:]
            g.set_outputs({"y": g.sum(g.real(v * v * weights)) + g.sum(w * w)})
            return g

        x = {"x": np.array([0.3, -0.2])}
        for transform in (
            lambda q: rlx.grad(q, ["x"]),
            lambda q: rlx.hessian(q, ["x"]),
            lambda q: rlx.jacfwd(q, ["x"]),
        ):
            found, expected = (rlx.evaluate(transform(build(dense=d)), x)[0] for d in (False, True))
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr"])
def test_derivatives_to_the_entries_of_containers(format: str) -> None:
    """The derivative of an eigenvalue to the entry (i, j) is `v[i]·v[j]`."""
    a = scipy.sparse.csr_array(laplacian(40) + np.diag(np.linspace(0, 3, 40))).asformat(format)
    container = rlx.sparse.from_scipy(a)
    g: Any = rlx.Graph("entries")
    data = g.param("data", container.data.shape, "f64")
    w, v = linalg.eigsh(container.with_data(data), 2, "SA")
    g.set_outputs({"w": w[1]})
    (slope,) = rlx.evaluate(rlx.grad(g, "data"), {"data": container.data})
    v = np.linalg.eigh(a.toarray())[1][:, 1]
    expected = container.with_data(slope).toarray()
    np.testing.assert_allclose(expected, np.where(a.toarray() != 0, np.outer(v, v), 0.0), atol=1e-9)


def slopes(a: np.ndarray, k: int, function: Any, which: str = "SA") -> np.ndarray:
    g: Any = rlx.Graph("degenerate")
    x = g.param("a", a.shape, "f64")
    w, v = linalg.eigsh((x + g.transpose(x)) * 0.5, k, which)
    g.set_outputs({"y": function(g, w, v)})
    return rlx.evaluate(rlx.grad(g, ["a"]), {"a": a})[0]


@pytest.mark.parametrize("n", [6, 3])  # Lanczos' method, and a dense matrix
def test_equal_eigenvalues(n: int) -> None:
    """The second and the third eigenvalue of a square are equal: vectors 1 and 2 are any basis of their space."""
    a, weights = laplacian_2d(n), RNG.normal(size=(n * n, n * n))
    weights = weights + weights.T
    w, v = np.linalg.eigh(a)

    def projector(g: Any, w: Any, v: Any) -> Any:
        return g.sum(g.matmul(v[:, 1:3], g.transpose(v[:, 1:3])) * weights)

    found = slopes(a, 3, projector)
    inside, outside = v[:, 1:3], np.delete(v, [1, 2], axis=1)
    gaps = w[1:3][:, None] - np.delete(w, [1, 2])
    turn = (inside.T @ weights @ outside) / gaps
    expected = inside @ turn @ outside.T
    np.testing.assert_allclose(found, expected + expected.T, atol=1e-8)
    np.testing.assert_allclose(slopes(a, 3, lambda g, w, v: g.sum(w)), v[:, :3] @ v[:, :3].T, atol=1e-10)
    assert np.isnan(slopes(a, 3, lambda g, w, v: g.sum(v[:, 1] * weights[0]))).all()
    assert np.isnan(slopes(a, 2, lambda g, w, v: g.sum(v[:, 1] * weights[0]))).all()  # the other one is not computed
    first = slopes(a, 2, lambda g, w, v: g.sum(v[:, 0] * weights[0]))
    assert np.isfinite(first).all()


def test_pairs_that_have_not_converged_have_no_derivatives() -> None:
    g: Any = rlx.Graph("few")
    x = g.param("a", (80, 80), "f64")
    g.set_outputs({"y": linalg.eigsh(x, 3, "SA", maxiter=1).eigenvalues[0]})
    assert np.isnan(rlx.evaluate(rlx.grad(g, ["a"]), {"a": laplacian(80)})[0]).any()


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_derivatives_agree(device: str) -> None:
    weights = RNG.normal(size=(6, 2))
    q = rlx.grad(graph_of(6, weights, dense=False), ["a"])
    a = {"a": dense_with(np.arange(6.0))}
    (found,), (expected,) = rlx.Session(device).compile(q).run(a), rlx.evaluate(q, a)
    np.testing.assert_allclose(found, expected, atol=1e-9)
