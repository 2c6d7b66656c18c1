"""`eig` and `eigvals`, judged by their definition, NumPy and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(0)
DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def matrices(*dims: int, kind: str) -> np.ndarray:
    a = RNG.normal(size=dims)
    return (a + 1j * RNG.normal(size=dims) if kind.startswith("c") else a).astype(DTYPES[kind])


def graph(a: np.ndarray, name: str = "eig") -> rlx.Graph:
    g: Any = rlx.Graph(name)
    results = getattr(rlx.linalg, name)(g.param("a", a.shape, a.dtype))
    g.set_outputs(list(results) if name == "eig" else [results])
    return g


def check(a: np.ndarray, values: np.ndarray, vectors: np.ndarray, factor: float = 30.0) -> None:
    """Check the definition within a number of roundings of the norm, and the lengths and phases of the vectors."""
    eps = float(np.finfo(a.dtype).eps)
    assert values.dtype == vectors.dtype == np.result_type(a.dtype, np.complex64)
    norms = np.linalg.norm(a, axis=(-2, -1))
    left = np.abs(a @ vectors - vectors * values[..., None, :]).max(axis=(-2, -1), initial=0)
    assert (left <= factor * eps * norms + np.finfo(a.dtype).tiny).all(), left / np.where(norms > 0, norms, 1) / eps
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1, atol=100 * eps)
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=-2)[..., None, :], -2)
    np.testing.assert_allclose(np.imag(largest), 0, atol=10 * eps)
    assert (np.real(largest) > 0).all()


def assert_same_values(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Compare eigenvalues in any order: each one with the nearest that is left."""
    for ours, theirs in zip(found.reshape(-1, found.shape[-1]), expected.reshape(-1, expected.shape[-1]), strict=True):
        left = list(theirs)
        for value in ours:
            nearest = min(range(len(left)), key=lambda i: abs(left[i] - value))
            assert abs(left.pop(nearest) - value) <= tolerance


@pytest.mark.parametrize("kind", DTYPES)
def test_random_matrices(kind: str) -> None:
    for size in (1, 2, 3, 7, 24):
        a = matrices(2, size, size, kind=kind)
        values, vectors = rlx.evaluate(graph(a), {"a": a})
        check(a, values, vectors)
        assert_same_values(values, np.linalg.eigvals(a), 2e3 * float(np.finfo(a.dtype).eps) * size)


def special_matrices() -> np.ndarray:
    """Repeated, defective, zero, badly scaled and cyclic matrices, whose shifts need exceptions. The second is the cycle."""
    cycle = np.roll(np.eye(4), 1, axis=0)
    scaled = np.diag([1.0, 1e5, 1e-5, 1e3]) @ RNG.normal(size=(4, 4)) @ np.diag([1.0, 1e-5, 1e5, 1e-3])
    jordan = np.eye(4) * 2 + np.eye(4, k=1)
    cases = [np.zeros((4, 4)), cycle, np.eye(4), scaled, jordan, np.ones((4, 4)), np.triu(np.ones((4, 4)))]
    return np.stack([*cases, 1e150 * cycle, 1e-150 * cycle])


def test_special_matrices() -> None:
    a = special_matrices()
    values, vectors = rlx.evaluate(graph(a), {"a": a})
    check(a, values, vectors)
    assert_same_values(values[1:2], np.linalg.eigvals(a[1])[None], 1e-13)
    nan = np.array([[np.nan, 0], [0, 1.0]])
    assert all(np.isnan(r).all() for r in rlx.evaluate(graph(nan), {"a": nan}))


def test_empty_matrices() -> None:
    a = np.zeros((2, 0, 0))
    values, vectors = rlx.evaluate(graph(a), {"a": a})
    assert values.shape == (2, 0)
    assert vectors.shape == (2, 0, 0)


@pytest.mark.parametrize("kind", ["f64", "c128"])
def test_tangents_of_eigenvalues_are_those_of_jax(kind: str) -> None:
    """The sum of f(w) over eigenvalues does not depend on their order."""
    a, da = matrices(4, 4, kind=kind), matrices(4, 4, kind=kind)
    with jax.enable_x64(True):
        total = lambda x: jnp.sum(jnp.linalg.eigvals(x) ** 3)  # noqa: E731
        expected, moved = jax.jvp(total, (jnp.asarray(a),), (jnp.asarray(da),))
    g: Any = rlx.Graph("total")
    w = rlx.linalg.eigvals(g.param("a", a.shape, kind))
    g.set_outputs([g.sum(w * w * w)])
    pushed = rlx.jvp(g, "a")
    names = [argument.name for argument in pushed.arguments]
    results = rlx.evaluate(pushed, dict(zip(names, (a, da), strict=True)))
    np.testing.assert_allclose(results[0], expected, rtol=1e-9)
    np.testing.assert_allclose(results[1], moved, rtol=1e-8)


def test_projectors_have_derivatives() -> None:
    """`v·diag(f)·v⁻¹` is a function of the matrix: its derivative is judged by differences."""
    a, da = matrices(3, 3, kind="f64"), matrices(3, 3, kind="f64")
    g: Any = rlx.Graph("inverse")
    w, v = rlx.linalg.eig(g.param("a", a.shape, "f64"))
    g.set_outputs([g.real(g.matmul(v / g.expand_dims(w, -2), g.inv(v)))])  # the inverse of a
    pushed = rlx.jvp(g, "a")
    names = [argument.name for argument in pushed.arguments]
    value, moved = rlx.evaluate(pushed, dict(zip(names, (a, da), strict=True)))
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(value, inverse, rtol=1e-9)
    np.testing.assert_allclose(moved, -inverse @ da @ inverse, rtol=1e-7, atol=1e-9)


def test_defective_matrices_have_no_derivative() -> None:
    a = np.array([[2.0, 1.0], [0.0, 2.0]])
    pushed = rlx.jvp(graph(a, "eigvals"), "a")
    names = [argument.name for argument in pushed.arguments]
    assert np.isnan(rlx.evaluate(pushed, dict(zip(names, (a, np.eye(2)), strict=True)))[1]).all()


@pytest.mark.parametrize("lapack", ["auto", "off"])
@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_programs(device: str, lapack: Any) -> None:
    """By LAPACK and by the algorithm of the evaluator, which find eigenvalues in different orders."""
    without = np.stack([np.full((4, 4), np.nan), np.diag([1.0, np.inf, 2.0, 3.0])])
    kinds = DTYPES if lapack == "auto" else ["f64"]  # each of the other algorithm's programs takes long to compile
    arrays = {kind: matrices(2, 6, 6, kind=kind) for kind in kinds}
    arrays["special"] = np.concatenate([special_matrices(), without])
    if lapack == "auto":
        arrays["large"] = matrices(40, 40, kind="f64")
    g: Any = rlx.Graph("several")
    g.set_outputs([r for name, a in arrays.items() for r in rlx.linalg.eig(g.input(name, a.shape, a.dtype))])
    results = iter(rlx.Session(device).compile(g, lapack=lapack, cache=False).run(arrays))
    for name, a in arrays.items():
        values, vectors = next(results), next(results)
        if name == "special":
            assert all(np.isnan(r[-2:]).all() for r in (values, vectors))
            a, values, vectors = a[:-2], values[:-2], vectors[:-2]
        else:
            assert_same_values(values, np.linalg.eigvals(a), 2e3 * float(np.finfo(a.dtype).eps) * a.shape[-1])
        check(a, values, vectors)


@pytest.mark.parametrize("name", ["eigh", "svd", "eig"])
def test_empty_complex_matrices_have_derivatives(name: str) -> None:
    g: Any = rlx.Graph("empty")
    g.set_outputs(list(getattr(g, name)(g.param("a", (2, 0, 0), "c128"))))
    pushed = rlx.jvp(g, "a")
    empty = np.zeros((2, 0, 0), np.complex128)
    results = rlx.evaluate(pushed, dict.fromkeys([argument.name for argument in pushed.arguments], empty))
    assert all(r.size == 0 for r in results)
