"""Matrices of linear systems for the tests of solvers, as NumPy arrays."""

import numpy as np


def laplacian(n: int) -> np.ndarray:
    """The second difference of a line: symmetric positive definite."""
    return 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)


def laplacian_2d(n: int) -> np.ndarray:
    """The five-point stencil on a square of n·n points."""
    return np.kron(laplacian(n), np.eye(n)) + np.kron(np.eye(n), laplacian(n))


def convection(n: int) -> np.ndarray:
    """Convection and diffusion on a line: unsymmetric."""
    return laplacian(n) + 0.5 * (np.eye(n, k=1) - np.eye(n, k=-1))


def saddle(n: int) -> np.ndarray:
    """A saddle point: symmetric and indefinite."""
    rows = np.random.default_rng(7).normal(size=(n // 3, n))
    return np.block([[laplacian(n), rows.T], [rows, np.zeros((n // 3, n // 3))]])


def neumann(n: int) -> np.ndarray:
    """The second difference with free ends: singular, with constants as the null space."""
    a = laplacian(n)
    a[0, 0] = a[-1, -1] = 1.0
    return a
