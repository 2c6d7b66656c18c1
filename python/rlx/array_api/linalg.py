"""The extension `linalg` of the array API, as far as there are no factorisations in it."""

from __future__ import annotations

import math
import operator
from typing import Any

from rlx.array_api.arrays import as_tensor, builder
from rlx.array_api.linear import matmul, matrix_transpose, tensordot, vecdot
from rlx.ir.errors import ShapeError
from rlx.ir.location import caller_location, describe

__all__ = [
    "cross",
    "diagonal",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "outer",
    "solve",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product along an axis of size 3."""
    return builder(x1, x2).cross(x1, x2, axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """A diagonal of the matrices of the last two axes."""
    return builder(x).diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal of the matrices of the last two axes."""
    from rlx.array_api.reductions import sum as total

    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of all elements of two vectors."""
    return builder(x1, x2).outer(x1, x2)


def solve(x1: Any, x2: Any, /) -> Any:
    """The solution of linear equations; `x2` is a vector or matrices."""
    b = builder(x1, x2)
    if x2.rank == 1:
        return b.squeeze(b.dense_solve(x1, b.expand_dims(x2, -1)), -1)
    return b.dense_solve(x1, x2)


def _order(name: str, x: Any) -> Any:
    """The number of rows of square matrices.

    Raises:
        ShapeError: They are none.
    """
    shape = as_tensor(x).shape
    if shape.rank < 2 or shape.dims[-1] != shape.dims[-2]:
        raise ShapeError(f"{name} takes square matrices […, n, n], got {shape}", location=describe(caller_location()))
    return shape.dims[-1]


def inv(x: Any, /) -> Any:
    """The inverse of matrices."""
    b, size = builder(x), _order("inv", x)
    return b.dense_solve(x, b.expand(b.eye(size, dtype=x.dtype), x.shape.dims))


def matrix_power(x: Any, n: int, /) -> Any:
    """A power of matrices, by an integer."""
    b, size, n = builder(x), _order("matrix_power", x), operator.index(n)
    if n < 0:
        return matrix_power(inv(x), -n)
    result = b.expand(b.eye(size, dtype=x.dtype), x.shape.dims)
    while n:
        result = b.matmul(result, x) if n & 1 else result
        n >>= 1
        x = b.matmul(x, x) if n else x
    return result


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A norm of matrices that needs no singular values: "fro", 1, -1, inf, -inf."""
    b = builder(x)
    if ord == "fro":
        return b.norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise NotImplementedError(f"the norm {ord!r} of a matrix needs its singular values, which there are not")
    summed, other = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = b.sum(b.abs(x), axis=summed, keepdims=True)
    result = (b.max if ord > 0 else b.min)(sums, axis=other, keepdims=True)
    return result if keepdims else b.squeeze(result, (-2, -1))


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """A norm of all elements along axes."""
    return builder(x).norm(x, ord, axis=axis, keepdims=keepdims)
