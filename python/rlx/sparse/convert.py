"""Conversions from and to SciPy's matrices, JAX's BCOO and dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.sparse.array import CONVERTERS, SparseArray, container
from rlx.sparse.computing import computed, is_tensor, lift, located, numbers
from rlx.sparse.constructors import bsr_array, coo_array, csc_array, csr_array
from rlx.sparse.entries import Entries
from rlx.sparse.formats import BsrArray, CooArray
from rlx.support.errors import Error, ShapeError
from rlx.support.packages import import_package
from rlx.support.short import short_repr


def _is_scipy(value: object) -> bool:
    return type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocoo")


def _is_bcoo(value: object) -> bool:
    return type(value).__module__.startswith("jax.") and type(value).__name__ == "BCOO"


@located
def from_scipy(A: Any) -> SparseArray:
    """Return a SciPy matrix or array. COO, CSR, CSC and BSR keep their format, and others become CSR.

    Args:
        A: The matrix. Its pattern is copied.

    Raises:
        Error: It is not a sparse matrix of SciPy with two axes, or its dtype does not exist here.
    """
    if not _is_scipy(A):
        raise Error(
            f"from_scipy takes a sparse matrix of SciPy, got {short_repr(A)}", hint="from_dense(x) takes an array"
        )
    if len(A.shape) != 2:
        raise ShapeError(f"from_scipy takes matrices, got a sparse array with {len(A.shape)} axes")
    if A.format == "coo":
        return coo_array((A.data, (A.row, A.col)), shape=A.shape)
    if A.format not in ("csr", "csc", "bsr"):
        A = A.tocsr()
    make = {"csr": csr_array, "csc": csc_array, "bsr": bsr_array}[A.format]
    count = int(A.indptr[-1])  # SciPy allows unused memory after the last entry
    return make((A.data[:count], A.indices[:count], A.indptr), shape=A.shape)


@located
def from_dense(x: Any, pattern: Any = None) -> SparseArray:
    """Return a dense matrix as a sparse one.

    Args:
        x: The matrix `[M, N]`.
        pattern: A sparse matrix whose positions are taken; by default those where the array `x` is not 0, as CSR.

    Raises:
        Error: `x` is a tensor and there is no pattern, or shapes differ.
    """
    if pattern is None:
        return container(x, "x")
    like, dense = container(pattern, "pattern"), numbers(x, "x")
    if tuple(dense.shape) != like.shape:
        raise ShapeError(f"x must have the shape {like.shape} of the pattern, got {tuple(dense.shape)}")
    entries = like.entries()

    def read(b: Builder) -> Tensor:
        places = b.stack([lift(b, entries.row), lift(b, entries.col)], axis=-1)
        table = lift(b, dense)
        if 0 in (*like.data.shape, *like.shape):
            return b.zeros(tuple(like.data.shape), dtype=table.dtype)
        return b.reshape(b.gather_nd(table, places), tuple(like.data.shape))

    return _with(like, computed([dense, *like.arrays], read))


def _with(like: SparseArray, data: Any) -> SparseArray:
    return type(like)(data, like.pattern, like.shape)


@located
def from_bcoo(M: Any) -> CooArray:
    """Return JAX's `BCOO` matrix in coordinates. Its padding, indices that are out of range, is dropped.

    Raises:
        Error: It is something else, or has batch or dense axes.
    """
    if not _is_bcoo(M):
        raise Error(f"from_bcoo takes a jax.experimental.sparse.BCOO, got {short_repr(M)}")
    if len(M.shape) != 2 or M.n_batch or M.n_dense:
        raise Error(
            f"from_bcoo takes matrices without batch and dense axes, got the shape {M.shape} with "
            f"n_batch={M.n_batch} and n_dense={M.n_dense}"
        )
    places, data = np.asarray(M.indices), np.asarray(M.data)
    kept = ((places >= 0) & (places < np.array(M.shape))).all(1)
    return coo_array((data[kept], (places[kept, 0], places[kept, 1])), shape=M.shape)


CONVERTERS.append(
    lambda value: from_scipy(value) if _is_scipy(value) else from_bcoo(value) if _is_bcoo(value) else value
)


def _host(value: Any, what: str) -> np.ndarray:
    """Return an array. A tensor of a graph has no numbers, and raises an error."""
    if is_tensor(value) and not hasattr(value, "numpy"):
        raise Error(
            f"{what}: the tensor has no values while the function is traced",
            hint="return the matrix from the function, and convert it there",
        )
    return np.asarray(value)


def host_entries(A: SparseArray, data: Any = None) -> Entries:
    """Return the entries of a matrix as arrays, without those that are out of range."""
    entries = A.entries()
    values = _host(entries.data if data is None else np.reshape(_host(data, "data"), -1), "data")
    row, col = _host(entries.row, "row"), _host(entries.col, "col")
    kept = (row >= 0) & (row < A.shape[0]) & (col >= 0) & (col < A.shape[1])
    return Entries(values[kept], row[kept], col[kept], A.shape)


@located
def to_scipy(A: SparseArray, data: Any = None) -> Any:
    """Return the matrix as SciPy's array of the same format.

    Args:
        A: The matrix.
        data: Numbers instead of those of the matrix.

    Raises:
        Error: SciPy is not installed, or the numbers are tensors of a graph.
    """
    scipy = import_package("scipy.sparse", "to_scipy")
    if not A.is_known:
        entries = host_entries(A, data)
        found = scipy.coo_array((entries.data, (entries.row, entries.col)), shape=A.shape)
        return found if A.format == "coo" else found.asformat(A.format if A.format != "bsr" else "csr")
    values = _host(A.data if data is None else data, "data")
    if tuple(values.shape) != tuple(A.data.shape):
        raise ShapeError(f"data must have the shape {tuple(A.data.shape)}, got {values.shape}")
    if isinstance(A, CooArray):
        return scipy.coo_array((values, tuple(a.copy() for a in A.arrays)), shape=A.shape)
    make = {"csr": scipy.csr_array, "csc": scipy.csc_array, "bsr": scipy.bsr_array}[A.format]
    blocks = {"blocksize": A.blocksize} if isinstance(A, BsrArray) else {}
    return make((values, *(a.copy() for a in A.arrays)), shape=A.shape, **blocks)


@located
def to_bcoo(A: SparseArray) -> Any:
    """Return the matrix as JAX's `BCOO`.

    Raises:
        Error: JAX is not installed, or the numbers are tensors of a graph.
    """
    sparse = import_package("jax.experimental.sparse", "to_bcoo")
    entries = host_entries(A)
    places = np.stack([entries.row, entries.col], axis=-1).astype(np.int32)
    return sparse.BCOO((entries.data, places), shape=A.shape)


for _name, _method in (("to_scipy", to_scipy), ("to_bcoo", to_bcoo)):
    setattr(SparseArray, _name, _method)
