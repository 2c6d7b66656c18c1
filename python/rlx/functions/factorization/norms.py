"""Norms of matrices, and condition numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlx.functions.factorization.operands import as_inexact
from rlx.functions.factorization.systems import inv
from rlx.functions.reduction.statistics import elements_norm
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.matrices import order_of
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_real
from rlx.support.short import short_repr

_ORDERS = (1, -1, 2, -2, math.inf, -math.inf)
_HINT = '"fro", "nuc", 1, -1, 2, -2, inf or -inf'


@helper
def vector_norm(
    b: Builder,
    x: TensorLike,
    ord: float | None = 2,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The array API's `linalg.vector_norm`: the norm `(sum |x|^ord)^(1/ord)` of the elements along any axes.

    `inf` is the largest magnitude, `-inf` the smallest, and 0 the number of nonzero elements. Where the norm is 0 its
    derivative is 0.

    Args:
        b: The builder.
        x: Numbers.
        ord: The order of the norm, a number; None is 2.
        axis: One axis, several, or None for all.
        keepdims: Whether to keep the reduced axes, with size 1.
    """
    ord = 2 if ord is None else ord
    if not is_real(ord):
        raise ShapeError(f"the order of a norm of vectors is a number, not {short_repr(ord)}")
    return elements_norm(b, x, ord, axis, keepdims)


@helper
def matrix_norm(b: Builder, a: TensorLike, ord: float | str = "fro", keepdims: bool = False) -> Tensor:
    """NumPy's `linalg.matrix_norm` of the matrices `[…, M, N]`: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    x = as_inexact(b, a)
    if x.rank < 2:
        raise ShapeError(f"expected matrices […, M, N], got {x.shape}")
    if ord == "fro":
        return b.norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord == "nuc" or ord in (2, -2):
        if 0 in order_of(x.shape, square=False):
            return _norm_of_nothing(b, x, ord, keepdims)
        s = b.svd(x, full_matrices=False)[1]
        result = (b.sum if ord == "nuc" else b.max if ord == 2 else b.min)(s, axes=-1)
        return b.expand_dims(b.expand_dims(result, -1), -1) if keepdims else result
    if ord not in _ORDERS:
        raise ShapeError(f"{ord!r:.60} is no norm of a matrix", hint=_HINT)
    summed, other = (-2, -1) if abs(ord) == 1 else (-1, -2)
    if x.shape.dims[other] == 0:
        return _norm_of_nothing(b, x, ord, keepdims)
    sums = b.sum(b.abs(x), axes=summed, keep_dims=True)
    result = (b.max if ord > 0 else b.min)(sums, axes=other, keep_dims=True)
    return result if keepdims else b.squeeze(result, (-2, -1))


def _norm_of_nothing(b: Builder, x: Tensor, ord: Any, keepdims: bool) -> Tensor:
    """Return the norm of matrices without elements: 0 for sums and maxima, an error for minima."""
    if ord != "nuc" and ord < 0:
        raise ShapeError(f"the norm {ord} of a {x.shape} is the smallest of no numbers", hint="ord=2 of it is 0")
    return b.zeros((*x.shape.dims[:-2], *((1, 1) if keepdims else ())), x.dtype)


@helper
def cond(b: Builder, a: TensorLike, p: float | str | None = None) -> Tensor:
    """NumPy's `linalg.cond`: the condition number in the norm `p`; ∞ for singular matrices, NaN for NaN.

    Args:
        b: The builder.
        a: Matrices `[…, M, N]`; square ones unless `p` is None, 2 or -2.
        p: The norm. None and 2 give the largest singular value divided by the smallest, -2 the reverse. "fro", "nuc",
            1, -1, inf and -inf give the product of the norms of the matrix and its inverse.

    Raises:
        ShapeError: The matrices have no elements, or there is no such norm.
    """
    a = as_inexact(b, a)
    if 0 in order_of(a.shape, square=p not in (None, 2, -2)):
        raise ShapeError(f"the matrices of a {a.shape} have no elements, and so no condition number")
    if p in (None, 2, -2):
        s = b.svd(a, full_matrices=False)[1]
        largest, smallest = b.max(s, axes=-1), b.min(s, axes=-1)
        if p == -2:
            return b.where(largest == 0.0, math.inf, smallest / b.where(largest == 0.0, 1.0, largest))
        return b.where(smallest == 0.0, math.inf, largest / b.where(smallest == 0.0, 1.0, smallest))
    if p not in ("fro", "nuc", *_ORDERS):
        raise ShapeError(f"{p!r:.60} is no norm of a matrix", hint=f"None, {_HINT}")
    inverse = inv(b, a)
    size = b.abs(inverse)
    # The inverse of a singular matrix may have elements that are NaN. It has no finite norm.
    is_regular = b.all(size < math.inf, axis=(-2, -1))
    product = matrix_norm(b, a, p) * matrix_norm(b, b.where(_over(b, is_regular), inverse, 0.0), p)
    is_known = b.all(a == a, axis=(-2, -1))
    return b.where(is_regular, product, b.where(is_known, math.inf, math.nan))


def _over(b: Builder, x: Tensor) -> Tensor:
    return b.expand_dims(b.expand_dims(x, -1), -1)
