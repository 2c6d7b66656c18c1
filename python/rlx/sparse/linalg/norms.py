"""Norms of sparse matrices."""

from __future__ import annotations

from typing import Any

from rlx.ir.graph.builder import Builder
from rlx.sparse.array import FORMATS, SparseArray, container
from rlx.sparse.computing import computed, lift, located
from rlx.support.errors import Error
from rlx.support.short import short_repr

_INFINITY = float("inf")


@located
def norm(A: Any, ord: float | str | None = None) -> Any:
    """SciPy's `sparse.linalg.norm`: a norm of a sparse matrix. Entries at the same position are added before.

    Args:
        A: A sparse matrix, or a dense array.
        ord: None or "fro" for the Frobenius norm, 1 or -1 for the largest or smallest sum of magnitudes of a column, inf or
            -inf for that of a row.

    Raises:
        Error: It is another norm.
    """
    if ord not in (None, "fro", 1, -1, _INFINITY, -_INFINITY):
        raise Error(
            f"ord is None, 'fro', 1, -1, inf or -inf, got {short_repr(ord)}", hint="rlx.linalg.norm(A.todense(), ord)"
        )
    matrix: SparseArray = container(A)
    if matrix.is_known:
        matrix = FORMATS["csr"].of_entries(matrix.entries().merged())
    if ord in (None, "fro"):
        values = matrix.data if matrix.is_known else matrix.todense()

        def frobenius(b: Builder) -> Any:
            sizes = b.abs(lift(b, values))
            return b.sqrt(b.sum(sizes * sizes))

        return computed([values], frobenius)
    axis = 0 if ord in (1, -1) else 1
    if matrix.is_known:
        sums = abs(matrix).sum(axis=axis)
    else:
        dense = matrix.todense()
        sums = computed([dense], lambda b: b.sum(b.abs(lift(b, dense)), axes=axis))
    is_largest = ord in (1, _INFINITY)
    return computed([sums], lambda b: b.max(lift(b, sums)) if is_largest else b.min(lift(b, sums)))
