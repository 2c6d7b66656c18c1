"""Functions of matrices with NumPy's and SciPy's names: spectra, powers, the exponential, products of reflections."""

from __future__ import annotations

import operator

from rlx.functions.factorization.norms import matrix_norm
from rlx.functions.factorization.operands import as_inexact
from rlx.functions.factorization.systems import inv, solve
from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops import rules
from rlx.ops.factorization.matrices import order_of
from rlx.ops.factorization.qr import reflected_identity
from rlx.ops.lift import same_dtype
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError


@helper
def eigvalsh(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.eigvalsh`: the eigenvalues of symmetric matrices, in ascending order."""
    return b.eigh(a)[0]


@helper
def eigvals(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.eigvals`: the eigenvalues `[…, N]` of matrices, complex, in no particular order."""
    return b.eig(a)[0]


@helper
def svdvals(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.svdvals`: the singular values of matrices, in descending order."""
    return b.svd(a, full_matrices=False)[1]


@helper
def matrix_power(b: Builder, a: TensorLike, n: int) -> Tensor:
    """NumPy's `linalg.matrix_power`: an integer power of the matrices `[…, N, N]`, by repeated squaring."""
    a, n = as_inexact(b, a), operator.index(n)
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
    a = as_inexact(b, a)
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

    counts = b.iota((_MOST_SQUARINGS,), dtype=norm.dtype)
    result, _ = b.scan(squared, result, counts)
    return b.where(steps <= float(_MOST_SQUARINGS), result, float("nan"))


@helper
def householder_product(b: Builder, a: TensorLike, tau: TensorLike) -> Tensor:
    """LAPACK's `orgqr`: the first columns of a product of reflections, `[…, M, N]` for `a […, M, N]`, `tau […, K]`.

    The k-th column of `a` contains, below its diagonal, the elements after the 1 in the vector `v` of reflection
    `I - tau[k]·v·vᴴ`.

    Raises:
        ShapeError: The shapes do not fit together, or there are more reflections than columns.
    """
    a, taus = as_inexact(b, a), as_inexact(b, tau)
    rows, columns = order_of(a.shape, square=False)
    same_dtype(a.shape, taus.shape)
    batch, count = a.shape.dims[:-2], taus.shape.dims[-1] if taus.rank else None
    if taus.shape.dims[:-1] != batch or type(count) is not int or count > columns or columns > rows:
        raise ShapeError(f"expected a […, M, N] and tau […, K] with K <= N <= M, got {a.shape} and {taus.shape}")
    if 0 in (count, rows, columns) or 0 in batch:
        return b.expand(b.eye(rows, columns, dtype=a.dtype), a.shape.dims)
    size: Dim = product(batch)
    vectors = b.tril(a, -1) + b.eye(rows, columns, dtype=a.dtype)
    vectors = b.narrow(b.reshape(vectors, (size, rows, columns)), 2, 0, count)
    steps = b.reshape(b.transpose(b.reshape(taus, (size, count)), (1, 0)), (count, size, 1))
    return b.reshape(reflected_identity(b, b.transpose(vectors, (2, 0, 1)), steps, columns), a.shape.dims)
