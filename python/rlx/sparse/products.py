"""Products with a bounded number of entries, sampled products, and sums of segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rlx.ir.dtype import bool_, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.lift import common
from rlx.sparse.array import SparseArray, as_container, check_inner, container
from rlx.sparse.computing import computed, is_tensor, lift, located, numbers, sums
from rlx.sparse.formats import CooArray, CscArray, CsrArray
from rlx.sparse.indices import check_range, index_array, longest, narrow, offsets_of
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_integer
from rlx.support.short import short_repr


@dataclass(frozen=True, eq=False, repr=False)
class SparseProduct(CooArray):
    """A product of matrices with dynamic patterns: a matrix in coordinates with room for `capacity` entries.

    Attributes:
        count: The number of entries in use, an i32 tensor.
        overflow: Whether the product has more terms than there is room for: then it is not complete.
    """

    format: ClassVar[str] = "coo"
    count: Any
    overflow: Any

    @property
    def nnz(self) -> Any:
        """The number of stored entries, a tensor."""
        return self.count


@located
def matmul(A: Any, B: Any, capacity: int | None = None) -> Any:
    """Return the product of two matrices, where one or both are sparse.

    Args:
        A: A sparse matrix; or a vector or matrix, if `B` is sparse.
        B: As `A`.
        capacity: The largest number of products of two entries, for two sparse matrices with dynamic patterns.

    Returns:
        A tensor, or for two sparse matrices a sparse one: `csr_array`, or with a `capacity` a matrix in coordinates, whose
        `nnz` is a tensor, and whose `overflow` is true if the capacity was not enough.

    Raises:
        Error: Neither is sparse, shapes do not fit, or patterns are dynamic and there is no capacity.
    """
    left, right = as_container(A), as_container(B)
    if not isinstance(left, SparseArray) and not isinstance(right, SparseArray):
        raise Error("matmul takes a sparse matrix, got two dense ones", hint="rlx.ops.matmul(a, b), or a @ b")
    if capacity is None or not (isinstance(left, SparseArray) and isinstance(right, SparseArray)):
        return left @ right
    if not is_integer(capacity) or capacity < 1:
        raise Error(f"capacity is the largest number of products, a positive integer, got {short_repr(capacity)}")
    check_inner(left, right)
    values = [left.data, *left.arrays, right.data, *right.arrays]
    row, col, data, count, overflow = computed(values, lambda b: _product(b, left, right, int(capacity)))
    return SparseProduct(data, (row, col), (left.shape[0], right.shape[1]), count, overflow)


def _product(b: Builder, left: SparseArray, right: SparseArray, capacity: int) -> tuple[Tensor, ...]:
    """Return rows, columns and numbers of a product, merged and followed by zeros; their number; whether there are more."""
    a, (data_b, col_b, indptr, _) = left.entries(), right.entries().sorted_rows()
    row, col, data_b, col_b, indptr = (lift(b, v) for v in (a.row, a.col, data_b, col_b, indptr))
    data_a, data_b = common(b, lift(b, a.data), data_b)
    rows, columns = left.shape[0], right.shape[1]
    if 0 in (*data_a.shape.dims, *data_b.shape.dims, rows, columns, left.shape[1]):
        empty = b.full((capacity,), -1, dtype=i32)
        return empty, empty, b.zeros((capacity,), dtype=data_a.dtype), b.zeros((), dtype=i32), b.zeros((), dtype=bool_)
    is_there = (row >= 0) & (row < rows) & (col >= 0) & (col < left.shape[1])
    start, stop = b.gather(indptr, col, axis=0), b.gather(indptr, col + 1, axis=0)
    number = b.where(is_there, stop - start, 0)
    ends = b.cumsum(b.cast(number, i32), axis=0)
    total = ends[-1]
    # The entry of A that product p belongs to is the number of entries whose products end at or before p.
    p = b.iota((capacity,), dtype=i32)
    first = b.cumsum(b.scatter_add(b.ones(ends.shape.dims, dtype=i32), ends, size=capacity), axis=0)
    is_used = p < total
    within = p - b.gather(ends - b.cast(number, i32), first, axis=0)
    second = b.cast(b.gather(start, first, axis=0), i32) + within
    out_col = b.cast(b.gather(col_b, second, axis=0), i32)
    out_row = b.where(is_used, b.cast(b.gather(row, first, axis=0), i32), rows)
    values = b.where(is_used, b.gather(data_a, first, axis=0) * b.gather(data_b, second, axis=0), 0)
    # Sort by column, then stably by row, and add equal positions.
    order = b.argsort(out_col, axis=0)
    order = b.gather(order, b.argsort(b.gather(out_row, order, axis=0), axis=0), axis=0)
    out_row, out_col, values = (b.gather(v, order, axis=0) for v in (out_row, out_col, values))
    fresh = b.concat([b.ones((1,), dtype=bool_), (out_row[1:] != out_row[:-1]) | (out_col[1:] != out_col[:-1])], axis=0)
    group = b.cumsum(b.cast(fresh, i32), axis=0) - 1
    place = b.where(out_row < rows, group, -1)
    merged = b.scatter_add(values, place, size=capacity)
    first_place = b.where(fresh, place, -1)
    places = [b.scatter_add(v + 1, first_place, size=capacity) - 1 for v in (out_row, out_col)]
    count = b.sum(b.cast(fresh & (out_row < rows), i32))
    return *places, merged, count, total > capacity


@located
def sddmm(pattern: Any, x: Any, y: Any) -> Any:
    """Return `x·yᵀ` at the positions of a sparse matrix (a sampled dense-dense product).

    Args:
        pattern: The sparse matrix `[M, N]`. Its numbers are not read.
        x: A matrix `[M, K]`.
        y: A matrix `[N, K]`.

    Returns:
        A matrix of the same format. Entries at the same position have the same number each.

    Raises:
        Error: Shapes do not fit.
    """
    like, left, right = container(pattern, "pattern"), numbers(x, "x"), numbers(y, "y")
    for name, dense, size in (("x", left, like.shape[0]), ("y", right, like.shape[1])):
        if len(dense.shape) != 2 or dense.shape[0] != size:
            raise ShapeError(f"{name} must be a matrix with {size} rows, got the shape {tuple(dense.shape)}")
    if left.shape[1] != right.shape[1]:
        raise ShapeError(f"x and y must have equally many columns, got {left.shape[1]} and {right.shape[1]}")
    data = computed([left, right, *like.arrays], lambda b: _sampled(b, like, *common(b, left, right)))
    return (
        type(like)(data, like.pattern, like.shape) if not isinstance(like, SparseProduct) else replace(like, data=data)
    )


def _sampled(b: Builder, like: SparseArray, x: Tensor, y: Tensor) -> Tensor:
    if isinstance(like, CsrArray):
        return b.csr_sampled_matmul(like.indices, like.indptr, x, y, width=like.width)
    if isinstance(like, CscArray):
        return b.csr_sampled_matmul(like.indices, like.indptr, y, x, width=like.width)
    entries = like.entries()
    dims = tuple(like.data.shape)
    if 0 in (*dims, *like.shape, *x.shape.dims):
        return b.zeros(dims, dtype=x.dtype)
    row, col = lift(b, entries.row), lift(b, entries.col)
    products = b.sum(b.gather(x, row, axis=0) * b.gather(y, col, axis=0), axes=[1])
    if not entries.is_known:
        is_there = (row >= 0) & (row < like.shape[0]) & (col >= 0) & (col < like.shape[1])
        products = b.where(is_there, products, 0)
    return b.reshape(products, dims)


@located
def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the sum of the rows of each segment, as in `jax.ops.segment_sum`.

    Args:
        data: Rows `[Z, …]`.
        segment_ids: The segment of each row: an array, or a tensor `[Z]` of integers.
        num_segments: The number of segments; for an array by default its largest number plus 1.

    Returns:
        `[num_segments, …]`: 0 for empty segments. Rows whose segment is out of range are dropped for tensors.

    Raises:
        Error: Sizes do not fit, or a number of an array is out of range.
    """
    rows = numbers(data, "data")
    ids = segment_ids if is_tensor(segment_ids) else index_array(segment_ids, "segment_ids")
    if len(rows.shape) < 1 or len(ids.shape) != 1 or rows.shape[0] != ids.shape[0]:
        raise ShapeError(f"data {tuple(rows.shape)} must have one row for each of segment_ids {tuple(ids.shape)}")
    if num_segments is None:
        if is_tensor(ids):
            raise Error("num_segments must be given, because segment_ids is a tensor")
        num_segments = int(ids.max(initial=-1)) + 1
    if not is_integer(num_segments) or num_segments < 0:
        raise Error(f"num_segments is a number of segments, got {short_repr(num_segments)}")
    size = int(num_segments)
    if is_tensor(ids):
        return computed([rows, ids], lambda b: b.scatter_add(lift(b, rows), ids, size=size))
    check_range(ids, size, "segment_ids")
    order = narrow(np.argsort(ids, kind="stable"))
    offsets = offsets_of(ids, size)
    return sums(rows, order, offsets, longest(offsets))
