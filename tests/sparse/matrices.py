"""Generated matrices of SciPy for the tests of `rlx.sparse`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as ss

from rlx import sparse

FORMATS = ("coo", "csr", "csc", "bsr")
# Rows, columns and entries: empty matrices, one number, empty rows, many duplicates, wide and tall ones.
SIZES = ((6, 6, 12), (5, 7, 9), (1, 1, 1), (1, 1, 0), (0, 0, 0), (0, 3, 0), (3, 0, 0), (4, 6, 0), (7, 2, 30), (1, 8, 3))


def generated(rng: np.random.Generator, rows: int, columns: int, entries: int, dtype: Any = np.float64) -> Any:
    """Return a matrix in coordinates with unsorted indices and duplicates."""
    row, col = rng.integers(0, max(rows, 1), entries), rng.integers(0, max(columns, 1), entries)
    data = rng.normal(size=entries)
    if np.dtype(dtype).kind == "c":
        data = data + 1j * rng.normal(size=entries)
    return ss.coo_array((data.astype(dtype), (row, col)), shape=(rows, columns))


def in_format(matrix: Any, format: str) -> Any:
    """Return SciPy's matrix in a format, with duplicates in coordinates and blocks of 2 by 3 where they fit."""
    rows, columns = matrix.shape
    if format == "bsr" and rows and columns and rows % 2 == 0 and columns % 3 == 0:
        return matrix.tobsr((2, 3))
    return matrix.asformat(format)


def dense(value: Any) -> np.ndarray:
    """Return a sparse or dense matrix as an array."""
    if isinstance(value, sparse.SparseArray):
        value = value.todense()
    return value.toarray() if hasattr(value, "toarray") else np.asarray(value)


def assert_close(got: Any, expected: Any, tolerance: float = 1e-5) -> None:
    got, expected = dense(got), dense(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
