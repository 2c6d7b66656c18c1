"""Functions computed from factorisations: inverses, determinants, least squares, ranks and norms, with NumPy's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import SlogdetResult
from rlx.ops import rules
from rlx.ops.factorization.matrices import as_floats, order_of
from rlx.ops.factorization.qr import reflected_identity
from rlx.ops.lift import broadcast, common, same_dtype
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError


def _transposed(b: Builder, a: Tensor) -> Tensor:
    return b.swapaxes(a, -1, -2)


@helper
def solve(b: Builder, a: TensorLike, x: TensorLike) -> Tensor:
    """NumPy's `linalg.solve`: the solution of `a·result = x`, `a […, N, N]` and `x [N]` or `[…, N, K]`; batches broadcast."""
    a, x = (as_floats(b, t) for t in common(b, a, x))
    size, _ = order_of(a.shape, square=True)
    if not x.rank or (x.shape.dims[0] if x.rank == 1 else x.shape.dims[-2]) != size:
        raise ShapeError(f"expected a right-hand side [{size}] or […, {size}, K] to go with a {a.shape}, got {x.shape}")
    if x.rank == 1:
        return b.squeeze(solve(b, a, b.expand_dims(x, -1)), -1)
    batch, columns = broadcast(a.shape.dims[:-2], x.shape.dims[:-2]), x.shape.dims[-1]
    count = product(batch)
    matrices = b.reshape(b.broadcast_to(a, (*batch, size, size)), (count, size, size))
    given = b.reshape(b.broadcast_to(x, (*batch, size, columns)), (count, size, columns))
    return b.reshape(b.batched_dense_solve(matrices, given), (*batch, size, columns))


@helper
def inv(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.inv`: the inverse of the matrices `[…, N, N]`."""
    a = as_floats(b, a)
    size, _ = order_of(a.shape, square=True)
    return solve(b, a, b.broadcast_to(b.eye(size, dtype=a.dtype), a.shape.dims))


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
    diagonal, sign = _diagonal_and_sign(b, as_floats(b, a))
    signs = b.stop_gradient(b.prod(b.sign(diagonal), axes=-1) * sign)
    return SlogdetResult(signs, b.sum(b.log(b.abs(diagonal)), axes=-1))


@helper
def eigvalsh(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.eigvalsh`: the eigenvalues of symmetric matrices, in ascending order."""
    return b.eigh(a)[0]


@helper
def svdvals(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.svdvals`: the singular values of matrices, in descending order."""
    return b.svd(a, full_matrices=False)[1]


def _above(b: Builder, s: Tensor, a: Tensor, rtol: TensorLike | None) -> Tensor:
    """Return which singular values `[…, K]` exceed a fraction of the largest one."""
    sizes = order_of(a.shape, square=False)
    share = max(sizes) * float(np.finfo(a.dtype.numpy).eps) if rtol is None else rtol
    share = b.expand_dims(share, -1) if isinstance(share, Tensor) and share.rank else share
    return s > b.max(s, axes=-1, keep_dims=True) * share


@helper
def pinv(b: Builder, a: TensorLike, rtol: TensorLike | None = None) -> Tensor:
    """NumPy's `linalg.pinv`: the pseudo-inverse `[…, N, M]`.

    Singular values up to `rtol` times the largest count as zero; by default `max(M, N)` times the precision of the dtype.
    """
    a = as_floats(b, a)
    if 0 in order_of(a.shape, square=False):
        return b.swapaxes(a, -1, -2)
    return _pseudo_inverse(b, a, rtol, 2)


def _pseudo_inverse(b: Builder, a: Tensor, rtol: TensorLike | None, orders: int) -> Tensor:
    """Return the pseudo-inverse. Unlike those of `svd`, its first `orders` derivatives hold for equal singular values."""

    def inverted(a: Tensor) -> Tensor:
        b = a.builder
        u, s, vt = b.svd(a, full_matrices=False)
        counts = _above(b, s, a, rtol)
        inverse = b.where(counts, 1.0 / b.where(counts, s, 1.0), 0.0)
        return b.matmul(_transposed(b, vt) * b.expand_dims(inverse, -2), _transposed(b, u))

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> Tensor:
        """Return the tangent where the rank stays the same (G. Golub, V. Pereyra, 1973, theorem 4.3)."""
        (a,), (da,) = args, tangents
        b, p = a.builder, _pseudo_inverse(a.builder, a, rtol, orders - 1)
        (pt, dat), (rows, columns) = (_transposed(b, t) for t in (p, da)), order_of(a.shape, square=False)
        outside = b.eye(rows, dtype=a.dtype) - b.matmul(a, p)
        beside = b.eye(columns, dtype=a.dtype) - b.matmul(p, a)
        through = b.matmul(b.matmul(p, pt), b.matmul(dat, outside)) + b.matmul(beside, b.matmul(dat, b.matmul(pt, p)))
        return through - b.matmul(p, b.matmul(da, p))

    return b.custom_fn(inverted, a, jvp=pushed) if orders else inverted(a)


@helper
def matrix_rank(b: Builder, a: TensorLike, *, rtol: TensorLike | None = None) -> Tensor:
    """NumPy's `linalg.matrix_rank`: the number of singular values above `rtol` times the largest; i32.

    It is 0 for matrices that contain NaN.
    """
    a = as_floats(b, a)
    if 0 in order_of(a.shape, square=False):
        return b.expand(b.constant(0, dtype="i32"), a.shape.dims[:-2])
    return b.sum(b.cast(_above(b, svdvals(b, a), a, rtol), "i32"), axes=-1)


@helper
def lstsq(b: Builder, a: TensorLike, x: TensorLike, rtol: TensorLike | None = None) -> Tensor:
    """The minimum-norm least-squares solution of `a·result = x`, for `a [M, N]` and `x [M]` or `[M, K]`.

    It is the first result of NumPy's `linalg.lstsq`. `matrix_rank` and `svdvals` return others.
    """
    a, x = (as_floats(b, t) for t in common(b, a, x))
    if a.rank != 2 or x.rank not in (1, 2) or x.shape.dims[0] != a.shape.dims[0]:
        raise ShapeError(f"expected a [M, N] and a right-hand side [M] or [M, K], got {a.shape} and {x.shape}")
    return b.matmul(pinv(b, a, rtol), x)


@helper
def matrix_power(b: Builder, a: TensorLike, n: int) -> Tensor:
    """NumPy's `linalg.matrix_power`: an integer power of the matrices `[…, N, N]`, by repeated squaring."""
    a, n = as_floats(b, a), operator.index(n)
    size, _ = order_of(a.shape, square=True)
    if n < 0:
        return matrix_power(b, inv(b, a), -n)
    result: Tensor | None = None
    while n:
        if n & 1:
            result = a if result is None else b.matmul(result, a)
        n >>= 1
        a = b.matmul(a, a) if n else a
    return b.broadcast_to(b.eye(size, dtype=a.dtype), a.shape.dims) if result is None else result


@helper
def matrix_norm(b: Builder, a: TensorLike, ord: float | str = "fro", keepdims: bool = False) -> Tensor:
    """NumPy's `linalg.matrix_norm` of the matrices `[…, M, N]`: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    x = a if isinstance(a, Tensor) and a.dtype.is_complex else as_floats(b, a)
    if x.rank < 2:
        raise ShapeError(f"expected matrices […, M, N], got {x.shape}")
    if ord == "fro":
        return b.norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord == "nuc" or ord in (2, -2):
        s = svdvals(b, x)
        if s.shape.dims[-1] == 0:
            return _norm_of_nothing(b, x, ord, keepdims)
        result = (b.sum if ord == "nuc" else b.max if ord == 2 else b.min)(s, axes=-1)
        return b.expand_dims(b.expand_dims(result, -1), -1) if keepdims else result
    if ord not in (1, -1, math.inf, -math.inf):
        raise ShapeError(f"{ord!r:.60} is no norm of a matrix", hint='"fro", "nuc", 1, -1, 2, -2, inf or -inf')
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
def cond(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.cond`: the largest singular value divided by the smallest; ∞ for zero matrices, NaN for NaN.

    Raises:
        ShapeError: The matrices have no elements.
    """
    a = as_floats(b, a)
    if 0 in order_of(a.shape, square=False):
        raise ShapeError(f"the matrices of a {a.shape} have no elements, and so no condition number")
    s = svdvals(b, a)
    largest, smallest = b.max(s, axes=-1), b.min(s, axes=-1)
    return b.where(smallest == 0.0, math.inf, largest / b.where(smallest == 0.0, 1.0, smallest))


# The coefficients of the diagonal Padé approximant of degree 13 (Higham, 2005), and the norm up to which it is exact in
# f64.
_PADE = (
    *(64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600),
    *(670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1),
)
_PADE_NORM, _MOST_SQUARINGS = 5.371920351148152, 32


@helper
def matrix_exp(b: Builder, a: TensorLike) -> Tensor:
    """SciPy's `linalg.expm`: the exponential of the matrices `[…, N, N]`, by scaling and squaring.

    It is NaN for norms above `5·2^32`.
    """
    a = as_floats(b, a)
    size, _ = order_of(a.shape, square=True)
    batch = a.shape.dims[:-2]
    if size == 0 or 0 in batch:
        return a
    norm = b.stop_gradient(matrix_norm(b, a, 1, keepdims=True))
    steps = b.ceil(b.log2(b.maximum(norm / _PADE_NORM, 1.0)))
    x = a * b.exp2(-steps)
    eye = b.broadcast_to(b.eye(size, dtype=a.dtype), a.shape.dims)
    scaled = [c / _PADE[0] for c in _PADE]
    powers = [eye, b.matmul(x, x)]
    for _ in range(5):
        powers.append(b.matmul(powers[-1], powers[1]))
    even, odd = (rules.total(b, [p * c for p, c in zip(powers, scaled[k::2], strict=True)]) for k in (0, 1))
    assert even is not None and odd is not None
    odd = b.matmul(x, odd)
    result = solve(b, even - odd, even + odd)

    def squared(kept: Tensor, count: Tensor) -> tuple[Tensor, tuple[()]]:
        return b.where(count < steps, b.matmul(kept, kept), kept), ()

    counts = b.iota((_MOST_SQUARINGS,), dtype=a.dtype)
    result, _ = b.scan(squared, result, counts)
    return b.where(steps <= float(_MOST_SQUARINGS), result, float("nan"))


@helper
def householder_product(b: Builder, a: TensorLike, factors: TensorLike) -> Tensor:
    """LAPACK's `orgqr`: the first columns of a product of reflections, `[…, M, N]` for `a […, M, N]`, `factors […, K]`.

    The k-th column of `a` contains, below its diagonal, the elements after the 1 in the vector `v` of reflection
    `I - factors[k]·v·vᵀ`.

    Raises:
        ShapeError: The shapes do not fit together, or there are more reflections than columns.
    """
    a, taus = as_floats(b, a), as_floats(b, factors)
    rows, columns = order_of(a.shape, square=False)
    same_dtype(a.shape, taus.shape)
    batch, count = a.shape.dims[:-2], taus.shape.dims[-1] if taus.rank else None
    if taus.shape.dims[:-1] != batch or type(count) is not int or count > columns or columns > rows:
        raise ShapeError(f"expected a […, M, N] and factors […, K] with K <= N <= M, got {a.shape} and {taus.shape}")
    if 0 in (count, rows, columns) or 0 in batch:
        return b.expand(b.eye(rows, columns, dtype=a.dtype), a.shape.dims)
    size: Dim = product(batch)
    vectors = b.tril(a, -1) + b.eye(rows, columns, dtype=a.dtype)
    vectors = b.narrow(b.reshape(vectors, (size, rows, columns)), 2, 0, count)
    steps = b.reshape(b.transpose(b.reshape(taus, (size, count)), (1, 0)), (count, size, 1))
    return b.reshape(reflected_identity(b, b.transpose(vectors, (2, 0, 1)), steps, columns), a.shape.dims)
