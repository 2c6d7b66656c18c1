"""Constructors of sparse matrices, with the arguments of SciPy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.sparse.array import as_container, container
from rlx.sparse.computing import is_tensor, located, numbers
from rlx.sparse.formats import BsrArray, CooArray, CscArray, CsrArray, pattern_of
from rlx.sparse.indices import check_offsets, check_range, flipped, index_array
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_integer
from rlx.support.short import short_repr


@located
def coo_array(arg1: Any, shape: Any = None) -> CooArray:
    """Return a matrix in coordinates: `coo_array((data, (row, col)), shape=(m, n))`.

    Args:
        arg1: `data [Z]` and the row and column of each entry, arrays or i32 tensors `[Z]`; or another sparse matrix.
        shape: The numbers of rows and columns; for arrays by default the largest indices plus 1.

    Raises:
        Error: Sizes do not fit, or an index of an array is out of range.
    """
    if not _is_parts(arg1, 2):
        return _converted(arg1, shape, "coo")
    data, place = arg1
    if not _is_parts(place, 2):
        raise Error("coo_array takes (data, (row, col))")
    values, indices = numbers(data, "data"), [_indices(i, n) for i, n in zip(place, ("row", "col"), strict=True)]
    are_known = not any(map(is_tensor, indices))
    if shape is None and are_known:
        shape = [int(i.max(initial=-1)) + 1 for i in indices]
    size = checked_shape(shape)
    for name, index, limit in zip(("row", "col"), indices, size, strict=True):
        _check_count(values, index, name, 1)
        if are_known:
            check_range(index, limit, name)
    return CooArray(values, pattern_of(*indices), size)


@located
def csr_array(arg1: Any, shape: Any = None) -> CsrArray:
    """Return a matrix in rows: `csr_array((data, indices, indptr), shape=(m, n))`.

    Args:
        arg1: `data [Z]`, the column of each entry `[Z]`, and the offsets of the rows `[M + 1]`, arrays or i32 tensors;
            or another sparse matrix.
        shape: The numbers of rows and columns; for arrays, columns are by default the largest index plus 1.

    Raises:
        Error: Sizes do not fit, an index of an array is out of range, or offsets decrease.
    """
    if _is_parts(arg1, 2) and _is_parts(arg1[1], 2):
        return coo_array(arg1, shape).tocsr()
    if not _is_parts(arg1, 3):
        return _converted(arg1, shape, "csr")
    values, pattern, size = _compressed(arg1, shape, 0)
    return CsrArray(values, pattern, size)


@located
def csc_array(arg1: Any, shape: Any = None) -> CscArray:
    """Return a matrix in columns: `csc_array((data, indices, indptr), shape=(m, n))`; see `csr_array`."""
    if _is_parts(arg1, 2) and _is_parts(arg1[1], 2):
        return coo_array(arg1, shape).tocsc()
    if not _is_parts(arg1, 3):
        return _converted(arg1, shape, "csc")
    values, pattern, size = _compressed(arg1, shape, 1)
    return CscArray(values, pattern, size)


@located
def bsr_array(arg1: Any, shape: Any = None, blocksize: tuple[int, int] | None = None) -> BsrArray:
    """Return a matrix of dense blocks: `bsr_array((data, indices, indptr), shape=(m, n))`.

    Args:
        arg1: `data [Z, r, c]`, the column of each block, in blocks `[Z]`, and the offsets of the rows of blocks
            `[M / r + 1]`, arrays or i32 tensors; or another sparse matrix.
        shape: The numbers of rows and columns, multiples of `r` and `c`.
        blocksize: The size of the blocks of another matrix.

    Raises:
        Error: Sizes do not fit, an index of an array is out of range, or offsets decrease.
    """
    if not _is_parts(arg1, 3):
        matrix = _converted(arg1, shape, "csr")
        found = as_container(arg1)
        kept = found.blocksize if isinstance(found, BsrArray) else (1, 1)
        return matrix.tobsr(blocksize or kept)
    data, indices, indptr = arg1
    values = numbers(data, "data")
    columns, offsets = _indices(indices, "indices"), _indices(indptr, "indptr")
    _check_count(values, columns, "indices", 3)
    _, r, c = (int(d) for d in values.shape)
    if r < 1 or c < 1:
        raise ShapeError(f"blocks must not be empty, got {r}x{c}")
    if blocksize not in (None, (r, c)):
        raise ShapeError(f"blocksize is {blocksize}, but data has blocks {r}x{c}")
    if shape is None and not is_tensor(columns):
        shape = (int(offsets.shape[0] - 1) * r, (int(columns.max(initial=-1)) + 1) * c)
    size = checked_shape(shape)
    if size[0] % r or size[1] % c:
        raise ShapeError(f"blocks {r}x{c} do not divide a matrix {size[0]}x{size[1]}")
    _check_pattern(columns, offsets, (size[0] // r, size[1] // c))
    return BsrArray(values, pattern_of(columns, offsets), size)


def checked_shape(shape: Any) -> tuple[int, int]:
    """Return a shape of two sizes.

    Raises:
        ShapeError: It is something else.
    """
    if shape is None:
        raise ShapeError("shape must be given: shape=(rows, columns)")
    dims = list(shape) if isinstance(shape, Sequence) or hasattr(shape, "__iter__") else [shape]
    if len(dims) != 2 or not all(is_integer(d) and d >= 0 for d in dims):
        raise ShapeError(f"shape is two sizes, the numbers of rows and columns, got {short_repr(shape)}")
    return int(dims[0]), int(dims[1])


def _is_parts(value: Any, count: int) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == count


def _converted(value: Any, shape: Any, format: str) -> Any:
    """Return another sparse matrix, the nonzeros of a dense one, or an empty one of a shape, in a format."""
    from_shape = isinstance(value, tuple) and len(value) == 2 and all(map(is_integer, value))
    if from_shape:
        nothing = pattern_of(index_array([], "row"), index_array([], "col"))
        empty = CooArray(np.zeros(0, np.float32), nothing, checked_shape(value))
        return empty.asformat(format)
    found = container(value)
    if shape is not None and checked_shape(shape) != found.shape:
        raise ShapeError(f"shape is {tuple(shape)}, but the matrix has the shape {found.shape}")
    return found.asformat(format)


def _indices(value: Any, name: str) -> Any:
    if not is_tensor(value):
        return index_array(value, name)
    if value.rank != 1 or value.dtype.name not in ("i32", "i64"):
        raise ShapeError(f"{name} must be a tensor [Z] of i32, got {value.shape}")
    return value


def _check_count(values: Any, index: Any, name: str, rank: int) -> None:
    if len(values.shape) != rank:
        raise ShapeError(f"data must have {rank} ax{'is' if rank == 1 else 'es'}, got {len(values.shape)}")
    if values.shape[0] != index.shape[0]:
        raise ShapeError(f"data has {values.shape[0]} entries, and {name} {index.shape[0]}")


def _compressed(parts: Any, shape: Any, axis: int) -> tuple[Any, Any, tuple[int, int]]:
    """Return data, pattern and shape of a matrix in rows (`axis=0`) or columns (`axis=1`)."""
    data, indices, indptr = parts
    values, columns, offsets = numbers(data, "data"), _indices(indices, "indices"), _indices(indptr, "indptr")
    _check_count(values, columns, "indices", 1)
    if shape is None and not is_tensor(columns):
        sizes = [int(offsets.shape[0]) - 1, int(columns.max(initial=-1)) + 1]
        shape = sizes if axis == 0 else sizes[::-1]
    size = checked_shape(shape)
    _check_pattern(columns, offsets, size if axis == 0 else flipped(size))
    return values, pattern_of(columns, offsets), size


def _check_pattern(columns: Any, offsets: Any, size: tuple[int, int]) -> None:
    rows, limit = size
    if is_tensor(columns) or is_tensor(offsets):
        if offsets.shape[0] != rows + 1:
            raise ShapeError(f"indptr must have {rows + 1} offsets, got {offsets.shape[0]}")
        return
    check_offsets(offsets, rows, columns.size)
    check_range(columns, limit, "indices")
