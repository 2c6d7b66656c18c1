"""Products of the array API."""

from __future__ import annotations

from typing import Any

from rlx.array_api.arrays import builder

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product."""
    return builder(x1, x2).matmul(x1, x2)


def matrix_transpose(x: Any, /) -> Any:
    """The tensor with its last two axes swapped."""
    return builder(x).swapaxes(x, -1, -2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """The sum over several axes of both."""
    return builder(x1, x2).tensordot(x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of the products along an axis, with `x1` conjugated."""
    return builder(x1, x2).vecdot(x1, x2, axis)
