"""Iterative solvers of linear systems and eigenvalue problems, of matrices, sparse matrices and functions of a tensor."""

from rlx.sparse.linalg.eigen import EigenResult, eigsh, lobpcg
from rlx.sparse.linalg.least_squares import LsmrResult, LsqrResult, lsmr, lsqr
from rlx.sparse.linalg.norms import norm
from rlx.sparse.linalg.preconditioners import Jacobi, jacobi
from rlx.sparse.linalg.solvers import SolveResult, bicgstab, cg, gmres, minres

__all__ = [
    "EigenResult",
    "Jacobi",
    "LsmrResult",
    "LsqrResult",
    "SolveResult",
    "bicgstab",
    "cg",
    "eigsh",
    "gmres",
    "jacobi",
    "lobpcg",
    "lsmr",
    "lsqr",
    "minres",
    "norm",
]
