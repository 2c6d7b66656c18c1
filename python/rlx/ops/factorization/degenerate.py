"""Derivatives of eigenvectors and singular vectors whose values are equal up to rounding.

Such vectors are any basis of their subspace, so that their derivatives do not exist. Those of functions of the subspace do,
such as a projector on it: they do not depend on the rotation of the basis, so that the antihermitian part of
`vectorsᴴ·cotangent` is zero.
"""

from __future__ import annotations

import numpy as np

from rlx.ir.dtype import c128, f64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.factorization.matrices import adjoint

_NAN = float("nan")


def rounding(x: Tensor) -> float:
    """Return the relative size of the rounding errors in values of matrices whose last size is that of `x`."""
    size = x.shape.dims[-1]
    assert isinstance(size, int)
    computed = np.finfo(np.float64 if x.dtype in (f64, c128) else np.float32).eps
    return 4 * size * float(computed) + 2 * float(np.finfo(x.dtype.numpy).eps)


def gaps_of(b: Builder, values: Tensor) -> Tensor:
    """Return `values[j] - values[i]`, `[…, N, N]`."""
    return b.expand_dims(values, -2) - b.expand_dims(values, -1)


def sums_of(b: Builder, values: Tensor) -> Tensor:
    """Return `values[j] + values[i]`, `[…, N, N]`."""
    return b.expand_dims(values, -2) + b.expand_dims(values, -1)


def are_close(b: Builder, gaps: Tensor, values: Tensor) -> Tensor:
    """Return which gaps are zero up to rounding: those of values `[…, N]`, `[…, N, N]`, or the values, `[…, 1, N]`.

    The diagonal counts as such.
    """
    largest = b.expand_dims(b.max(b.abs(values), axes=-1, keep_dims=True), -1)
    return b.abs(gaps) <= largest * rounding(values)


def quotient(b: Builder, x: Tensor, gaps: Tensor, close: Tensor, is_known: Tensor) -> Tensor:
    """Return `x/gaps`; where gaps are close to zero, it is 0 if the quotient is known to be 0, else NaN."""
    return b.where(close, b.where(is_known, 0.0, _NAN), x / b.where(close, 1.0, gaps))


def divided(b: Builder, x: Tensor, gaps: Tensor, close: Tensor) -> Tensor:
    """Return `x/gaps`; where gaps are close to zero, it is 0 if `x` is 0, else NaN."""
    return quotient(b, x, gaps, close, x == 0.0)


def divided_cotangent(
    b: Builder,
    x: Tensor,
    gaps: Tensor,
    close: Tensor,
    vectors: list[Tensor],
    values: Tensor | None,
    *,
    has_diagonal: bool = False,
) -> Tensor:
    """Return `x/gaps` for the antihermitian part `x` of `vectorsᴴ·cotangent`.

    Where gaps are close to zero, it is 0 if the function does not depend on the rotation of the vectors, that is if `x` is zero
    up to rounding, else NaN. Functions of the vectors and their values, such as `vectors·f(values)·vectorsᵀ`, have another
    derivative there, which these cotangents do not determine: it is NaN, unless the cotangents of both are exactly zero.

    Args:
        b: The builder.
        x: `[…, N, N]`.
        gaps: `[…, N, N]`.
        close: Which gaps are close to zero, `[…, N, N]`.
        vectors: The cotangents of vectors, `[…, M, N]`.
        values: The cotangent of the values, `[…, N]`; None if there is none.
        has_diagonal: Whether the diagonal of `x` may be other than 0.
    """
    squares = [b.sum(b.square(b.abs(v)), axes=-2) for v in vectors]
    lengths = b.sqrt(sums_of(b, squares[0] if len(squares) == 1 else squares[0] + squares[1]))
    is_known = are_zero(b, x, lengths) if values is None else lengths + sums_of(b, b.abs(values)) == 0.0
    if not has_diagonal:
        is_known = b.logical_or(is_known, b.eye(x.shape.dims[-1]) > 0.0)
    return quotient(b, x, gaps, close, is_known)


def are_zero(b: Builder, x: Tensor, lengths: Tensor) -> Tensor:
    """Return which elements of `x` are zero up to rounding, if they were computed from vectors with these lengths."""
    return b.abs(x) <= lengths * (4 * rounding(x))


def antihermitian(b: Builder, vectors: Tensor, cotangent: Tensor) -> Tensor:
    """Return `m - mᴴ` of `m = vectorsᴴ·cotangent`."""
    product = b.matmul(adjoint(b, vectors), cotangent)
    return product - adjoint(b, product)
