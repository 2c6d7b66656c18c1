"""Sparse matrices against SciPy's, on generated patterns: attributes, conversions, sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as ss

import rlx
from rlx import sparse
from tests.drawing import graph_seed
from tests.sparse.matrices import FORMATS, SIZES, assert_close, dense, generated, in_format


def dynamic(matrix: Any) -> Any:
    """Return SciPy's matrix with tensors as its pattern."""
    data, shape = matrix.data, matrix.shape
    if matrix.format == "coo":
        return sparse.coo_array(
            (data, tuple(rlx.ops.constant(i.astype(np.int32)) for i in (matrix.row, matrix.col))), shape
        )
    offsets = rlx.ops.constant(matrix.indptr.astype(np.int32))
    return getattr(sparse, f"{matrix.format}_array")((data, matrix.indices, offsets), shape)


def check(matrix: Any, ours: Any, rng: np.random.Generator) -> None:
    """Compare all that a matrix can do, whether its pattern is known or not."""
    (m, n), dtype, expected = matrix.shape, matrix.dtype, matrix.toarray()
    other, right = generated(rng, m, n, max(m * n, 1) // 2, dtype), generated(rng, n, 4, n, dtype)
    x, y = rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=(2, m)).astype(dtype)
    assert ours.shape == (m, n) and ours.dtype == rlx.dtype(dtype) and ours.format == matrix.format and ours.ndim == 2
    assert_close(ours, expected)
    for got, wanted in (
        (ours @ x, expected @ x),
        (ours @ x[:, 0], expected @ x[:, 0]),
        (y @ ours, y @ expected),
        (y[0] @ ours, y[0] @ expected),
        (ours.T @ y[0], expected.T @ y[0]),
        (ours.T, expected.T),
        (ours.tocoo(), expected),
        (ours.tocsr(), expected),
        (ours.tocsc() @ x, expected @ x),
        (-ours, -expected),
        (ours * 2, expected * 2),
        (ours / 2, expected / 2),
        (ours + other, expected + other.toarray()),
        (other - ours, other.toarray() - expected),
        (ours + ours, 2 * expected),
        (ours + other.toarray(), expected + other.toarray()),
        (ours.multiply(other.toarray()), expected * other.toarray()),
        (ours.multiply(y[0][:, None]), expected * y[0][:, None]),
        (ours.multiply(x[:, 0]), expected * x[:, 0]),
        (sparse.vstack([ours, other]), np.vstack([expected, other.toarray()])),
        (sparse.hstack([other, ours]), np.hstack([other.toarray(), expected])),
        (sparse.tril(ours, 1), np.tril(expected, 1)),
        (sparse.triu(ours, -1), np.triu(expected, -1)),
        (sparse.matmul(ours, right, capacity=400), expected @ right.toarray()),
        *((ours.sum(axis=axis), expected.sum(axis=axis)) for axis in (None, 0, 1)),
        *((ours.diagonal(k), expected.diagonal(k)) for k in (-1, 0, 2) if -m < k < n),
    ):
        assert_close(got, wanted)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_known_patterns(format: str, dtype: Any, seed: int) -> None:
    for i, size in enumerate(SIZES):
        rng = np.random.default_rng(graph_seed(seed, i))
        matrix = in_format(generated(rng, *size, dtype), format)
        check(matrix, sparse.from_scipy(matrix), rng)


@pytest.mark.parametrize("format", FORMATS)
def test_dynamic_patterns(format: str, seed: int) -> None:
    with rlx.eager():
        for i, size in enumerate(SIZES):
            rng = np.random.default_rng(graph_seed(seed, i))
            matrix = in_format(generated(rng, *size, np.float32), format)
            check(matrix, dynamic(matrix), rng)


@pytest.mark.parametrize("format", FORMATS)
def test_structure(format: str, seed: int) -> None:
    """Functions that need a known pattern have SciPy's results and positions."""
    for i, size in enumerate(SIZES):
        rng = np.random.default_rng(graph_seed(seed, i))
        matrix = in_format(generated(rng, *size), format)
        ours, (m, n), expected = sparse.from_scipy(matrix), matrix.shape, matrix.toarray()
        other, right = generated(rng, m, n, m * n // 2), generated(rng, n, 4, n)
        product, wanted = ours @ right, matrix.tocsr() @ right.tocsr()
        assert product.format == "csr" and (format == "bsr" or product.nnz == wanted.nnz)
        assert_close(product, wanted)
        assert_close(ours.multiply(other), expected * other.toarray())
        assert_close(sparse.kron(ours, other), ss.kron(matrix, other))
        assert_close(sparse.from_dense(expected, pattern=ours.tocsr()), expected)
        assert_close(sparse.from_bcoo(ours.to_bcoo()), expected)
        back = ours.to_scipy()
        assert back.format == format and back.nnz == matrix.nnz == ours.nnz
        assert_close(back, expected)
        if format != "bsr":  # SciPy drops zeros of blocks
            assert (ours + other).tocsr().nnz == (matrix.tocsr() + other.tocsr()).nnz
        assert_close(sparse.bsr_array(ours, blocksize=(1, 1)), expected)


def test_sampled_product(seed: int) -> None:
    rng = np.random.default_rng(graph_seed(seed, 0))
    matrix = generated(rng, 6, 9, 14).tocsr()
    x, y = rng.normal(size=(6, 4)), rng.normal(size=(9, 4))
    expected = (x @ y.T) * (matrix.toarray() != 0)
    for format in FORMATS:
        stored = sparse.from_scipy(in_format(matrix, format))
        sampled = sparse.sddmm(stored, x, y)
        assert sampled.format == format
        np.testing.assert_allclose(dense(sampled)[expected != 0], expected[expected != 0])
    with rlx.eager():
        assert_close(sparse.sddmm(dynamic(matrix), x, y), expected)
        assert_close(sparse.sddmm(dynamic(matrix.tocoo()), x, y), expected)


def test_constructed_matrices() -> None:
    diagonals: Any = ss.diags_array  # SciPy's annotation of offsets lacks lists
    for m, n, k in ((4, None, 0), (3, 5, 1), (5, 3, -2), (0, None, 0)):
        assert_close(sparse.eye_array(m, n, k=k), ss.eye_array(m, n, k=k))
    lines = [np.arange(1.0, 5), np.full(1, 7.0), np.arange(3.0)]
    assert_close(
        sparse.diags_array(lines, offsets=[0, 1, -1], shape=(4, 4)),
        diagonals(lines, offsets=[0, 1, -1], shape=(4, 4)),
    )
    assert_close(sparse.diags_array(np.arange(3.0), offsets=2), diagonals(np.arange(3.0), offsets=2))
    assert_close(
        sparse.diags_array([1, -2, 1], offsets=[-1, 0, 1], shape=(5, 6), format="csc"),
        diagonals([1.0, -2, 1], offsets=[-1, 0, 1], shape=(5, 6)),
    )
    assert sparse.csr_array((3, 4)).nnz == 0 and sparse.csr_array(np.eye(3)).nnz == 3


def test_segment_sum(seed: int) -> None:
    rng = np.random.default_rng(graph_seed(seed, 0))
    for shape in ((9,), (9, 3), (9, 2, 2), (0, 2)):
        data, ids = rng.normal(size=shape), rng.integers(0, 5, shape[0])
        expected = np.zeros((6, *shape[1:]))
        np.add.at(expected, ids, data)
        np.testing.assert_allclose(sparse.segment_sum(data, ids, 6), expected)
        with rlx.eager():
            shifted = rlx.ops.constant(np.where(ids == 2, -1, ids).astype(np.int32))
            expected[2] = 0
            np.testing.assert_allclose(np.asarray(sparse.segment_sum(data, shifted, 6)), expected)


def test_out_of_range_indices_of_tensors_are_dropped() -> None:
    data, row, col = np.arange(1.0, 7), np.array([0, 3, 1, -1, 2, 1]), np.array([1, 0, 4, 0, 2, -2])
    kept = ss.coo_array((data[[0, 4]], (row[[0, 4]], col[[0, 4]])), shape=(3, 4)).toarray()
    with rlx.eager():
        matrix = sparse.coo_array((data, tuple(rlx.ops.constant(i.astype(np.int32)) for i in (row, col))), shape=(3, 4))
        x = np.arange(8.0).reshape(4, 2)
        for form in (
            matrix,
            matrix.tocsr(),
            matrix.tocsc(),
            matrix.T.T,
            sparse.hstack([matrix]),
            matrix + np.zeros((3, 4)),
        ):
            assert_close(form, kept)
            assert_close(form @ x, kept @ x)
        for form in (matrix, matrix.tocsr(), matrix.tocsc()):
            assert_close(form.sum(), kept.sum())
            assert_close(form.diagonal(), kept.diagonal())
            assert_close(sparse.matmul(form, form.T, capacity=50), kept @ kept.T)
        assert_close(matrix.to_scipy(), kept)


def test_capacity() -> None:
    """A product that does not fit is flagged, and one that fits counts its entries."""
    matrix = generated(np.random.default_rng(3), 8, 8, 24).tocsr()
    expected = matrix @ matrix
    pairs = int((matrix.tocsc().count_nonzero(axis=0) * matrix.count_nonzero(axis=1)).sum())
    with rlx.eager():
        for capacity in (pairs - 1, pairs, pairs + 7):
            product = sparse.matmul(dynamic(matrix), dynamic(matrix), capacity=capacity)
            assert bool(product.overflow.item()) == (capacity < pairs)
            if capacity >= pairs:
                assert product.nnz.item() == expected.nnz
                assert_close(product, expected)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sparse.coo_array(([1.0], ([3], [0])), shape=(2, 2)), "row has the index 3"),
        (lambda: sparse.coo_array(([1.0], ([-1], [0])), shape=(2, 2)), "index -1"),
        (lambda: sparse.coo_array(([1.0], ([0.5], [0])), shape=(2, 2)), "must be integers"),
        (lambda: sparse.coo_array(([1.0, 2.0], ([0], [0])), shape=(2, 2)), "2 entries"),
        (lambda: sparse.csr_array(([1.0], [0], [0, 1]), shape=(2, 2)), "3 offsets"),
        (lambda: sparse.csr_array(([1.0], [0], [0, 1, 0]), shape=(2, 2)), "end with 1"),
        (lambda: sparse.csr_array(([1.0, 1], [0, 0], [0, 3, 2]), shape=(2, 2)), "decrease"),
        (lambda: sparse.csr_array(([1.0], [2], [0, 1, 1]), shape=(2, 2)), "index 2"),
        (lambda: sparse.csr_array(([1.0], [0], [0, 1]), shape=(1, 2, 3)), "two sizes"),
        (lambda: sparse.bsr_array((np.ones((1, 2, 2)), [0], [0, 1]), shape=(3, 2)), "do not divide"),
        (lambda: sparse.eye_array(3) @ np.ones(4), "expected along the shared axis"),
        (lambda: sparse.eye_array(3) @ np.ones((3, 1, 1)), "a vector or a matrix"),
        (lambda: sparse.eye_array(3) @ sparse.eye_array(4), "3 columns against 4 rows"),
        (lambda: sparse.eye_array(3) + sparse.eye_array(4), "different shapes"),
        (lambda: sparse.eye_array(3) + 1, "would change all entries"),
        (lambda: sparse.eye_array(3).with_data(np.ones(4)), "must have the shape"),
        (lambda: sparse.eye_array(3)[0], "no items"),
        (lambda: bool(sparse.eye_array(3)), "neither true nor false"),
        (lambda: sparse.hstack([sparse.eye_array(3), sparse.eye_array(4)]), "different numbers of rows"),
        (lambda: sparse.diags_array([np.ones(3)], offsets=[0], shape=(2, 2)), "has 2 entries"),
        (lambda: sparse.from_scipy(np.eye(2)), "takes a sparse matrix"),
        (lambda: sparse.segment_sum(np.ones(2), [0, 5], 3), "index 5"),
        (lambda: sparse.matmul(np.eye(2), np.eye(2)), "two dense ones"),
        (lambda: sparse.matmul(sparse.eye_array(2), sparse.eye_array(2), capacity=0), "positive integer"),
        (lambda: sparse.sddmm(sparse.eye_array(2), np.ones((3, 1)), np.ones((2, 1))), "2 rows"),
    ],
)
def test_errors(make: Any, said: str) -> None:
    with pytest.raises(rlx.Error, match=said) as caught:
        make()
    assert "test_matrices.py" in (caught.value.location or "")


def test_wrong_names_are_answered() -> None:
    matrix = sparse.eye_array(3)
    with pytest.raises(AttributeError, match="todense"):
        matrix.to_dense()
    with pytest.raises(AttributeError, match="tocsr"):
        matrix.to_csr()
    with pytest.raises(AttributeError, match="csr_array"):
        _ = sparse.csr_matrix
    with pytest.raises(AttributeError, match="save_npz"):
        _ = sparse.save_npz
