"""Linear algebra with the names and conventions of NumPy and SciPy: functions of tensors `[…, M, N]`.

A function that is also a method of graphs under the same name and with the same meaning is that of `rlx.ops`:
`rlx.linalg.solve(a, b)` is `g.solve(a, b)`.
"""

from __future__ import annotations

from typing import Any

from rlx.linalg.factorizations import cholesky, eigh, eigvalsh, lu, qr, svd
from rlx.linalg.matrices import diagonal, expm, norm, trace
from rlx.ops import (
    block_diag,
    cho_factor,
    cho_solve,
    cond,
    cross,
    det,
    diag_set,
    eig,
    eigvals,
    householder_product,
    inv,
    inv_sqrtm,
    kron,
    logdet,
    logm,
    lstsq,
    lu_factor,
    lu_solve,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_rank,
    matrix_transpose,
    multi_dot,
    outer,
    pinv,
    polar,
    slogdet,
    solve,
    solve_sylvester,
    solve_triangular,
    sqrtm,
    svdvals,
    tensordot,
    vecdot,
    vector_norm,
)
from rlx.support.answers import answers

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diag_set",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "householder_product",
    "inv",
    "inv_sqrtm",
    "kron",
    "logdet",
    "logm",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "polar",
    "qr",
    "slogdet",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.linalg' has no attribute '{name}'")
    raise answers().module_problem("rlx.linalg", name, __all__)


def __dir__() -> list[str]:
    return list(__all__)
