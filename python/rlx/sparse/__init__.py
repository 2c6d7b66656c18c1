"""Sparse matrices with the names and conventions of SciPy: containers of tensors, products and sums."""

from __future__ import annotations

from typing import NoReturn

from rlx.sparse import linalg
from rlx.sparse.array import SparseArray
from rlx.sparse.construct import diags_array, eye_array, hstack, kron, tril, triu, vstack
from rlx.sparse.constructors import bsr_array, coo_array, csc_array, csr_array
from rlx.sparse.convert import from_bcoo, from_dense, from_scipy
from rlx.sparse.products import matmul, sddmm, segment_sum
from rlx.support.answers import answers

__all__ = [
    "SparseArray",
    "bsr_array",
    "coo_array",
    "csc_array",
    "csr_array",
    "diags_array",
    "eye_array",
    "from_bcoo",
    "from_dense",
    "from_scipy",
    "hstack",
    "kron",
    "linalg",
    "matmul",
    "sddmm",
    "segment_sum",
    "tril",
    "triu",
    "vstack",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.sparse' has no attribute '{name}'")
    raise answers().module_problem("rlx.sparse", name, __all__)
