"""Factorisations of matrices that are larger than a block, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx.ir.graph.evaluate import evaluate_decomposition
from rlx.ir.op import registry
from rlx.ops.factorization import blocked
from tests.drawing import drawn

SIZES = [blocked.LARGEST + 1, 3 * blocked.BLOCK]  # one more than is factorised at once, and a multiple of a block


def _drawn(size: int, kind: str) -> Any:
    rng = np.random.default_rng(size)
    a = rng.standard_normal((2, size, size))
    return a + 1j * rng.standard_normal(a.shape) if kind == "c128" else a


def _emitted(op: str, *operands: np.ndarray, **attributes: Any) -> Any:
    return evaluate_decomposition(registry.load()[op], operands, attributes)


def _definite(a: np.ndarray) -> np.ndarray:
    return a @ np.swapaxes(a, -1, -2).conj() + np.eye(a.shape[-1])


@pytest.mark.parametrize("kind", ["f64", "c128"])
@pytest.mark.parametrize("size", SIZES)
def test_cholesky(size: int, kind: str) -> None:
    a = _definite(_drawn(size, kind))
    factor = _emitted("cholesky", a)
    np.testing.assert_allclose(factor, np.linalg.cholesky(a), rtol=0, atol=1e-12 * size)
    assert not np.triu(factor, 1).any()


def test_a_pivot_of_cholesky_that_is_not_positive() -> None:
    """The columns from the pivot on are NaN, and the other matrix of the batch is not affected."""
    size, place = SIZES[1], 50
    a = _definite(_drawn(size, "f64"))
    wanted = np.linalg.cholesky(a)
    a[0, place, place] = -1.0
    factor = _emitted("cholesky", a)
    np.testing.assert_allclose(factor[0, :, :place], wanted[0, :, :place], atol=1e-10)
    assert np.isnan(factor[0, place:, place:][np.tril_indices(size - place)]).all()
    assert not np.triu(factor[0], 1).any()
    np.testing.assert_allclose(factor[1], wanted[1], atol=1e-10)


@pytest.mark.parametrize("kind", ["f64", "c128"])
@pytest.mark.parametrize("size", SIZES)
def test_lu(size: int, kind: str) -> None:
    a = _drawn(size, kind)
    packed, pivots, order = _emitted("lu", a)
    for i, matrix in enumerate(a):
        factors, rows = scipy.linalg.lu_factor(matrix)
        np.testing.assert_allclose(packed[i], factors, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(pivots[i], rows)
        both = (np.tril(packed[i], -1) + np.eye(size)) @ np.triu(packed[i])
        np.testing.assert_allclose(both, matrix[order[i]], atol=1e-12)


def test_lu_of_singular_matrices() -> None:
    """Zero columns have no multipliers, and no row is exchanged for one of the padding."""
    size = SIZES[0]
    a = np.stack([np.zeros((size, size)), np.ones((size, size))])
    packed, pivots, order = _emitted("lu", a)
    assert not packed[0].any() and (order == np.arange(size)).all() and (pivots == np.arange(size)).all()
    np.testing.assert_array_equal((np.tril(packed[1], -1) + np.eye(size)) @ np.triu(packed[1]), a[1])


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", ["f64", "c128"])
def test_triangular_solve(kind: str, lower: bool, unit: bool) -> None:
    """The other triangle is not read, nor is a diagonal of ones."""
    size = SIZES[0]
    a, right = _drawn(size, kind) / size + 2 * np.eye(size), _drawn(size, kind)[..., :3]
    a[:, *(np.triu_indices(size, 1) if lower else np.tril_indices(size, -1))] = np.inf
    if unit:
        a[:, np.arange(size), np.arange(size)] = np.nan
    found = _emitted("triangular_solve", a, right, lower=lower, unit_diagonal=unit)
    part = np.tril(np.where(np.isfinite(a), a, 0)) if lower else np.triu(np.where(np.isfinite(a), a, 0))
    part = part + np.eye(size) if unit else part
    np.testing.assert_allclose(found, np.linalg.solve(part, right), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f64", "c128"])
def test_systems(kind: str) -> None:
    a, right = _drawn(SIZES[0], kind), _drawn(SIZES[0], kind)[..., 0]
    wanted = np.linalg.solve(a, right[..., None])[..., 0]
    np.testing.assert_allclose(_emitted("batched_dense_solve", a, right), wanted, rtol=1e-8, atol=1e-10)


@drawn("device", ["cpu", "xla"])
def test_compiled(device: str) -> None:
    """With a symbolic batch, of f32."""
    size = SIZES[0]
    g = rlx.Graph()
    x = g.input("x", ("batch", size, size), "f32")
    g.set_outputs([g.cholesky(x), *g.lu(x), g.triangular_solve(x, x)])
    a = _definite(_drawn(size, "f64")).astype(np.float32)
    found = rlx.Session(device).compile(g).run({"x": a})
    wanted = rlx.evaluate(g, {"x": a})
    for i, (got, reference) in enumerate(zip(found, wanted, strict=True)):
        if got.dtype == np.int32:
            np.testing.assert_array_equal(got, reference)
        else:
            np.testing.assert_allclose(
                got, reference, rtol=2e-3, atol=1e-3 * float(np.abs(reference).max()), err_msg=str(i)
            )
