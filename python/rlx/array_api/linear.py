"""Products of the array API."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.array_api.arrays import builder
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import TensorLike

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def matmul(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The matrix product."""
    return builder(x1, x2).matmul(x1, x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The tensor with its last two axes swapped."""
    return builder(x).matrix_transpose(x)


def tensordot(x1: TensorLike, x2: TensorLike, /, *, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sum over several axes of both."""
    return builder(x1, x2).tensordot(x1, x2, axes=axes)


def vecdot(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The sum of the products along an axis, with `x1` conjugated."""
    return builder(x1, x2).vecdot(x1, x2, axis)
