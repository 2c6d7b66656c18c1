"""Determinants: polynomials of the elements, which have derivatives also at singular matrices, and their logarithms."""

from __future__ import annotations

import math

from rlx.functions.factorization.operands import as_inexact
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import SlogdetResult
from rlx.ops.elementwise.activation import direction
from rlx.ops.factorization.matrices import order_of
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper


@helper
def det(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.det`: the determinant of the matrices `[…, N, N]`.

    Its derivative is that of the polynomial, the cofactors, also at singular matrices. Second derivatives are correct
    up to `N = 3`, and for larger N where the rank is at least `N - 1`.
    """
    a = as_inexact(b, a)
    size, _ = order_of(a.shape, square=True)
    batch = a.shape.dims[:-2]
    matrices = statistics_input(b, b.reshape(a, (product(batch), size, size)))
    found = _expanded(b, matrices) if size <= 3 else _eliminated(b, matrices)
    return cast(b, b.reshape(found, batch), a.dtype)


def _expanded(b: Builder, a: Tensor) -> Tensor:
    """Expand along the first rows, for matrices `[B, N, N]` up to 3x3."""
    count, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    if size == 0:
        return b.ones((count,), a.dtype)
    (x, *rows) = ([a[:, i, j] for j in range(size)] for i in range(size))
    if size == 1:
        return x[0]
    if size == 2:
        return x[0] * rows[0][1] - x[1] * rows[0][0]
    y, z = rows
    first, second, third = (y[i] * z[j] - y[j] * z[i] for i, j in ((1, 2), (2, 0), (0, 1)))
    return x[0] * first + x[1] * second + x[2] * third


def _eliminated(b: Builder, a: Tensor) -> Tensor:
    """Eliminate matrices `[B, N, N]` with complete pivoting.

    The pivots decrease in magnitude, so for a matrix of rank N-1 only the last pivot is zero, and no derivative divides
    by the last pivot.
    """
    count, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    places = b.iota((size,), dtype="i32")

    def step(carry: tuple[Tensor, ...], _: None) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rest, rows, columns = carry  # the remaining rows and columns: 1.0 or 0.0, [B, N, 1] and [B, 1, N]
        is_left = rows * columns > 0.0
        scores = b.stop_gradient(b.where(is_left, b.abs(rest), -1.0))
        place = b.argmax(b.reshape(scores, (count, size * size)), 1)
        row, column = place // size, place % size
        is_row = b.reshape(b.reshape(row, (count, 1)) == places, (count, size, 1))
        is_column = b.reshape(b.reshape(column, (count, 1)) == places, (count, 1, size))
        pivot_row = b.sum(b.where(is_row, rest, 0.0), axes=1, keep_dims=True)
        pivot_column = b.sum(b.where(is_column, rest, 0.0), axes=2, keep_dims=True)
        pivot = b.sum(b.where(is_column, pivot_row, 0.0), axes=2, keep_dims=True)
        rows, columns = b.where(is_row, 0.0, rows), b.where(is_column, 0.0, columns)
        eliminated = rest - pivot_column * (pivot_row / b.where(pivot == 0.0, 1.0, pivot))
        rest = b.where(rows * columns > 0.0, eliminated, 0.0)
        return (rest, rows, columns), (b.reshape(pivot, (count,)), row, column)

    start = (a, b.ones((count, size, 1), a.dtype.part), b.ones((count, 1, size), a.dtype.part))
    _, (pivots, rows, columns) = b.scan(step, start, None, length=size)  # [N, B]
    # Large pivots are multiplied by small ones, so that the product overflows no earlier than necessary.
    half = size // 2
    pairs = b.narrow(pivots, 0, 0, half) * b.narrow(b.flip(pivots, 0), 0, 0, half)
    middle = b.narrow(pivots, 0, half, size - 2 * half)
    odd = b.remainder(_inversions(b, rows) + _inversions(b, columns), 2)
    return b.prod(b.concat([pairs, middle], axis=0), axes=0) * b.cast(1 - 2 * odd, a.dtype)


def _inversions(b: Builder, order: Tensor) -> Tensor:
    """Return the number of inversions of permutations `[N, B]`, as `[B]`."""
    size = order.shape.dims[0]
    falls = b.cast(b.expand_dims(order, 1) > b.expand_dims(order, 0), "i32")
    earlier = b.reshape(b.iota((size,), dtype="i32"), (size, 1, 1)) < b.reshape(
        b.iota((size,), dtype="i32"), (1, size, 1)
    )
    return b.sum(b.where(earlier, falls, 0), axes=(0, 1))


def _diagonal_and_sign(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the diagonal of the upper factor `[…, N]`, and the sign of the permutation `[…]`."""
    size, _ = order_of(a.shape, square=True)
    packed, pivots, _ = b.lu(a)
    moved = b.cast(pivots != b.iota((size,), dtype="i32"), "i32")
    odd = b.remainder(b.sum(moved, axes=-1), 2)
    return b.diagonal(packed, 0, -2, -1), b.cast(1 - 2 * odd, a.dtype)


@helper
def slogdet(b: Builder, a: TensorLike) -> SlogdetResult:
    """NumPy's `linalg.slogdet`: the sign of the determinant, and the logarithm of its magnitude.

    For singular matrices these are 0 and -∞, and the derivative is NaN or infinite. The derivative of `det` is finite.
    """
    diagonal, sign = _diagonal_and_sign(b, as_inexact(b, a))
    sizes = b.abs(diagonal)
    # The sign of a complex determinant varies with the matrix, that of a real one does not. `sign` has no derivative.
    if diagonal.dtype.is_complex:
        signs = b.prod(direction(b, diagonal, sizes), axes=-1) * sign
    else:
        signs = b.stop_gradient(b.prod(b.sign(diagonal), axes=-1) * sign)
    return SlogdetResult(signs, b.sum(b.log(sizes), axes=-1))


@helper
def logdet(b: Builder, a: TensorLike) -> Tensor:
    """PyTorch's `logdet`: the logarithm of the determinant of the matrices `[…, N, N]`.

    It is -∞ for singular matrices, and NaN for real ones with a negative determinant. The logarithm of a complex
    determinant is its principal value.
    """
    sign, size = slogdet(b, a)
    return b.log(sign) + size if sign.dtype.is_complex else b.where(sign < 0.0, math.nan, size)
