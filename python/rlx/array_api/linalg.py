"""The `linalg` extension of the array API."""

from __future__ import annotations

from rlx.array_api.arrays import builder
from rlx.array_api.linear import matmul, matrix_transpose, tensordot, vecdot
from rlx.functions.factorization.operands import as_inexact
from rlx.functions.factorization.systems import cholesky_factor
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import Axes, DTypeLike, TensorLike
from rlx.ir.op.results import EighResult, EigResult, QRResult, SlogdetResult, SVDResult
from rlx.support.caller import caller_place
from rlx.support.errors import ShapeError

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def cross(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The cross product along an axis of size 3."""
    return builder(x1, x2).cross(x1, x2, axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of the matrices in the last two axes."""
    return builder(x).diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of a diagonal of the matrices in the last two axes."""
    from rlx.array_api.reductions import sum as total

    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The products of all elements of two vectors."""
    return builder(x1, x2).outer(x1, x2)


def solve(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The solution of linear equations; `x2` is a vector or matrices."""
    return builder(x1, x2).solve(x1, x2)


def inv(x: Tensor, /) -> Tensor:
    """The inverse of matrices."""
    return builder(x).inv(x)


def det(x: Tensor, /) -> Tensor:
    """The determinant of matrices."""
    return builder(x).det(x)


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant of matrices, and the logarithm of its magnitude."""
    return builder(x).slogdet(x)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of symmetric positive definite matrices."""
    b = builder(x)
    return cholesky_factor(b, as_inexact(b, x), upper)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal and triangular factors; the mode is "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"mode {mode!r} is neither reduced nor complete", location=caller_place())
    return builder(x).qr(x, full_matrices=mode == "complete")


def eig(x: Tensor, /) -> EigResult:
    """Complex eigenvalues `[…, N]`, in no particular order, and eigenvectors in columns."""
    return builder(x).eig(x)


def eigvals(x: Tensor, /) -> Tensor:
    """Complex eigenvalues `[…, N]`, in no particular order."""
    return builder(x).eig(x).eigenvalues


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return builder(x).eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric matrices, in ascending order."""
    return builder(x).eigvalsh(x)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values and singular vectors."""
    return builder(x).svd(x, full_matrices=full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, in descending order."""
    return builder(x).svdvals(x)


def pinv(x: Tensor, /, *, rtol: TensorLike | None = None) -> Tensor:
    """The pseudo-inverse."""
    return builder(x).pinv(x, rtol)


def matrix_rank(x: Tensor, /, *, rtol: TensorLike | None = None) -> Tensor:
    """The number of singular values that are not zero."""
    return builder(x).matrix_rank(x, rtol=rtol)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """An integer power of matrices."""
    return builder(x).matrix_power(x, n)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str = "fro") -> Tensor:
    """A norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    return builder(x).matrix_norm(x, ord, keepdims)


def vector_norm(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """A norm of the elements along axes."""
    return builder(x).vector_norm(x, ord, axis=axis, keepdims=keepdims)
