"""Pseudo-inverses, least squares and ranks. Their derivatives hold where the rank is constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.functions.factorization.operands import adjoint, as_columns, as_inexact, as_system, scaled_columns, unit
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import LstsqResult
from rlx.ops.factorization.matrices import order_of
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# The number of derivatives that do not go through singular vectors.
_ORDERS = 2


def _above(b: Builder, s: Tensor, a: Tensor, rtol: TensorLike | None) -> Tensor:
    """Return which singular values `[…, K]` exceed a fraction of the largest one."""
    sizes = order_of(a.shape, square=False)
    share = max(sizes) * float(np.finfo(s.dtype.numpy).eps) if rtol is None else rtol
    share = b.expand_dims(share, -1) if isinstance(share, (Tensor, np.ndarray)) and share.ndim else share
    return s > b.max(s, axes=-1, keep_dims=True) * share


@helper
def pinv(b: Builder, a: TensorLike, rtol: TensorLike | None = None, *, hermitian: bool = False) -> Tensor:
    """NumPy's `linalg.pinv`: the pseudo-inverse `[…, N, M]` of `a […, M, N]`.

    The first two derivatives hold also for equal singular values, where the rank is constant: G. Golub, V. Pereyra,
    "The differentiation of pseudo-inverses", 1973, theorem 4.3.

    Args:
        b: The builder.
        a: Matrices.
        rtol: Singular values up to `rtol` times the largest count as zero: a number, or numbers `[…]`. By default
            `max(M, N)` times the precision of the dtype.
        hermitian: Whether the matrices are hermitian. Only their lower triangles are read.
    """
    a = as_inexact(b, a)
    rows, columns = order_of(a.shape, square=False)
    if hermitian and rows != columns:
        raise ShapeError(f"hermitian matrices are square, not {a.shape}")
    if 0 in (rows, columns):
        return b.swapaxes(a, -1, -2)
    if hermitian:
        a = b.tril(a) + adjoint(b, b.tril(a, -1))
    return _pseudo_inverse(b, a, rtol, hermitian, _ORDERS)


def _factors(b: Builder, a: Tensor, rtol: TensorLike | None, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return `u`, the inverses of the singular values that count, else 0, and `v`: `pinv(a) = v·diag(inverses)·uᴴ`."""
    if hermitian:
        values, u = b.eigh(a)
        v = u
    else:
        u, values, vh = b.svd(a, full_matrices=False)
        v = adjoint(b, vh)
    counts = _above(b, b.abs(values), a, rtol)
    return u, b.where(counts, 1.0 / b.where(counts, values, 1.0), b.where(values == values, 0.0, values)), v


def _pseudo_inverse(b: Builder, a: Tensor, rtol: TensorLike | None, hermitian: bool, orders: int) -> Tensor:
    """Return the pseudo-inverse, with `orders` derivatives by their own rule."""

    def inverted(a: Tensor) -> Tensor:
        b = a.builder
        u, inverses, v = _factors(b, a, rtol, hermitian)
        return b.matmul(scaled_columns(b, v, inverses), adjoint(b, u))

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        (a,), (da,) = args, tangents
        b, p = a.builder, _pseudo_inverse(a.builder, a, rtol, hermitian, orders - 1)
        ph, dah, (rows, columns) = adjoint(b, p), adjoint(b, da), order_of(a.shape, square=False)
        outside = unit(b, rows, a) - b.matmul(a, p)
        beside = unit(b, columns, a) - b.matmul(p, a)
        through = b.matmul(b.matmul(p, ph), b.matmul(dah, outside)) + b.matmul(beside, b.matmul(dah, b.matmul(ph, p)))
        return through - b.matmul(p, b.matmul(da, p))

    return b.custom_fn(inverted, a, jvp=pushed) if orders else inverted(a)


@helper
def matrix_rank(b: Builder, a: TensorLike, *, rtol: TensorLike | None = None) -> Tensor:
    """NumPy's `linalg.matrix_rank`: the number of singular values above `rtol` times the largest; i32.

    It is 0 for matrices that contain NaN. `rtol` is a number, or numbers `[…]`; by default `max(M, N)` times the
    precision of the dtype.
    """
    a = as_inexact(b, a)
    if 0 in order_of(a.shape, square=False):
        return b.expand(b.constant(0, dtype="i32"), a.shape.dims[:-2])
    return _count(b, b.svd(a, full_matrices=False)[1], a, rtol)


def _count(b: Builder, s: Tensor, a: Tensor, rtol: TensorLike | None) -> Tensor:
    return b.sum(cast(b, _above(b, s, a, rtol), i32), axes=-1)


@helper
def lstsq(builder: Builder, a: TensorLike, b: TensorLike, rcond: TensorLike | None = None) -> LstsqResult:
    """NumPy's `linalg.lstsq`: the minimum-norm solution `x` of least squares `a·x = b`, for any rank, and batches.

    The first two derivatives of `x` hold where the rank of `a` is constant, also for equal singular values.

    Args:
        builder: The builder.
        a: Matrices `[…, M, N]`.
        b: `[M]` or `[…, M, K]`; batches broadcast.
        rcond: Singular values up to `rcond` times the largest count as zero. By default `max(M, N)` times the precision
            of the dtype.

    Returns:
        `x`, `[…, N]` or `[…, N, K]`. `residuals`, the sums of squares of `b - a·x`, `[…, 1]` or `[…, K]`; for `M <= N`
        they are empty, `[…, 0]`, as in NumPy. NumPy's are also empty where the rank is smaller than N: a graph returns
        the sums there. `rank`, i32 `[…]`. `s`, the singular values `[…, min(M, N)]`.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    a, b = as_system(builder, a, b)
    rows, columns = order_of(a.shape, square=False)
    kind, right = a.dtype, as_columns(builder, b, rows, a)
    a, right = (statistics_input(builder, t) for t in (a, right))
    if 0 in (rows, columns):
        x = builder.zeros((*a.shape.dims[:-2], columns, right.shape.dims[-1]), a.dtype)
        x = x + 0.0 * builder.sum(right, axes=-2, keep_dims=True)
        s = builder.zeros((*a.shape.dims[:-2], 0), builder.abs(a).dtype)
        rank = builder.zeros(a.shape.dims[:-2], "i32")
    else:
        x = _least_squares(builder, a, right, rcond, _ORDERS)
        s = builder.svd(a, full_matrices=False)[1]
        rank = _count(builder, s, a, rcond)
    misses = builder.abs(right - builder.matmul(a, x))
    residuals = builder.sum(misses * misses, axes=-2)
    if rows <= columns:
        residuals = builder.narrow(residuals, -1, 0, 0)
    x, real = builder.squeeze(x, -1) if b.rank == 1 else x, builder.abs(builder.zeros((), kind)).dtype
    return LstsqResult(cast(builder, x, kind), cast(builder, residuals, real), rank, cast(builder, s, real))


def _least_squares(b: Builder, a: Tensor, x: Tensor, rtol: TensorLike | None, orders: int) -> Tensor:
    """Return `pinv(a)·x` for `a […, M, N]` and `x […, M, K]`, with `orders` derivatives by their own rule."""

    def solved(a: Tensor, x: Tensor) -> Tensor:
        b = a.builder
        u, inverses, v = _factors(b, a, rtol, False)
        return b.matmul(scaled_columns(b, v, inverses), b.matmul(adjoint(b, u), x))

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        """Return the tangent of `pinv(a)·x` by that of `pinv(a)`, without a product of two square matrices."""
        (a, x), (da, dx) = args, tangents
        b, dah = a.builder, adjoint(a.builder, da)
        p, y = _pseudo_inverse(b, a, rtol, False, orders - 1), _least_squares(b, a, x, rtol, orders - 1)
        ph = adjoint(b, p)
        direct = b.matmul(p, dx - b.matmul(da, y) + b.matmul(ph, b.matmul(dah, x - b.matmul(a, y))))
        beside = b.matmul(dah, b.matmul(ph, y))
        return direct + beside - b.matmul(p, b.matmul(a, beside))

    return b.custom_fn(solved, a, x, jvp=pushed) if orders else solved(a, x)
