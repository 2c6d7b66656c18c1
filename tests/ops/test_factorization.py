"""Factorisations: products of the factors, against NumPy and SciPy, for the evaluator and the decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx.ir.graph.evaluate import evaluate_decomposition
from rlx.ir.op import registry

SHAPES = [(1, 1), (2, 2), (5, 5), (2, 4, 4), (6, 3), (3, 6), (2, 3, 1, 4)]
# Matrices with equal or zero singular values or eigenvalues, with zero rows, or whose squares overflow or vanish.
HARD = {
    "zeros": np.zeros((3, 3)),
    "identity": np.eye(4),
    "ones": np.ones((4, 3)),
    "rank 1": np.outer([1, 2, 3], [1, -1, 1]),
    "exchanged": np.eye(3)[::-1].copy(),
    "large": np.array([[3, 1], [1, 2]]) * 1e30,
    "small": np.array([[3, 1], [1, 2]]) * 1e-30,
    "graded": np.diag([1e6, 1, 1e-6]) + 1e-7,
}


def _matrices() -> list[Any]:
    rng = np.random.default_rng(0)
    drawn = {str(shape): rng.standard_normal(shape) for shape in SHAPES}
    return [pytest.param(a, id=name) for name, a in (drawn | HARD).items()]


def _both(op: str, a: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Return the results of the evaluator and of the decomposition."""
    card = registry.load()[op]
    found = [card.evaluate(a), evaluate_decomposition(card, (a,), {})]
    return [f if isinstance(f, tuple) else (f,) for f in found]


def _near(found: np.ndarray, wanted: np.ndarray, times: float = 1) -> None:
    """Check that the difference is within f32 rounding relative to the largest element."""
    largest = float(np.max(np.abs(wanted), initial=0)) or 1.0
    np.testing.assert_allclose(found / largest, wanted / largest, rtol=0, atol=times * 2e-6)


def _orthonormal(q: np.ndarray) -> None:
    _near(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])))


@pytest.mark.parametrize("a", _matrices())
def test_qr(a: np.ndarray) -> None:
    a = a.astype(np.float32)
    for q, r in _both("qr", a):
        _orthonormal(q)
        _near(q.astype(np.float64) @ r, a)
        assert not np.tril(r, -1).any()
    if np.linalg.matrix_rank(a).min() == min(a.shape[-2:]):  # then the factors are unique with these signs
        _near(q, np.linalg.qr(a.astype(np.float64))[0], 5)


@pytest.mark.parametrize("a", _matrices())
def test_svd(a: np.ndarray) -> None:
    a = a.astype(np.float32)
    for u, s, vt in _both("svd", a):
        _orthonormal(u)
        _orthonormal(np.swapaxes(vt, -1, -2))
        _near(u.astype(np.float64) * s[..., None, :] @ vt, a)
        _near(s, np.linalg.svd(a.astype(np.float64), compute_uv=False))
        assert (u.max(-2) + u.min(-2) >= -1e-6).all()


@pytest.mark.parametrize("a", [p for p in _matrices() if p.values[0].shape[-1] == p.values[0].shape[-2]])
def test_eigh(a: np.ndarray) -> None:
    lower = (np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)).astype(np.float32)
    for values, vectors in _both("eigh", a.astype(np.float32)):
        _orthonormal(vectors)
        _near(vectors.astype(np.float64) * values[..., None, :] @ np.swapaxes(vectors, -1, -2), lower)
        _near(values, np.linalg.eigvalsh(lower.astype(np.float64)))
        assert (vectors.max(-2) + vectors.min(-2) >= -1e-6).all()


@pytest.mark.parametrize("a", _matrices())
def test_lu(a: np.ndarray) -> None:
    a = a.astype(np.float32)
    for packed, pivots, order in _both("lu", a):
        rows, columns = a.shape[-2:]
        inner = min(rows, columns)
        factors = packed.astype(np.float64)
        lower = np.tril(factors, -1)[..., :inner] + np.eye(rows, inner)
        _near(lower @ np.triu(factors)[..., :inner, :], np.take_along_axis(a, order[..., None], -2))
        exchanged = np.arange(rows)
        for step, row in enumerate(pivots.reshape(-1, inner)[0]):
            exchanged[[step, row]] = exchanged[[row, step]]
        np.testing.assert_array_equal(exchanged, order.reshape(-1, rows)[0])


def test_cholesky_and_triangular_systems() -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((2, 5, 5))
    a = (a @ np.swapaxes(a, -1, -2) + np.eye(5)).astype(np.float32)
    for (factor,) in _both("cholesky", a):
        _near(factor, np.linalg.cholesky(a.astype(np.float64)))
    wrong = a.copy()
    wrong[0, 2, 2] = -1
    for (factor,) in _both("cholesky", wrong):
        assert np.isfinite(factor[0, :, :2]).all() and np.isnan(factor[0, 2:, 2:][np.tril_indices(3)]).all()
        _near(factor[1], np.linalg.cholesky(a[1].astype(np.float64)))
    b = rng.standard_normal((2, 5, 3)).astype(np.float32)
    card = registry.load()["triangular_solve"]
    for lower in (True, False):
        for unit in (True, False):
            given = {"lower": lower, "unit_diagonal": unit}
            wanted = [
                scipy.linalg.solve_triangular(m, x, lower=lower, unit_diagonal=unit) for m, x in zip(a, b, strict=True)
            ]
            _near(card.evaluate(a, b, **given), np.array(wanted), 5)
            _near(evaluate_decomposition(card, (a, b), given), np.array(wanted), 20)


@pytest.mark.parametrize("op", ["cholesky", "lu", "qr", "eigh", "svd"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_factors_of_what_is_not_finite_are_nan(op: str, value: float) -> None:
    a = np.tile(np.eye(3, dtype=np.float32), (2, 1, 1))
    a[0, 1, 0] = value
    for factors in _both(op, a):
        for factor in factors:
            if factor.dtype.kind == "f":
                assert np.isnan(factor[0]).all() and np.isfinite(factor[1]).all()


@pytest.mark.parametrize("scale", [1e-37, 1e-25, 1e-15, 1e19, 1e36])
@pytest.mark.parametrize("op", ["cholesky", "eigh", "lu", "qr", "svd"])
def test_factors_of_any_magnitude(op: str, scale: float) -> None:
    """The relative error in f32 equals that of a matrix of magnitude 1, although squares overflow or vanish."""
    rng = np.random.default_rng(6)
    full = rng.standard_normal((5, 5))
    for a in [full @ full.T + np.eye(5)] if op == "cholesky" else [full, np.outer(full[0], full[0])]:
        given = (a * scale).astype(np.float32)
        whole = given / scale
        found = evaluate_decomposition(registry.load()[op], (given,), {})
        first, *rest = [f.astype(np.float64) for f in (found if isinstance(found, tuple) else (found,))]
        if op == "cholesky":
            _near(first @ first.T / scale, whole)
        elif op == "eigh":
            _near(rest[0] * (first / scale) @ rest[0].T, np.tril(whole) + np.tril(whole, -1).T)
        elif op == "lu":
            _near((np.tril(first, -1) + np.eye(5)) @ (np.triu(first) / scale), whole[rest[1].astype(int)])
        elif op == "qr":
            _near(first @ (rest[0] / scale), whole)
        else:
            _near(first * (rest[0] / scale) @ rest[1], whole)


A, TALL = np.random.default_rng(2).standard_normal((2, 4, 4)), np.random.default_rng(3).standard_normal((5, 3))
RIGHT = A[0, :, :2]
ORDERS: tuple[Any, ...] = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lambda g, a, b: g.solve(a, b), np.linalg.solve, (A, RIGHT)),
    "solve of a vector": (lambda g, a, b: g.solve(a, b), np.linalg.solve, (A, A[0, 0])),
    "inv": (lambda g, a: g.inv(a), np.linalg.inv, (A,)),
    "det": (lambda g, a: g.det(a), np.linalg.det, (A,)),
    "slogdet": (lambda g, a: g.slogdet(a), np.linalg.slogdet, (A,)),
    "det of a singular one": (lambda g, a: g.det(a), np.linalg.det, (np.ones((3, 3)),)),
    "eigvalsh": (lambda g, a: g.eigvalsh(a), np.linalg.eigvalsh, (A,)),
    "pinv": (lambda g, a: g.pinv(a), np.linalg.pinv, (TALL,)),
    "pinv of rank 1": (lambda g, a: g.pinv(a), np.linalg.pinv, (HARD["rank 1"],)),
    "matrix_rank": (lambda g, a: g.matrix_rank(a), np.linalg.matrix_rank, (np.stack([HARD["rank 1"], np.eye(3)]),)),
    "lstsq": (lambda g, a, b: g.lstsq(a, b), np.linalg.lstsq, (TALL, A[0, 0, [0, 1, 2, 3, 0]])),
    "lstsq, wide": (lambda g, a, b: g.lstsq(a, b), np.linalg.lstsq, (TALL.T, TALL.T[:, :2])),
    "cond": (lambda g, a: g.cond(a), np.linalg.cond, (TALL,)),
    "matrix_exp": (lambda g, a: g.matrix_exp(a), scipy.linalg.expm, (A,)),
    "matrix_exp of a large one": (lambda g, a: g.matrix_exp(a), scipy.linalg.expm, (A * 7,)),
    **{f"power {n}": (lambda g, a, n=n: g.matrix_power(a, n), lambda a, n=n: np.linalg.matrix_power(a, n), (A,))
       for n in (0, 1, 3, -2)},
    **{f"norm {o}": (lambda g, a, o=o: g.matrix_norm(a, o, True),
                     lambda a, o=o: np.linalg.matrix_norm(a, ord=o, keepdims=True), (A,))
       for o in ORDERS},
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_numpys(name: str) -> None:
    function, wanted, given = FUNCTIONS[name]
    g = rlx.Graph()
    results = function(g, *(g.input(f"x{n}", a.shape, "f64") for n, a in enumerate(given)))
    g.set_outputs(list(results) if isinstance(results, tuple) else [results])
    found = rlx.evaluate(g, {f"x{n}": np.asarray(a, np.float64) for n, a in enumerate(given)})
    expected = wanted(*given)
    for ours, theirs in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 2), (3, 0)])
def test_full_factors(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(4).standard_normal(shape)
    g = rlx.Graph()
    x = g.input("x", shape, "f64")
    g.set_outputs([*g.qr(x, full_matrices=True), *g.svd(x)])
    q, r, u, s, vt = rlx.evaluate(g, {"x": a})
    for square in (q, u, vt):
        assert square.shape[-1] == square.shape[-2]
        _orthonormal(square)
    inner = min(shape[-2:])
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(u[..., :inner] * s[..., None, :] @ vt[..., :inner, :], a, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.eigh(x), "expected square matrices"),
        (lambda g, x: g.svd(g.sum(x)), "expected matrices"),
        (lambda g, x: g.qr(g.input("n", ("n", 3))), "must be numbers"),
        (lambda g, x: g.solve(g.matmul(x, g.transpose(x)), g.zeros((4,), "f32")), "expected a right-hand side"),
        (lambda g, x: g.triangular_solve(g.matmul(x, g.transpose(x)), g.zeros((4, 1), "f32")), "expected b"),
        (lambda g, x: g.householder_product(x, g.zeros((9,), "f32")), "expected a"),
        (lambda g, x: g.matrix_norm(x, "other"), "is no norm"),
        (lambda g, x: g.lstsq(x, g.zeros((9,), "f32")), "expected a right-hand side"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    g = rlx.Graph()
    with pytest.raises(rlx.Error, match=message):
        call(g, g.input("x", (5, 3)))
