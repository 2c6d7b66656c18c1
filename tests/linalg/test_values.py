"""Functions of `rlx.linalg` against NumPy and SciPy, on the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx import linalg
from tests.linalg.cases import (
    BATCH,
    EQUAL,
    POSITIVE,
    POSITIVES,
    RANK_2,
    SQUARE,
    TALL,
    WIDE,
    agree,
    evaluated,
    graph_of,
    normal,
)

NUMPY: Any = np.linalg
SCIPY: Any = scipy.linalg
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]
INF = np.inf
ORDERS: tuple[Any, ...] = (None, "fro", "nuc", 1, -1, 2, -2, INF, -INF)
ONE, NONE = np.array([[2.0]]), np.zeros((0, 0))
CUBE = normal(2, 3, 4)


def _lu(a: np.ndarray, permute_l: bool = False) -> Any:
    return SCIPY.lu(a, permute_l=permute_l)


CASES: dict[str, Case] = {
    **{f"cholesky {u} {a.shape}": (lambda a, u=u: linalg.cholesky(a, upper=u),
                                   lambda a, u=u: NUMPY.cholesky(a, upper=u), (a,))
       for u in (False, True) for a in (POSITIVE, POSITIVES, ONE, NONE, SQUARE + 9 * np.eye(4))},
    "qr r": (lambda a: linalg.qr(a, "r"), lambda a: NUMPY.qr(a, "r"), (TALL,)),
    **{f"qr {m} {a.shape}": (lambda a, m=m: linalg.qr(a, mode=m), lambda a, m=m: NUMPY.qr(a, m), (a,))
       for m in ("reduced", "complete") for a in (TALL, WIDE, ONE)},
    "svd values": (lambda a: linalg.svd(a, compute_uv=False), NUMPY.svdvals, (TALL,)),
    "svdvals": (linalg.svdvals, NUMPY.svdvals, (BATCH,)),
    **{f"eigvalsh {u}": (lambda a, u=u: (linalg.eigvalsh(a, UPLO=u), linalg.eigh(a, u).eigenvalues),
                         lambda a, u=u: (NUMPY.eigvalsh(a, u),) * 2, (BATCH,)) for u in "LU"},
    "eigvalsh of two": (linalg.eigvalsh, lambda a, b: SCIPY.eigh(a, b, eigvals_only=True), (SQUARE, POSITIVE)),
    "solve": (linalg.solve, NUMPY.solve, (SQUARE, normal(2, 4, 3))),
    "solve a vector": (lambda a, b: linalg.solve(a, b=b), NUMPY.solve, (BATCH, normal(3))),
    "inv": (linalg.inv, NUMPY.inv, (BATCH,)),
    "inv of none": (linalg.inv, NUMPY.inv, (NONE,)),
    **{f"pinv {a.shape}": (linalg.pinv, NUMPY.pinv, (a,)) for a in (TALL, WIDE, RANK_2, np.zeros((3, 0)))},
    "pinv rtol": (lambda a: linalg.pinv(a, 0.3), lambda a: NUMPY.pinv(a, rtol=0.3), (WIDE,)),
    "pinv hermitian": (lambda a: linalg.pinv(a, hermitian=True), lambda a: NUMPY.pinv(a, hermitian=True),
                       (np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, -2]]),)),
    **{f"lstsq {a.shape} {b.shape}": (lambda a, b: linalg.lstsq(a, b), NUMPY.lstsq, (a, b))
       for a, b in ((TALL, normal(5)), (TALL, normal(5, 2)), (WIDE, normal(3)), (WIDE, normal(3, 2)))},
    "lstsq of rank 2": (lambda a, b: [linalg.lstsq(a, b)[i] for i in (0, 2, 3)],
                        lambda a, b: [NUMPY.lstsq(a, b)[i] for i in (0, 2, 3)], (RANK_2, normal(5, 2))),
    "lstsq rcond": (lambda a, b: [linalg.lstsq(a, b, rcond=0.5)[i] for i in (0, 2, 3)],
                    lambda a, b: [NUMPY.lstsq(a, b, rcond=0.5)[i] for i in (0, 2, 3)], (TALL, normal(5, 2))),
    **{f"det {a.shape}": (lambda a: (linalg.det(a), linalg.slogdet(a)),
                          lambda a: (NUMPY.det(a), NUMPY.slogdet(a)), (a,)) for a in (BATCH, ONE, NONE)},
    "logdet": (linalg.logdet, lambda a: NUMPY.slogdet(a)[1], (POSITIVES,)),
    "logdet of others": (linalg.logdet, lambda a: np.array([np.nan, -INF]),
                         (np.array([[[0.0, 1], [1, 0]], [[1, 1], [1, 1]]]),)),
    **{f"power {n}": (lambda a, n=n: linalg.matrix_power(a, n), lambda a, n=n: NUMPY.matrix_power(a, n), (BATCH,))
       for n in (-2, 0, 1, 5)},
    "rank": (linalg.matrix_rank, NUMPY.matrix_rank, (np.stack([RANK_2, normal(5, 4), np.zeros((5, 4))]),)),
    "rank rtol": (lambda a: linalg.matrix_rank(a, rtol=0.5), lambda a: NUMPY.matrix_rank(a, rtol=0.5), (TALL,)),
    **{f"cond {p}": (lambda a, p=p: linalg.cond(a, p), lambda a, p=p: NUMPY.cond(a, p), (BATCH,)) for p in ORDERS},
    **{f"cond {p} of a singular one": (lambda a, p=p: linalg.cond(a, p), lambda a: np.array(INF), (np.zeros((3, 3)),))
       for p in ORDERS if p not in (-2, "nuc")},
    "cond of a tall one": (linalg.cond, NUMPY.cond, (TALL,)),
    **{f"norm {o} {x}": (lambda a, o=o, x=x: linalg.norm(a, o, x), lambda a, o=o, x=x: NUMPY.norm(a, o, x), (CUBE,))
       for o in ORDERS for x in ((0, 2), (-1, 1))},
    **{f"norm {o} of vectors": (lambda a, o=o: linalg.norm(a, o, 1, True),
                                lambda a, o=o: NUMPY.norm(a, o, 1, keepdims=True), (CUBE,))
       for o in (None, 0, 1, 2, 3, -1, 0.5, INF, -INF)},
    "norms of all": (lambda a, b, c: (linalg.norm(a), linalg.norm(b, 1), linalg.norm(c, 1), linalg.norm(b, keepdims=True)),
                     lambda a, b, c: (NUMPY.norm(a), NUMPY.norm(b, 1), NUMPY.norm(c, 1),
                                      NUMPY.norm(b, keepdims=True)), (CUBE, TALL, CUBE[0, 0])),
    **{f"vector_norm {o}": (lambda a, o=o: linalg.vector_norm(a, axis=(0, 2), ord=o),
                            lambda a, o=o: NUMPY.vector_norm(a, axis=(0, 2), ord=o), (CUBE,)) for o in (1, 2, INF)},
    "matrix_norm": (lambda a: linalg.matrix_norm(a, ord=1, keepdims=True),
                    lambda a: NUMPY.matrix_norm(a, ord=1, keepdims=True), (CUBE,)),
    "multi_dot": (lambda *a: linalg.multi_dot(a), lambda *a: NUMPY.multi_dot(a), (normal(3), WIDE, TALL, WIDE)),
    "multi_dot of vectors": (lambda *a: linalg.multi_dot(a), lambda *a: NUMPY.multi_dot(a),
                             (normal(3), WIDE, normal(5))),
    "kron": (linalg.kron, np.kron, (TALL, WIDE)),
    "outer": (linalg.outer, NUMPY.outer, (CUBE[0, 0], CUBE[0, 1])),
    "cross": (linalg.cross, NUMPY.cross, (BATCH, BATCH[::-1])),
    "trace": (lambda a: (linalg.trace(a, offset=1), linalg.diagonal(a, offset=-1)),
              lambda a: (NUMPY.trace(a, offset=1), NUMPY.diagonal(a, offset=-1)), (CUBE,)),
    "products": (lambda a, b: (linalg.matmul(a, b), linalg.tensordot(a, b, 1), linalg.vecdot(a, a),
                               linalg.matrix_transpose(a)),
                 lambda a, b: (a @ b, np.tensordot(a, b, 1), np.vecdot(a, a), a.mT), (TALL, WIDE)),
    **{f"lu {a.shape} {k}": (lambda a, k=k: linalg.lu(a, k), lambda a, k=k: _lu(a, k), (a,))
       for a in (TALL, WIDE, BATCH, ONE) for k in (False, True)},
    **{f"lu_factor {a.shape}": (linalg.lu_factor, SCIPY.lu_factor, (a,)) for a in (TALL, WIDE, BATCH)},
    "expm": (linalg.expm, SCIPY.expm, (BATCH * 5,)),
    **{f"{f} {i}": (lambda a, f=f: getattr(linalg, f)(a), g, (a,))
       for f, g in (("sqrtm", SCIPY.sqrtm), ("logm", SCIPY.logm),
                    ("inv_sqrtm", lambda a: NUMPY.inv(SCIPY.sqrtm(a))))
       for i, a in enumerate((POSITIVE, EQUAL, ONE))},
    "sqrtm of a singular one": (linalg.sqrtm, lambda a: a / np.sqrt(3), (np.ones((3, 3)),)),
    **{f"polar {s} {i}": (lambda a, s=s: linalg.polar(a, side=s), lambda a, s=s: SCIPY.polar(a, s), (a,))
       for s in ("right", "left") for i, a in enumerate((SQUARE, TALL, WIDE))},
    "block_diag": (linalg.block_diag, SCIPY.block_diag, (TALL, normal(2), ONE)),
    "solve_sylvester": (linalg.solve_sylvester, SCIPY.solve_sylvester, (SQUARE, POSITIVES[0], normal(4, 3))),
    "householder_product": (lambda a, t: linalg.householder_product(a, tau=t),
                            lambda a, t: SCIPY.lapack.dorgqr(a, t)[0], SCIPY.qr(TALL, mode="raw")[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """In f64 and, where the condition allows it, in f32."""
    function, wanted, arrays = CASES[name]
    expected = wanted(*arrays)
    agree(evaluated(function, *arrays), expected, 1e-9)
    narrow = [a.astype(np.float32) for a in arrays]
    if "singular" not in name and "rank 2" not in name:
        agree(evaluated(function, *narrow), expected, 2e-3)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, 1, 2, "N", "T", "C"])
def test_triangular_systems(trans: Any, lower: bool) -> None:
    number = {"N": 0, "T": 1, "C": 2}.get(trans, trans)
    right = normal(4, 2)
    for unit in (False, True):
        wanted = SCIPY.solve_triangular(SQUARE, right, number, lower, unit)
        found = evaluated(lambda a, b, u=unit: linalg.solve_triangular(a, b, trans, lower, u), SQUARE, right)
        agree(found, wanted, 1e-10)
        # x·op(a) = b is op(a)ᵀ·xᵀ = bᵀ
        (x,) = evaluated(
            lambda a, b, u=unit: linalg.solve_triangular(a, b, trans, lower, u, left=False), SQUARE, right.T
        )
        triangle = np.tril(SQUARE) if lower else np.triu(SQUARE)
        triangle = triangle - np.diag(np.diag(triangle)) + np.eye(4) if unit else triangle
        np.testing.assert_allclose(x @ (triangle.T if number else triangle), right.T, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (3,), (1, 2)])
@pytest.mark.parametrize("trans", [0, 1, 2])
def test_factors_solve_batches(trans: int, batch: tuple[int, ...]) -> None:
    """One factor for many right-hand sides, and many factors for one."""
    right = normal(*batch, 4, 2)
    for a, b in ((SQUARE, right), (SQUARE + normal(*batch, 4, 4), right[..., 0] if not batch else right)):
        wanted = NUMPY.solve(np.swapaxes(a, -1, -2) if trans else a, b)
        agree(evaluated(lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, trans=trans), a, b), wanted, 1e-9)
    for lower in (False, True):
        found = evaluated(lambda a, b, o=lower: linalg.cho_solve(linalg.cho_factor(a, o), b), POSITIVE, right)
        agree(found, NUMPY.solve(POSITIVE, right), 1e-9)


def test_the_pairs_of_scipy_are_solved() -> None:
    right, pair = normal(4, 3), SCIPY.lu_factor(SQUARE)
    with rlx.eager():
        found = linalg.lu_solve((pair[0], pair[1].astype(np.int32)), right).numpy()
        c, lower = SCIPY.cho_factor(POSITIVE)
        of_cholesky = linalg.cho_solve((c, lower), right).numpy()
    np.testing.assert_allclose(found, NUMPY.solve(SQUARE, right), atol=1e-10)
    np.testing.assert_allclose(of_cholesky, NUMPY.solve(POSITIVE, right), atol=1e-10)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvectors_of_two_matrices(uplo: str) -> None:
    values, vectors = evaluated(lambda a, b: linalg.eigh(a, b, UPLO=uplo), BATCH, POSITIVES)
    whole = np.tril(BATCH) if uplo == "L" else np.triu(BATCH)
    whole = whole + np.swapaxes(whole, -1, -2) - BATCH * np.eye(3)
    np.testing.assert_allclose(whole @ vectors, POSITIVES @ vectors * values[:, None], atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(vectors, -1, -2) @ POSITIVES @ vectors, [np.eye(3)] * 2, atol=1e-12)


@pytest.mark.parametrize("offset", [-4, -2, 0, 1, 2])
def test_diagonals_are_set(offset: int) -> None:
    a = normal(2, 5, 3)
    length = np.diagonal(a, offset, 1, 2).shape[-1]
    values, wanted = normal(2, length), a.copy()
    places = np.arange(length)
    wanted[:, places + max(-offset, 0), places + max(offset, 0)] = values
    agree(evaluated(lambda a, v: linalg.diag_set(a, v, offset), a, values), wanted, 0)
    (found,) = evaluated(lambda a: linalg.diag_set(a, 7.0, offset), a)
    np.testing.assert_array_equal(np.diagonal(found, offset, 1, 2), 7.0)


def test_multi_dot_takes_the_shortest_order() -> None:
    """(a·b)·c would need 100 times the multiplications of a·(b·c)."""
    a, b, c = normal(100, 2), normal(2, 100), normal(100, 1)
    text = str(graph_of(lambda *x: linalg.multi_dot(x), a, b, c))
    assert "tensor<100x100xf64>" not in text
    assert "tensor<2x1xf64>" in text


def test_least_squares_of_batches() -> None:
    a, b = normal(2, 5, 3), normal(2, 5, 2)
    a[1, :, 2] = a[1, :, 0]
    found = evaluated(lambda a, b: linalg.lstsq(a, b), a, b)
    for i in range(2):
        x, _, rank, s = NUMPY.lstsq(a[i], b[i])
        agree([found[0][i], found[2][i], found[3][i]], [x, np.int32(rank), s], 1e-9)
        agree([found[1][i]], [((b[i] - a[i] @ x) ** 2).sum(0)], 1e-9)
    assert [r.shape for r in evaluated(lambda a, b: linalg.lstsq(a, b), np.ones((0, 3)), np.ones((0, 2)))] == [
        (3, 2), (0,), (), (0,)
    ]  # fmt: skip


NAN_CASES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "cholesky of an indefinite one": (linalg.cholesky, -np.eye(2)),
    "sqrtm of an indefinite one": (linalg.sqrtm, np.diag([1.0, -1.0])),
    "sqrtm of one that is not symmetric": (linalg.sqrtm, np.array([[1.0, 1], [0, 1]])),
    "logm of a singular one": (linalg.logm, np.ones((2, 2))),
    "inv_sqrtm of a singular one": (linalg.inv_sqrtm, np.ones((3, 3))),
    "inv of a singular one": (linalg.inv, np.ones((2, 2))),
    "eigh of two, the second indefinite": (lambda a: linalg.eigh(a, -a).eigenvalues, np.eye(2)),
    "solve_sylvester without a solution": (lambda a: linalg.solve_sylvester(a, -a, a), np.eye(2)),
    "lu_solve of a singular one": (lambda a: linalg.lu_solve(linalg.lu_factor(a), a), np.ones((2, 2))),
    "polar of NaN": (lambda a: linalg.polar(a).p, np.full((2, 2), np.nan)),
    "pinv of NaN": (linalg.pinv, np.full((2, 2), np.nan)),
    "cond of NaN": (lambda a: linalg.cond(a, 1), np.full((2, 2), np.nan)),
}


@pytest.mark.parametrize("name", NAN_CASES)
def test_what_has_no_result_is_not_finite(name: str) -> None:
    function, a = NAN_CASES[name]
    (found,) = evaluated(function, a)
    assert not np.isfinite(found).all()
    if "NaN" in name or name.startswith(("cholesky", "sqrtm", "logm", "inv_sqrtm", "eigh")):
        assert np.isnan(found).any()
