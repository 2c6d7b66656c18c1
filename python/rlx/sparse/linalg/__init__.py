"""Iterative solvers of linear systems and eigenvalue problems, of matrices, sparse matrices and functions of a tensor."""
