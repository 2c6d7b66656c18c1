"""The formats of sparse matrices: coordinates, rows, columns and blocks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.contraction.csr import entry_rows
from rlx.sparse.array import KnownPattern, SparseArray
from rlx.sparse.computing import computed, is_tensor, lift, take
from rlx.sparse.entries import Entries
from rlx.sparse.indices import IndexArrays, flipped, longest, narrow, offsets_of, row_order, rows_of
from rlx.support.errors import Error, ShapeError


def pattern_of(*arrays: Any, is_dynamic: bool = False) -> Any:
    """Return index arrays as a pattern; a tuple if it is dynamic: it was computed from tensors, or one is a tensor."""
    if is_dynamic or any(is_tensor(a) for a in arrays):
        return arrays
    return KnownPattern(IndexArrays(*arrays))


class CooArray(SparseArray):
    """A matrix in coordinates: `data [Z]`, `row [Z]`, `col [Z]`. Entries at the same position are added."""

    format: ClassVar[str] = "coo"

    @property
    def row(self) -> Any:
        """The row of each entry."""
        return self.arrays[0]

    @property
    def col(self) -> Any:
        """The column of each entry."""
        return self.arrays[1]

    def entries(self) -> Entries:
        return Entries(self.data, self.row, self.col, self.shape, not self.is_known)

    @classmethod
    def of_entries(cls, entries: Entries) -> CooArray:
        return CooArray(
            entries.data, pattern_of(entries.row, entries.col, is_dynamic=not entries.is_known), entries.shape
        )

    @property
    def T(self) -> CooArray:
        """The transpose."""
        return CooArray(self.data, pattern_of(self.col, self.row, is_dynamic=not self.is_known), flipped(self.shape))

    def tocoo(self) -> CooArray:
        return self

    def times(self, b: Builder, x: Tensor) -> Tensor:
        if self.is_known:
            order, col, offsets = self.pattern.indices.derived(("rows", self.shape[0]), self._rows)
            return b.csr_matmul(take(lift(b, self.data), order), col, offsets, x, width=longest(offsets))
        data, row, col = (lift(b, v) for v in (self.data, *self.arrays))
        rows, columns = self.shape
        if 0 in (*data.shape.dims, rows, columns):
            return b.zeros(
                (rows, *x.shape.dims[1:]), dtype=b.add(b.zeros_like(data).sum(), b.zeros_like(x).sum()).dtype
            )
        is_there = b.logical_and(b.compare("ge", col, 0), b.compare("lt", col, columns))
        terms = b.gather(x, col, axis=0)
        column = (*data.shape.dims, *(1,) * (terms.rank - 1))
        terms = b.where(b.reshape(is_there, column), b.reshape(data, column) * terms, 0)
        return b.scatter_add(terms, row, size=rows)

    def _rows(self) -> tuple[Any, np.ndarray, np.ndarray]:
        row, col = self.arrays
        order = row_order(row, col)
        row, col = (row, col) if order is None else (row[order], col[order])
        return order, col, offsets_of(row, self.shape[0])


class _Compressed(SparseArray):
    """A matrix in rows or columns: `data [Z]`, `indices [Z]`, and the offsets `indptr` of the rows or columns."""

    @property
    def indices(self) -> Any:
        """The column of each entry (CSR), or the row (CSC)."""
        return self.arrays[0]

    @property
    def indptr(self) -> Any:
        """The offset of each row (CSR) or column (CSC) in `data`, and the end of the last one."""
        return self.arrays[1]

    @property
    def width(self) -> int:
        """The number of entries of the longest row or column, at least 1; 0 if it is not known."""
        return longest(self.indptr) if self.is_known else 0

    def major(self) -> Any:
        """Return the row (CSR) or column (CSC) of each entry."""
        if self.is_known:
            return self.pattern.indices.derived("major", lambda: rows_of(self.indptr))
        entries = self.data.shape[0]
        return computed(self.arrays, lambda b: entry_rows(b, lift(b, self.indptr), entries))


class CsrArray(_Compressed):
    """A matrix in rows: entry `j` of row `i`, `indptr[i] <= j < indptr[i + 1]`, is `data[j]` in column `indices[j]`."""

    format: ClassVar[str] = "csr"

    def entries(self) -> Entries:
        return Entries(self.data, self.major(), self.indices, self.shape, not self.is_known)

    @classmethod
    def of_entries(cls, entries: Entries) -> CsrArray:
        data, col, offsets, _ = (entries.merged() if entries.is_known else entries).sorted_rows()
        return CsrArray(data, pattern_of(col, offsets, is_dynamic=not entries.is_known), entries.shape)

    @property
    def T(self) -> CscArray:
        """The transpose, in columns."""
        return CscArray(self.data, self.pattern, flipped(self.shape))

    def tocsr(self) -> CsrArray:
        return self

    def times(self, b: Builder, x: Tensor) -> Tensor:
        return b.csr_matmul(lift(b, self.data), self.indices, self.indptr, x, width=self.width)


class CscArray(_Compressed):
    """A matrix in columns: entry `j` of column `i`, `indptr[i] <= j < indptr[i + 1]`, is `data[j]` in row `indices[j]`."""

    format: ClassVar[str] = "csc"

    def entries(self) -> Entries:
        return Entries(self.data, self.indices, self.major(), self.shape, not self.is_known)

    @classmethod
    def of_entries(cls, entries: Entries) -> CscArray:
        return CsrArray.of_entries(entries.transposed).T

    @property
    def T(self) -> CsrArray:
        """The transpose, in rows."""
        return CsrArray(self.data, self.pattern, flipped(self.shape))

    def tocsc(self) -> CscArray:
        return self

    def times(self, b: Builder, x: Tensor) -> Tensor:
        data, rows = lift(b, self.data), self.shape[0]
        return b.csr_matmul_transposed(data, self.indices, self.indptr, x, columns=rows, width=self.width)


class BsrArray(SparseArray):
    """A matrix of dense blocks in rows: `data [Z, r, c]`, with the columns and offsets of blocks as in `CsrArray`."""

    format: ClassVar[str] = "bsr"

    @property
    def indices(self) -> Any:
        """The column of each block, in blocks."""
        return self.arrays[0]

    @property
    def indptr(self) -> Any:
        """The offset of each row of blocks, and the end of the last one."""
        return self.arrays[1]

    @property
    def blocksize(self) -> tuple[int, int]:
        """The numbers of rows and columns of a block."""
        _, rows, columns = self.data.shape
        return int(rows), int(columns)

    def _blocks(self) -> CsrArray:
        """Return the matrix whose entries are the numbers of the blocks."""
        (count, *_), (r, c) = self.data.shape, self.blocksize
        return CsrArray(np.arange(count, dtype=np.int32), self.pattern, (self.shape[0] // r, self.shape[1] // c))

    def entries(self) -> Entries:
        (r, c), blocks = self.blocksize, self._blocks().entries()

        def spread(b: Builder, blocks_at: Any, size: int, offsets: np.ndarray) -> Any:
            first = lift(b, blocks_at) * size
            return b.ravel(b.reshape(first, (*first.shape.dims, 1, 1)) + offsets)

        down, across = np.arange(r, dtype=np.int32)[:, None], np.arange(c, dtype=np.int32)[None]
        down, across = (np.ascontiguousarray(np.broadcast_to(v, (r, c))) for v in (down, across))
        if self.is_known:
            row = (blocks.row[:, None, None] * r + down).reshape(-1)
            col = (blocks.col[:, None, None] * c + across).reshape(-1)
        else:
            row = computed(self.arrays, lambda b: spread(b, blocks.row, r, down))
            col = computed(self.arrays, lambda b: spread(b, blocks.col, c, across))
        return Entries(self.data.reshape((self.nnz,)), row, col, self.shape, not self.is_known)

    @classmethod
    def of_entries(cls, entries: Entries) -> BsrArray:
        return cls.of_blocks(entries, (1, 1))

    @classmethod
    def of_blocks(cls, entries: Entries, blocksize: tuple[int, int]) -> BsrArray:
        """Return the blocks of a size that have entries.

        Raises:
            Error: The blocks do not divide the matrix, or the pattern is not known.
        """
        (r, c), (rows, columns) = blocksize, entries.shape
        if r < 1 or c < 1 or rows % r or columns % c:
            raise ShapeError(f"blocks {r}x{c} do not divide a matrix {rows}x{columns}")
        if not entries.is_known:
            raise Error("blocks need a pattern that is known while tracing, not tensors")
        across = max(columns // c, 1)
        key = entries.row.astype(np.int64) // r * across + entries.col // c
        blocks, number = np.unique(key, return_inverse=True)
        places = narrow(number * (r * c) + entries.row % r * c + entries.col % c)
        size = blocks.size * r * c

        def filled(b: Builder) -> Tensor:
            data = lift(b, entries.data)
            if 0 in (size, *data.shape.dims):
                return b.zeros((blocks.size, r, c), dtype=data.dtype)
            return b.reshape(b.scatter_add(data, places, size=size), (blocks.size, r, c))

        pattern = pattern_of(narrow(blocks % across), offsets_of(blocks // across, rows // r))
        return BsrArray(computed([entries.data], filled), pattern, entries.shape)

    def tobsr(self, blocksize: tuple[int, int] | None = None) -> BsrArray:
        return self if blocksize in (None, self.blocksize) else super().tobsr(blocksize)

    @property
    def T(self) -> BsrArray:
        """The transpose, with transposed blocks."""
        order, col, offsets, _ = self._blocks().entries().transposed.sorted_rows()

        def turned(b: Builder) -> Tensor:
            return b.transpose(take(lift(b, self.data), order), (0, 2, 1))

        data = computed([self.data, *self.arrays], turned)
        return BsrArray(data, pattern_of(col, offsets, is_dynamic=not self.is_known), flipped(self.shape))

    def times(self, b: Builder, x: Tensor) -> Tensor:
        data, (_, c), (rows, columns) = lift(b, self.data), self.blocksize, self.shape
        matrix = x if x.rank == 2 else b.reshape(x, (columns, 1))
        (count, *_), width = data.shape.dims, matrix.shape.dims[1]
        if 0 in (count, rows, columns, width):
            kind = b.add(b.zeros((), dtype=data.dtype), b.zeros((), dtype=x.dtype)).dtype
            return b.zeros((rows, *x.shape.dims[1:]), dtype=kind)
        parts = b.gather(b.reshape(matrix, (columns // c, c, width)), self.indices, axis=0)
        terms = b.matmul(data, parts)
        ones, numbers = b.ones((count,), dtype=terms.dtype), np.arange(self.data.shape[0], dtype=np.int32)
        if self.is_known:
            sums = b.csr_matmul(ones, numbers, self.indptr, terms, width=longest(self.indptr))
        else:  # blocks whose column is out of range are dropped
            column = lift(b, self.indices)
            is_there = b.logical_and(b.compare("ge", column, 0), b.compare("lt", column, columns // c))
            sums = b.csr_matmul(ones, b.where(is_there, numbers, -1), self.indptr, terms)
        return b.reshape(sums, (rows, *x.shape.dims[1:]))


def with_format(matrix: SparseArray, format: str | None) -> Any:
    """Return a matrix in a format; unchanged if it is None."""
    return matrix if format is None else matrix.asformat(format)
