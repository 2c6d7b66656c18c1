"""Factorisations with the arguments of NumPy and SciPy."""

from __future__ import annotations

from rlx.functions.factorization.operands import adjoint, as_inexact, as_system, one_batch
from rlx.functions.factorization.systems import cholesky_factor, lu_factors, solve_triangular
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import EighResult, LUResult, PermutedLUResult, QRResult, SVDResult
from rlx.linalg.call import of_tensors
from rlx.ops.factorization.matrices import order_of
from rlx.support.errors import ShapeError
from rlx.support.short import short_repr


@of_tensors
def cholesky(b: Builder, a: TensorLike, *, upper: bool = False) -> Tensor:
    """NumPy's `linalg.cholesky`: the triangular factor of hermitian positive definite matrices `[…, N, N]`.

    Other matrices have factors with NaN.

    Args:
        b: The builder.
        a: Matrices. Only the triangle that `upper` selects is read.
        upper: Whether to return the upper factor u of `a = uᴴ·u`, else the lower factor l of `a = l·lᴴ`.

    Returns:
        The factor `[…, N, N]`; the other triangle is 0.
    """
    return cholesky_factor(b, as_inexact(b, a), upper)


@of_tensors
def qr(b: Builder, a: TensorLike, mode: str = "reduced") -> QRResult | Tensor:
    """NumPy's `linalg.qr`: orthonormal and upper triangular factors of `a […, M, N]`, `a = Q·R`.

    Args:
        b: The builder.
        a: Matrices.
        mode: "reduced" for `Q […, M, K]` and `R […, K, N]` with `K = min(M, N)`; "complete" for `Q […, M, M]` and
            `R […, M, N]`; "r" for R alone, `[…, K, N]`.

    Raises:
        ShapeError: The mode is another one.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"mode is 'reduced', 'complete' or 'r', not {short_repr(mode)}")
    result = b.qr(as_inexact(b, a), full_matrices=mode == "complete")
    return result.R if mode == "r" else result


@of_tensors
def svd(b: Builder, a: TensorLike, full_matrices: bool = True, compute_uv: bool = True) -> SVDResult | Tensor:
    """NumPy's `linalg.svd`: singular values, in descending order, and vectors: `a = U·diag(S)·Vh`.

    Args:
        b: The builder.
        a: Matrices `[…, M, N]`; `K = min(M, N)`.
        full_matrices: Whether U and Vh are square, else `[…, M, K]` and `[…, K, N]`.
        compute_uv: Whether to return the vectors, else `S […, K]` alone.
    """
    if not compute_uv:
        return b.svd(as_inexact(b, a), full_matrices=False).S
    return b.svd(as_inexact(b, a), full_matrices=full_matrices)


@of_tensors
def eigh(builder: Builder, a: TensorLike, b: TensorLike | str | None = None, UPLO: str = "L") -> EighResult:
    """NumPy's and SciPy's `linalg.eigh`: eigenvalues, in ascending order, and vectors of hermitian matrices.

    With `b` it solves `a·v = λ·b·v`, and the vectors satisfy `vᴴ·b·v = 1`. The results are NaN where `b` is not positive
    definite.

    Args:
        builder: The builder.
        a: Hermitian matrices `[…, N, N]`.
        b: Hermitian positive definite matrices `[…, N, N]`, or None for the identity; batches broadcast. A text in
            this position is `UPLO`, as in NumPy.
        UPLO: "L" or "U", the triangle of both that is read.

    Returns:
        Eigenvalues `[…, N]`, and vectors as columns `[…, N, N]`.

    Raises:
        ShapeError: The shapes do not fit together, or `UPLO` is another value.
    """
    if isinstance(b, str):
        b, UPLO = None, b
    if b is None:
        return builder.eigh(_lower(builder, as_inexact(builder, a), UPLO))
    given, other = as_system(builder, a, b)
    matrix, metric = (_lower(builder, t, UPLO) for t in (given, other))
    size, _ = order_of(matrix.shape, square=True)
    if order_of(metric.shape, square=True) != (size, size):
        raise ShapeError(f"expected b […, {size}, {size}] for a {matrix.shape}, got {metric.shape}")
    factor = builder.cholesky(metric)
    whole, factor = one_batch(builder, builder.tril(matrix) + adjoint(builder, builder.tril(matrix, -1)), factor)
    inner = solve_triangular(builder, factor, whole, lower=True)
    inner = solve_triangular(builder, factor, adjoint(builder, inner), lower=True)
    values, vectors = builder.eigh(inner)
    return EighResult(values, solve_triangular(builder, factor, vectors, "C", lower=True))


@of_tensors
def eigvalsh(builder: Builder, a: TensorLike, b: TensorLike | str | None = None, UPLO: str = "L") -> Tensor:
    """NumPy's `linalg.eigvalsh`: the eigenvalues `[…, N]` of `eigh`, in ascending order.

    Args:
        builder: The builder.
        a: Hermitian matrices `[…, N, N]`.
        b: Hermitian positive definite matrices `[…, N, N]`, or None for the identity, or `UPLO`.
        UPLO: "L" or "U", the triangle of both that is read.
    """
    return eigh(a, b, UPLO).eigenvalues


def _lower(b: Builder, a: Tensor, uplo: object) -> Tensor:
    """Return matrices with the selected triangle as the lower one.

    Raises:
        ShapeError: `UPLO` is neither "L" nor "U".
    """
    if uplo not in ("L", "U", "l", "u"):
        raise ShapeError(f"UPLO is 'L' or 'U', not {short_repr(uplo)}")
    order_of(a.shape, square=True)
    return a if uplo in ("L", "l") else adjoint(b, a)


@of_tensors
def lu(b: Builder, a: TensorLike, permute_l: bool = False) -> LUResult | PermutedLUResult:
    """SciPy's `linalg.lu`: `a = p·l·u` for `a […, M, N]`, with partial pivoting; `K = min(M, N)`.

    `g.lu` is LAPACK's `getrf`: both factors in one matrix, the exchanges and the order of the rows.

    Args:
        b: The builder.
        a: Matrices.
        permute_l: Whether to return `p·l` and u.

    Returns:
        A permutation matrix `p […, M, M]`, `l […, M, K]` with ones on its diagonal, and `u […, K, N]`.
    """
    a = as_inexact(b, a)
    order, lower, upper = lu_factors(b, a)
    if permute_l:
        inverse = b.argsort(order, axis=-1)
        return PermutedLUResult(b.gather_batched(lower, inverse, axis=lower.rank - 2), upper)
    rows, _ = order_of(a.shape, square=False)
    is_row = b.reshape(b.iota((rows,), dtype="i32"), (rows, 1)) == b.expand_dims(order, -2)
    return LUResult(b.cast(is_row, a.dtype), lower, upper)
