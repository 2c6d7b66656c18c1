"""The `linalg` extension of the array API."""

from __future__ import annotations

from typing import Any

from rlx.array_api.arrays import builder
from rlx.array_api.linear import matmul, matrix_transpose, tensordot, vecdot
from rlx.ir.location import caller_location, describe
from rlx.ir.op.results import EighResult, QRResult, SlogdetResult, SVDResult
from rlx.support.errors import ShapeError

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
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


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross product along an axis of size 3."""
    return builder(x1, x2).cross(x1, x2, axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """A diagonal of the matrices in the last two axes."""
    return builder(x).diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal of the matrices in the last two axes."""
    from rlx.array_api.reductions import sum as total

    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of all elements of two vectors."""
    return builder(x1, x2).outer(x1, x2)


def solve(x1: Any, x2: Any, /) -> Any:
    """The solution of linear equations; `x2` is a vector or matrices."""
    return builder(x1, x2).solve(x1, x2)


def inv(x: Any, /) -> Any:
    """The inverse of matrices."""
    return builder(x).inv(x)


def det(x: Any, /) -> Any:
    """The determinant of matrices."""
    return builder(x).det(x)


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of the determinant of matrices, and the logarithm of its magnitude."""
    return builder(x).slogdet(x)


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The triangular factor of symmetric positive definite matrices."""
    factor = builder(x).cholesky(x)
    return matrix_transpose(factor) if upper else factor


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal and triangular factors; the mode is "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"mode {mode!r} is neither reduced nor complete", location=describe(caller_location()))
    return builder(x).qr(x, full_matrices=mode == "complete")


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return builder(x).eigh(x)


def eigvalsh(x: Any, /) -> Any:
    """The eigenvalues of symmetric matrices, in ascending order."""
    return builder(x).eigvalsh(x)


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values and singular vectors."""
    return builder(x).svd(x, full_matrices=full_matrices)


def svdvals(x: Any, /) -> Any:
    """The singular values, in descending order."""
    return builder(x).svdvals(x)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverse."""
    return builder(x).pinv(x, rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """The number of singular values that are not zero."""
    return builder(x).matrix_rank(x, rtol=rtol)


def matrix_power(x: Any, n: int, /) -> Any:
    """An integer power of matrices."""
    return builder(x).matrix_power(x, n)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    return builder(x).matrix_norm(x, ord, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """A norm of the elements along axes."""
    return builder(x).norm(x, ord, axis=axis, keepdims=keepdims)
