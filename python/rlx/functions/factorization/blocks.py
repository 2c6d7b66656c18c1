"""Matrices made of others: diagonals, blocks, and products of several matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import as_tensors, broadcast, common
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer
from rlx.support.short import short_repr


@helper
def matrix_transpose(b: Builder, x: TensorLike) -> Tensor:
    """The array API's `linalg.matrix_transpose`: the last two axes swapped, `[…, N, M]` of `[…, M, N]`."""
    (x,) = common(b, x)
    if x.rank < 2:
        raise ShapeError(f"expected matrices […, M, N], got {x.shape}")
    return b.swapaxes(x, -1, -2)


@helper
def block_diag(b: Builder, *arrays: TensorLike) -> Tensor:
    """SciPy's `linalg.block_diag`: matrices `[…, M, N]` along the diagonal, 0 elsewhere; batches broadcast.

    A vector `[N]` is a matrix of one row, a scalar one of one element.

    Raises:
        ShapeError: There are none.
    """
    if not arrays:
        raise ShapeError("expected at least one matrix")
    xs = common(b, *arrays)
    xs = [b.reshape(x, (1,) * (2 - x.rank) + tuple(x.shape.dims)) if x.rank < 2 else x for x in xs]
    batch = broadcast(*(x.shape.dims[:-2] for x in xs))
    xs = [b.broadcast_to(x, (*batch, *x.shape.dims[-2:])) for x in xs]
    columns = [x.shape.dims[-1] for x in xs]
    rows: list[Tensor] = []
    for place, x in enumerate(xs):
        height = x.shape.dims[-2]
        row = [x if i == place else b.zeros((*batch, height, width), x.dtype) for i, width in enumerate(columns)]
        rows.append(row[0] if len(row) == 1 else b.concat(row, axis=x.rank - 1))
    return rows[0] if len(rows) == 1 else b.concat(rows, axis=rows[0].rank - 2)


@helper
def diag_set(b: Builder, a: TensorLike, values: TensorLike, offset: int = 0) -> Tensor:
    """Return matrices `a […, M, N]` with diagonal `offset` replaced by `values […, K]`; values broadcast.

    Args:
        b: The builder.
        a: Matrices.
        values: The elements of the diagonal, from the first row on, or a scalar.
        offset: The diagonal; positive above the main one, negative below.

    Raises:
        ShapeError: The diagonal has another length.
    """
    if not is_integer(offset):
        raise ShapeError(f"offset is an integer, not {short_repr(offset)}")
    a, values = common(b, a, values)
    if a.rank < 2:
        raise ShapeError(f"expected matrices […, M, N], got {a.shape}")
    rows, columns = a.shape.dims[-2:]
    length = b.diagonal(a, offset, -2, -1).shape.dims[-1]
    if values.rank and values.shape.dims[-1] not in (1, length):
        raise ShapeError(f"diagonal {offset} of {a.shape} has {length} elements, got {values.shape}")
    if length == 0:
        return a
    row, column = max(-int(offset), 0), max(int(offset), 0)
    spread = values
    if values.rank and values.shape.dims[-1] != 1:  # by rows: element k is in row k + row
        after = rows - row - length
        spread = b.pad(values, [(0, 0)] * (values.rank - 1) + [(row, after)])
    spread = b.expand_dims(spread, -1) if values.rank else spread
    return b.where(b.eye(rows, columns, k=column - row, dtype="bool"), spread, a)


@helper
def multi_dot(b: Builder, arrays: Sequence[TensorLike]) -> Tensor:
    """NumPy's `linalg.multi_dot`: the product of several matrices, in the order with the fewest multiplications.

    Args:
        b: The builder.
        arrays: At least two matrices; the first and the last may be vectors. If a size is symbolic, the product is
            taken from left to right.

    Raises:
        ShapeError: There are fewer than two, or their shapes do not fit together.
    """
    values = as_tensors(arrays)
    if len(values) < 2 or all(isinstance(x, (int, float, complex)) for x in values):
        raise ShapeError("expected at least two matrices", hint="instead: g.multi_dot([a, b, c])")
    xs = common(b, *values)
    first, last = xs[0].rank == 1, xs[-1].rank == 1
    xs[0] = b.expand_dims(xs[0], 0) if first else xs[0]
    xs[-1] = b.expand_dims(xs[-1], 1) if last else xs[-1]
    if any(x.rank != 2 for x in xs):
        raise ShapeError(
            f"expected matrices, and vectors only at the ends, got {', '.join(str(x.shape) for x in xs)}",
            hint="a @ b @ c for batches",
        )
    for x, y in pairwise(xs):
        if x.shape.dims[1] != y.shape.dims[0]:
            raise ShapeError(f"{x.shape} and {y.shape} have no product: {x.shape.dims[1]} and {y.shape.dims[0]} differ")
    result = _multiplied(b, xs, _splits([xs[0].shape.dims[0], *(x.shape.dims[1] for x in xs)]), 0, len(xs) - 1)
    result = b.squeeze(result, 0) if first else result
    return b.squeeze(result, -1) if last else result


def _splits(sizes: Sequence[object]) -> dict[tuple[int, int], int]:
    """Return where to split the product of matrices i to j, by the classical dynamic programme."""
    count = len(sizes) - 1
    static = [d for d in sizes if type(d) is int]
    if len(static) != len(sizes):
        return {(i, j): j - 1 for i in range(count) for j in range(i + 1, count)}
    costs = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            costs[i, j], splits[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + static[i] * static[k + 1] * static[j + 1], k) for k in range(i, j)
            )
    return splits


def _multiplied(b: Builder, xs: list[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return xs[i]
    k = splits[i, j]
    return b.matmul(_multiplied(b, xs, splits, i, k), _multiplied(b, xs, splits, k + 1, j))
