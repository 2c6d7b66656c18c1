"""Lists of entries with rows and columns: the form in which the structure of sparse matrices is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.sparse.computing import computed, concatenated, lift, sums, take
from rlx.sparse.indices import flipped, longest, narrow, offsets_of, row_order


@dataclass(frozen=True)
class Entries:
    """Entries of a matrix. Those at the same position are added.

    Attributes:
        data: A number for each, a tensor or an array.
        row: The rows, arrays or tensors. Entries of tensors whose row or column is out of range do not count.
        col: The columns.
        shape: The numbers of rows and columns.
        is_dynamic: Whether the pattern was computed from tensors, even if rows and columns are arrays by now, as those of
            results of `rlx.jit`. Indices may be out of range then.
    """

    data: Any
    row: Any
    col: Any
    shape: tuple[int, int]
    is_dynamic: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the pattern is known while tracing."""
        return not self.is_dynamic and isinstance(self.row, np.ndarray) and isinstance(self.col, np.ndarray)

    @property
    def transposed(self) -> Entries:
        return Entries(self.data, self.col, self.row, flipped(self.shape), self.is_dynamic)

    def chosen(self, kept: np.ndarray) -> Entries:
        """Return the entries at some positions, or those where a mask is True. The pattern must be known."""
        positions = narrow(np.flatnonzero(kept)) if kept.dtype == bool else kept
        return Entries(take(self.data, positions), self.row[positions], self.col[positions], self.shape)

    def sorted_rows(self) -> tuple[Any, Any, Any, int]:
        """Return data, columns, offsets of rows and `width`, in the order of rows. Entries are not added."""
        if not self.is_known:
            return self._sorted_tensors()
        order = row_order(self.row, self.col)
        row, col = (self.row, self.col) if order is None else (self.row[order], self.col[order])
        offsets = offsets_of(row, self.shape[0])
        return take(self.data, order), col, offsets, longest(offsets)

    def _sorted_tensors(self) -> tuple[Any, Any, Any, int]:
        def arranged(b: Builder) -> tuple[Tensor, Tensor, Tensor]:
            data, row, col = (lift(b, v) for v in (self.data, self.row, self.col))
            rows, columns = self.shape
            is_inside = _inside(b, row, rows) & _inside(b, col, columns)
            place = b.where(is_inside, row, b.full_like(row, rows))
            order = b.argsort(place, axis=0)
            counts = b.scatter_add(b.ones(row.shape.dims, dtype=i32), b.cast(place, i32), size=rows + 1)
            offsets = b.cumsum(counts, axis=0, exclusive=True)  # the last one is that of the entries without a row
            return b.gather(data, order, axis=0), b.gather(col, order, axis=0), offsets

        data, col, offsets = computed([self.data, self.row, self.col], arranged)
        return data, col, offsets, 0

    def merged(self) -> Entries:
        """Return the entries in the order of rows, with one at each position. The pattern must be known."""
        key = self.row.astype(np.int64) * max(self.shape[1], 1) + self.col
        if key.size == 0 or bool((key[1:] > key[:-1]).all()):
            return self
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        if first.size == key.size:
            data = take(self.data, narrow(order))
        else:
            offsets = narrow(np.append(first, key.size))
            data = sums(self.data, narrow(order), offsets, longest(offsets))
        kept = order[first]
        return Entries(data, self.row[kept], self.col[kept], self.shape)

    def dense(self) -> Any:
        """Return the matrix as a tensor, or as an array if neither data nor indices are tensors."""
        rows, columns = self.shape
        if self.is_known and isinstance(self.data, np.ndarray):
            result = np.zeros(self.shape, self.data.dtype)
            np.add.at(result, (self.row, self.col), self.data)
            return result

        def scattered(b: Builder) -> Tensor:
            data, row, col = (lift(b, v) for v in (self.data, self.row, self.col))
            zeros = b.zeros(self.shape, dtype=data.dtype)
            if 0 in (*data.shape.dims, *self.shape):
                return zeros
            if rows * columns < 2**31 and self.is_known:
                places = self.row.astype(np.int32) * np.int32(columns) + self.col.astype(np.int32)
                return b.reshape(b.scatter_add(data, places, size=rows * columns), self.shape)
            places = b.stack([row, col], axis=-1)
            return b.scatter_nd(zeros, places, data, reduction="add")

        return computed([self.data, self.row, self.col], scattered)


def _inside(b: Builder, index: Tensor, size: int) -> Tensor:
    return b.logical_and(index >= 0, index < size)


def inside(entries: Entries) -> Any:
    """Return whether each entry is in the matrix, as a tensor or an array."""
    if entries.is_known:
        return np.ones(entries.row.shape, bool)

    def masked(b: Builder) -> Tensor:
        row, col = lift(b, entries.row), lift(b, entries.col)
        return b.logical_and(_inside(b, row, entries.shape[0]), _inside(b, col, entries.shape[1]))

    return computed([entries.row, entries.col], masked)


def joined(parts: Sequence[Entries], shape: tuple[int, int]) -> Entries:
    """Return the entries of several lists, in a matrix of another shape."""
    data, row, col = (concatenated([getattr(p, n) for p in parts]) for n in ("data", "row", "col"))
    return Entries(data, row, col, shape, not all(p.is_known for p in parts))


def expansion(a: Entries, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of entries that a product multiplies.

    Args:
        a: The left matrix, with a known pattern.
        indptr: The offsets of the rows of the right matrix.

    Returns:
        For each pair, the position of the left entry and that of the right one.
    """
    starts = indptr[a.col].astype(np.int64)
    counts = indptr[a.col + 1].astype(np.int64) - starts
    left = np.repeat(np.arange(a.row.size), counts)
    within = np.arange(left.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, starts[left] + within
