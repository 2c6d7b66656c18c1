"""Functions of hermitian matrices by their eigenvalues: roots and logarithms. Derivatives do not go through eigenvectors.

The tangent of `f(a)` is `v·(D ∘ vᴴ·da·v)·vᴴ`, where `D[i, j]` is the divided difference of f at two eigenvalues
(Ju. Daleckii, S. Krein, 1965). It is also right where eigenvalues are equal. For roots it is the solution of a Sylvester
equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.functions.factorization.logarithm import first_difference, second_difference
from rlx.functions.factorization.operands import adjoint, as_inexact, scaled_columns, transposed
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.degenerate import rounding, sums_of
from rlx.ops.factorization.matrices import order_of
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import UnsupportedError

Rule = Callable[..., Any]

_NAN = float("nan")
# The number of derivatives that hold for equal eigenvalues.
_ORDERS = 2


@helper
def sqrtm(b: Builder, a: TensorLike, *, hermitian: bool = True) -> Tensor:
    """SciPy's `linalg.sqrtm` of hermitian positive semi-definite matrices `[…, N, N]`: the positive semi-definite root.

    The root is NaN for a matrix with negative eigenvalues (beyond rounding), and for one that is not hermitian. The first
    two derivatives hold also for equal eigenvalues. Those of singular matrices are infinite or NaN.

    Args:
        b: The builder.
        a: Matrices.
        hermitian: True; roots of other matrices are not implemented.

    Raises:
        UnsupportedError: `hermitian` is False.
    """
    return _of_hermitian(b, a, hermitian, "sqrtm", _root)


@helper
def inv_sqrtm(b: Builder, a: TensorLike, *, hermitian: bool = True) -> Tensor:
    """The inverse of the root of hermitian positive definite matrices `[…, N, N]`: `sqrtm(a)⁻¹`.

    It is NaN for a matrix that is not hermitian, or that has an eigenvalue which is not above N times the precision of the
    dtype, relative to the largest. The first two derivatives hold also for equal eigenvalues.

    Args:
        b: The builder.
        a: Matrices.
        hermitian: True; roots of other matrices are not implemented.

    Raises:
        UnsupportedError: `hermitian` is False.
    """
    return _of_hermitian(b, a, hermitian, "inv_sqrtm", _inverse_root)


@helper
def logm(b: Builder, a: TensorLike, *, hermitian: bool = True) -> Tensor:
    """SciPy's `linalg.logm` of hermitian positive definite matrices `[…, N, N]`: the hermitian logarithm.

    It is NaN for a matrix that is not hermitian, or that has an eigenvalue which is not above N times the precision of the
    dtype, relative to the largest. The first two derivatives hold also for equal eigenvalues.

    Args:
        b: The builder.
        a: Matrices.
        hermitian: True; logarithms of other matrices are not implemented.

    Raises:
        UnsupportedError: `hermitian` is False.
    """
    return _of_hermitian(b, a, hermitian, "logm", _logarithm)


def _of_hermitian(b: Builder, a: TensorLike, hermitian: bool, name: str, function: Rule) -> Tensor:
    if not hermitian:
        raise UnsupportedError(
            f"{name} of matrices that are not hermitian is not implemented",
            hint="scipy.linalg on the host, or rlx.linalg.expm and solve, which take any matrix",
        )
    a = as_inexact(b, a)
    if 0 in (*order_of(a.shape, square=True), *a.shape.dims[:-2]):
        return a
    return cast(b, function(b, statistics_input(b, a), _ORDERS), a.dtype)


def _spectrum(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors, NaN for a matrix that is not hermitian up to the root of the precision."""
    ah = adjoint(b, a)
    apart = b.max(b.abs(a - ah), axes=(-2, -1), keep_dims=True)
    size = b.max(b.abs(a), axes=(-2, -1), keep_dims=True)
    is_hermitian = apart <= size * float(np.sqrt(np.finfo(size.dtype.numpy).eps))
    values, vectors = b.eigh(b.where(is_hermitian, 0.5 * (a + ah), _NAN))
    return values, vectors


def _composed(b: Builder, values: Tensor, vectors: Tensor) -> Tensor:
    """Return `v·diag(values)·vᴴ`."""
    return b.matmul(scaled_columns(b, vectors, values), adjoint(b, vectors))


def _positive(b: Builder, values: Tensor) -> Tensor:
    """Return eigenvalues, NaN where they are not above the rounding error of the largest."""
    size = values.shape.dims[-1]
    assert isinstance(size, int)
    least = b.max(b.abs(values), axes=-1, keep_dims=True) * (size * float(np.finfo(values.dtype.numpy).eps))
    return b.where(values > least, values, _NAN)


def _root(b: Builder, a: Tensor, orders: int) -> Tensor:
    def rooted(a: Tensor) -> Tensor:
        b = a.builder
        values, vectors = _spectrum(b, a)
        least = b.max(b.abs(values), axes=-1, keep_dims=True) * -rounding(values)
        values = b.where(values < least, _NAN, b.where(values < 0.0, 0.0, values))
        return _composed(b, b.sqrt(values), vectors)

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        """Return ds with `s·ds + ds·s = da`."""
        (a,), (da,) = args, tangents
        return symmetric_sylvester(a.builder, _root(a.builder, a, orders - 1), da, orders - 1)

    def pulled(args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Tensor:
        return symmetric_sylvester(args[0].builder, results[0], cotangents[0], orders - 1)

    return with_rules(b, rooted, [a], pushed, pulled) if orders else rooted(a)


def _inverse_root(b: Builder, a: Tensor, orders: int) -> Tensor:
    def inverted(a: Tensor) -> Tensor:
        b = a.builder
        values, vectors = _spectrum(b, a)
        return _composed(b, b.rsqrt(_positive(b, values)), vectors)

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        """Return `-r·ds·r` for the root s and its inverse r."""
        (a,), (da,) = args, tangents
        b, r = a.builder, _inverse_root(a.builder, a, orders - 1)
        ds = symmetric_sylvester(b, _root(b, a, orders - 1), da, orders - 1)
        return -b.matmul(r, b.matmul(ds, r))

    def pulled(args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Tensor:
        (a,), (r,), (dr,) = args, results, cotangents
        b = a.builder
        return symmetric_sylvester(b, _root(b, a, orders - 1), -b.matmul(r, b.matmul(dr, r)), orders - 1)

    return with_rules(b, inverted, [a], pushed, pulled) if orders else inverted(a)


def with_rules(b: Builder, function: Rule, args: list[Tensor], jvp: Rule, vjp: Rule) -> Any:
    """Return `function(*args)` with its own derivatives.

    A rule for cotangents avoids one derivative of the functions in the rule for tangents, which would be their last one.
    It is written for real numbers: the cotangents of complex ones are the transpose of the rule for tangents.
    """
    return b.custom_fn(function, *args, jvp=jvp, vjp=None if args[0].dtype.is_complex else vjp)


def symmetric_sylvester(b: Builder, p: Tensor, c: Tensor, orders: int) -> Tensor:
    """Return x with `p·x + x·p = c` for hermitian positive definite p, with `orders` derivatives by their own rule."""

    def solved(p: Tensor, c: Tensor) -> Tensor:
        b = p.builder
        values, v = b.eigh(p)
        inner = b.matmul(adjoint(b, v), b.matmul(c, v))
        return b.matmul(v, b.matmul(inner / cast(b, sums_of(b, values), inner.dtype), adjoint(b, v)))

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        (p, c), (dp, dc) = args, tangents
        b, x = p.builder, symmetric_sylvester(p.builder, p, c, orders - 1)
        return symmetric_sylvester(b, p, dc - b.matmul(dp, x) - b.matmul(x, dp), orders - 1)

    def pulled(
        args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        b, xt = args[0].builder, transposed(args[0].builder, results[0])
        dc = symmetric_sylvester(b, args[0], cotangents[0], orders - 1)
        return -(b.matmul(dc, xt) + b.matmul(xt, dc)), dc

    return with_rules(b, solved, [p, c], pushed, pulled) if orders else solved(p, c)


def _logarithm(b: Builder, a: Tensor, orders: int) -> Tensor:
    def taken(a: Tensor) -> Tensor:
        b = a.builder
        values, vectors = _spectrum(b, a)
        return _composed(b, b.log(_positive(b, values)), vectors)

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        return _logarithm_tangent(args[0].builder, args[0], tangents[0], orders - 1)

    def pulled(args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Tensor:
        return _logarithm_tangent(args[0].builder, args[0], cotangents[0], orders - 1)

    return with_rules(b, taken, [a], pushed, pulled) if orders else taken(a)


def _logarithm_tangent(b: Builder, a: Tensor, e: Tensor, orders: int) -> Tensor:
    """Return the tangent of the logarithm at a along e, which is linear in e."""

    def tangent(a: Tensor, e: Tensor) -> Tensor:
        b = a.builder
        values, v = _spectrum(b, a)
        values = _positive(b, values)
        inner = b.matmul(adjoint(b, v), b.matmul(e, v))
        weights = first_difference(b, b.expand_dims(values, -1), b.expand_dims(values, -2))
        return b.matmul(v, b.matmul(inner * cast(b, weights, inner.dtype), adjoint(b, v)))

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        (a, e), (da, de) = args, tangents
        return _logarithm_tangent(a.builder, a, de, orders - 1) + _logarithm_second(a.builder, a, e, da)

    def pulled(
        args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        (a, e), (dx,) = args, cotangents
        b = a.builder
        return _logarithm_second(b, a, transposed(b, e), dx), _logarithm_tangent(b, a, dx, orders - 1)

    return with_rules(b, tangent, [a, e], pushed, pulled) if orders else tangent(a, e)


def _logarithm_second(b: Builder, a: Tensor, e: Tensor, d: Tensor) -> Tensor:
    """Return the second derivative of the logarithm at a along e and d: a sum over k of differences at i, k and j."""
    values, v = _spectrum(b, a)
    values, vh = _positive(b, values), adjoint(b, v)
    first, second = (b.matmul(vh, b.matmul(t, v)) for t in (e, d))
    at_j = b.expand_dims(b.expand_dims(values, -2), -2)
    at_i, at_k = b.expand_dims(b.expand_dims(values, -1), -1), b.expand_dims(b.expand_dims(values, -2), -1)
    weights = cast(b, second_difference(b, at_i, at_k, at_j), first.dtype)
    products = b.expand_dims(first, -1) * b.expand_dims(second, -3) + b.expand_dims(second, -1) * b.expand_dims(
        first, -3
    )
    return b.matmul(v, b.matmul(b.sum(weights * products, axes=-2), vh))
