"""Functions that make sparse matrices: identities, diagonals, Kronecker products, blocks and triangles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.lift import common
from rlx.sparse.array import SparseArray, container
from rlx.sparse.computing import computed, is_tensor, lift, located, numbers
from rlx.sparse.constructors import checked_shape
from rlx.sparse.entries import Entries, inside, joined
from rlx.sparse.formats import CooArray, CsrArray, with_format
from rlx.sparse.indices import narrow
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_integer
from rlx.support.short import short_repr


@located
def eye_array(m: int, n: int | None = None, *, k: int = 0, dtype: Any = f32, format: str | None = None) -> Any:
    """Return a matrix with ones on a diagonal.

    Args:
        m: The number of rows.
        n: The number of columns; by default `m`.
        k: The diagonal: positive above the main one.
        dtype: The dtype.
        format: The format; by default CSR.

    Raises:
        Error: A size is negative.
    """
    shape = checked_shape((m, m if n is None else n))
    size = max(0, min(shape[0] + min(k, 0), shape[1] - max(k, 0)))
    place = np.arange(size, dtype=np.int32)
    ones = np.ones(size, dtype_named(dtype).numpy)
    return with_format(CsrArray.of_entries(Entries(ones, place + max(-k, 0), place + max(k, 0), shape)), format)


@located
def diags_array(diagonals: Any, *, offsets: Any = 0, shape: Any = None, format: str | None = None) -> Any:
    """Return a matrix with the given diagonals.

    Args:
        diagonals: A vector for each offset, or one vector for one offset. A number, or a vector of one, is repeated.
        offsets: The diagonals: positive above the main one.
        shape: The numbers of rows and columns; by default the smallest square matrix that fits the first diagonal.
        format: The format; by default CSR.

    Raises:
        Error: A diagonal does not fit, or two have the same offset.
    """
    if is_integer(offsets):
        places, lines = [int(offsets)], [diagonals]
        one = isinstance(diagonals, (list, tuple)) and len(diagonals) == 1 and len(np.shape(_plain(diagonals[0]))) == 1
        lines = [diagonals[0]] if one else lines
    else:
        places, lines = [int(k) for k in offsets], list(diagonals)
    if len(places) != len(lines):
        raise ShapeError(f"{len(lines)} diagonals for {len(places)} offsets")
    if len(set(places)) != len(places):
        raise Error("offsets has the same diagonal twice")
    values = [numbers(line, "a diagonal") for line in lines]
    if not values:
        raise Error("diags_array takes one diagonal or more")
    if shape is None:
        size = (int(values[0].shape[0]) if len(values[0].shape) else 1) + abs(places[0])
        shape = (size, size)
    rows, columns = checked_shape(shape)
    parts: list[Entries] = []
    for k, value in zip(places, values, strict=True):
        count = min(rows + min(k, 0), columns - max(k, 0))
        if count < 0:
            raise ShapeError(f"diagonal {k} is outside of a matrix {rows}x{columns}")
        place = np.arange(count, dtype=np.int32)
        parts.append(Entries(_line(value, count, k), place + max(-k, 0), place + max(k, 0), (rows, columns)))
    parts = _in_one_dtype(parts)
    return with_format(CsrArray.of_entries(joined(parts, (rows, columns))), format)


def _plain(value: Any) -> Any:
    return np.zeros(tuple(value.shape)) if is_tensor(value) else value


def _line(value: Any, count: int, k: int) -> Any:
    """Return a diagonal of a size. One number is repeated."""
    dims = tuple(value.shape)
    if dims == (count,):
        return value
    if dims in ((), (1,)):
        if is_tensor(value):
            return value.builder.expand(value.reshape((1,)), (count,))
        return np.broadcast_to(value.reshape(1), (count,)).copy()
    raise ShapeError(f"diagonal {k} has {count} entries, got the shape {dims}")


def _in_one_dtype(parts: Sequence[Entries]) -> list[Entries]:
    """Return lists of entries whose numbers have one dtype, if some are tensors."""
    if not any(is_tensor(p.data) for p in parts):
        return list(parts)
    data = computed([p.data for p in parts], lambda b: common(b, *(lift(b, p.data) for p in parts)))
    return [replace(p, data=d) for d, p in zip(data, parts, strict=True)]


@located
def kron(A: Any, B: Any, format: str | None = None) -> Any:
    """Return the Kronecker product of two sparse matrices, by default in coordinates.

    Raises:
        Error: A pattern is dynamic.
    """
    a, b = container(A, "A").entries(), container(B, "B").entries()
    if not a.is_known or not b.is_known:
        raise Error("kron needs patterns that are known while tracing, not tensors")
    row, col = (
        (np.int64(size) * x.astype(np.int64)[:, None] + y).reshape(-1)
        for x, y, size in ((a.row, b.row, b.shape[0]), (a.col, b.col, b.shape[1]))
    )

    def multiplied(g: Builder) -> Tensor:
        x, y = common(g, lift(g, a.data), lift(g, b.data))
        return g.ravel(g.reshape(x, (*x.shape.dims, 1)) * y)

    are_arrays = not is_tensor(a.data) and not is_tensor(b.data)
    data = np.multiply.outer(a.data, b.data).reshape(-1) if are_arrays else computed([a.data, b.data], multiplied)
    shape = (a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])
    return with_format(CooArray.of_entries(Entries(data, narrow(row), narrow(col), shape)), format)


@located
def vstack(blocks: Sequence[Any], format: str | None = None) -> Any:
    """Return matrices one below the other; by default CSR if the patterns are known.

    Raises:
        Error: There is none, or the numbers of columns differ.
    """
    return _stacked(blocks, 0, format)


@located
def hstack(blocks: Sequence[Any], format: str | None = None) -> Any:
    """Return matrices side by side; by default CSR if the patterns are known.

    Raises:
        Error: There is none, or the numbers of rows differ.
    """
    return _stacked(blocks, 1, format)


def _stacked(blocks: Sequence[Any], axis: int, format: str | None) -> Any:
    matrices = [container(m, "a block") for m in blocks]
    if not matrices:
        raise Error("expected one matrix or more")
    other = 1 - axis
    if len({m.shape[other] for m in matrices}) > 1:
        raise ShapeError(
            f"the matrices have different numbers of {('rows', 'columns')[other]}: {[m.shape for m in matrices]}"
        )
    starts = np.cumsum([0, *(m.shape[axis] for m in matrices)])
    total = int(starts[-1])
    shape = (total, matrices[0].shape[1]) if axis == 0 else (matrices[0].shape[0], total)
    parts = _in_one_dtype([_moved(m.entries(), axis, int(s), shape) for m, s in zip(matrices, starts, strict=False)])
    entries = joined(parts, shape)
    if not entries.is_known:
        return with_format(CooArray.of_entries(entries), format)
    return with_format(CsrArray.of_entries(entries), format)


def _moved(entries: Entries, axis: int, start: int, shape: tuple[int, int]) -> Entries:
    """Return the entries of a block of a larger matrix. Those that are out of range in the block are so there as well."""
    places = [entries.row, entries.col]
    if entries.is_known:
        places[axis] = narrow(places[axis].astype(np.int64) + start)
    else:
        is_there = inside(entries)

        def shifted(b: Builder) -> list[Tensor]:
            moved = [lift(b, p) + (start if i == axis else 0) for i, p in enumerate(places)]
            return [b.where(is_there, p, -1) for p in moved]

        places = computed([entries.row, entries.col], shifted)
    return Entries(entries.data, places[0], places[1], shape, entries.is_dynamic)


@located
def tril(A: Any, k: int = 0, format: str | None = None) -> Any:
    """Return the entries on and below the `k`-th diagonal, in the format of the matrix."""
    return _triangle(A, k, format, lower=True)


@located
def triu(A: Any, k: int = 0, format: str | None = None) -> Any:
    """Return the entries on and above the `k`-th diagonal, in the format of the matrix."""
    return _triangle(A, k, format, lower=False)


def _triangle(A: Any, k: int, format: str | None, *, lower: bool) -> SparseArray:
    if not is_integer(k):
        raise Error(f"k is the number of a diagonal, got {short_repr(k)}")
    matrix = container(A)
    entries = matrix.entries()
    if entries.is_known:
        offset = entries.col.astype(np.int64) - entries.row
        chosen = entries.chosen(offset <= k if lower else offset >= k)
        kept: Any = {"csc": "csc", "coo": "coo"}.get(matrix.format, "csr")
        return CooArray.of_entries(chosen).asformat(format or kept)

    def masked(b: Builder) -> Tensor:
        offset = lift(b, entries.col) - lift(b, entries.row)
        is_chosen = b.compare("le" if lower else "ge", offset, k)
        return b.where(is_chosen, lift(b, entries.data), 0)

    data = computed([entries.data, entries.row, entries.col], masked)
    return with_format(CooArray.of_entries(replace(entries, data=data)), format)
