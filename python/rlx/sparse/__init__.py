"""Sparse matrices with the names and conventions of SciPy: containers of tensors, products and sums."""

from rlx.sparse import linalg

__all__ = ["linalg"]
