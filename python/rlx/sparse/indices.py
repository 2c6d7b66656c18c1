"""Index arrays of patterns that are known while tracing: checks, hashing, and the order of entries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.arrays import as_numbers
from rlx.support.errors import Error, ShapeError

_LARGEST = np.iinfo(np.int32).max


class IndexArrays:
    """Index arrays that do not change. Equal if all numbers are, so that a pattern can be part of a signature.

    Args:
        arrays: The arrays. They are made read-only.
    """

    def __init__(self, *arrays: np.ndarray):
        for array in arrays:
            array.flags.writeable = False
        self.arrays = arrays
        self._digest: bytes | None = None
        self._derived: dict[Any, Any] = {}

    @property
    def digest(self) -> bytes:
        """A hash of all numbers and dtypes."""
        if self._digest is None:
            state = hashlib.blake2b(digest_size=16)
            for array in self.arrays:
                state.update(f"{array.dtype}{array.shape}".encode())
                state.update(np.ascontiguousarray(array).data)
            self._digest = state.digest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IndexArrays) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return a value that follows from the arrays, made once."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]


def index_array(value: object, name: str) -> np.ndarray:
    """Return a vector of indices as i32, or i64 if they do not fit, in memory of its own.

    Raises:
        Error: They are not integers, or not a vector.
    """
    array = as_numbers(value, name)
    if array.ndim != 1:
        raise ShapeError(f"{name} must be a vector of integers, got {array.ndim} axes")
    if array.dtype.kind not in "iu" and array.size:
        raise Error(f"{name} must be integers, got {array.dtype}")
    fits = not array.size or (int(array.min()) >= -_LARGEST and int(array.max()) <= _LARGEST)
    return np.array(array, np.int32 if fits else np.int64)


def check_range(array: np.ndarray, size: int, name: str) -> None:
    """Check that indices are in `[0, size)`.

    Raises:
        Error: One is not.
    """
    if not array.size:
        return
    for value in (int(array.min()), int(array.max())):
        if not 0 <= value < size:
            hint = "indices that are tensors may be out of range: these entries are dropped"
            raise Error(f"{name} has the index {value}, which is outside of [0, {size})", hint=hint)


def check_offsets(indptr: np.ndarray, rows: int, entries: int, name: str = "indptr") -> None:
    """Check the offsets of rows.

    Raises:
        Error: They do not begin with 0, end with the number of entries, or ascend.
    """
    if indptr.size != rows + 1:
        raise ShapeError(
            f"{name} must have {rows + 1} offsets, one more than there are rows or columns, got {indptr.size}"
        )
    if indptr[0] != 0 or indptr[-1] != entries:
        raise Error(f"{name} must begin with 0 and end with {entries}, got {indptr[0]} and {indptr[-1]}")
    if (np.diff(indptr) < 0).any():
        raise Error(f"{name} must not decrease")


def flipped(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the shape of the transpose."""
    return shape[1], shape[0]


def narrow(array: np.ndarray) -> np.ndarray:
    """Return indices as i32 if they fit."""
    return array.astype(np.int32) if not array.size or int(array.max()) <= _LARGEST else array.astype(np.int64)


def offsets_of(sorted_rows: np.ndarray, rows: int) -> np.ndarray:
    """Return the offsets of rows, from the row of each entry in ascending order."""
    return narrow(np.concatenate([[0], np.cumsum(np.bincount(sorted_rows, minlength=rows))]))


def rows_of(indptr: np.ndarray) -> np.ndarray:
    """Return the row of each entry."""
    return np.repeat(np.arange(indptr.size - 1, dtype=np.int32), np.diff(indptr))


def row_order(row: np.ndarray, col: np.ndarray) -> np.ndarray | None:
    """Return the order of entries by row and then column, stable; None if they are in this order."""
    same = row[1:] == row[:-1]
    if bool(((row[1:] > row[:-1]) | (same & (col[1:] >= col[:-1]))).all()):
        return None
    return narrow(np.lexsort((col, row)))


def longest(indptr: np.ndarray) -> int:
    """Return the `width` of a product with rows of these offsets: the longest row, and at least 1."""
    return max(1, int(np.diff(indptr).max(initial=0)))
