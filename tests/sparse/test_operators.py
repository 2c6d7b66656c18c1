"""Sparse matrices as operators of the iterative solvers: known and dynamic patterns, their derivatives and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import laplacian

N = 9
A = laplacian(N) + np.diag(np.linspace(1, 2, N))
CSR = scipy.sparse.csr_array(A)
B = np.random.default_rng(0).normal(size=N)


def csr(data: Any, dynamic: bool = False, g: Any = None) -> Any:
    indices, indptr = CSR.indices.astype(np.int32), CSR.indptr.astype(np.int32)
    pattern = (g.constant(indices), g.constant(indptr)) if dynamic else (indices, indptr)
    return rlx.sparse.csr_array((data, *pattern), shape=A.shape)


@pytest.mark.parametrize("name", ["cg", "minres", "bicgstab", "gmres"])
def test_containers_are_solved(name: str) -> None:
    g: Any = rlx.Graph("solve")
    data, b = g.input("data", CSR.data.shape, "f64"), g.input("b", (N,), "f64")
    matrices = [csr(data), csr(data, dynamic=True, g=g), csr(data).tocoo(), CSR]
    results = [getattr(linalg, name)(m, b, rtol=1e-10) for m in matrices]
    results.append(getattr(linalg, name)(csr(data), b, rtol=1e-10, M=linalg.jacobi(csr(data))))
    g.set_outputs([t for r in results for t in (r.x, r.info)])
    found = rlx.evaluate(g, {"data": CSR.data, "b": B})
    for x, info in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(x, np.linalg.solve(A, B), rtol=1e-8)
        assert info == 0


def test_derivatives_to_the_entries() -> None:
    """The gradient of w·x to an entry at (i, j) is `-λ[i]·x[j]` with `Aᵀ·λ = w`."""
    g: Any = rlx.Graph("loss")
    data, w = g.param("data", CSR.data.shape, "f64"), np.linspace(-1, 1, N)
    x = linalg.bicgstab(csr(data), g.constant(B), rtol=1e-12).x
    g.set_outputs({"loss": g.sum(x * w)})
    (slope,) = rlx.evaluate(rlx.grad(g, "data"), {"data": CSR.data})
    row = np.repeat(np.arange(N), np.diff(CSR.indptr))
    solution, adjoint = np.linalg.solve(A, B), np.linalg.solve(A.T, w)
    np.testing.assert_allclose(slope, -adjoint[row] * solution[CSR.indices], rtol=1e-8, atol=1e-12)


def test_hessian_vector_products_are_operators() -> None:
    """A step of Newton's method on a convex function, whose Hessian is `A + diag(3·x²)`."""

    @rlx.jit
    def step(x: Any) -> Any:
        def hessian(v: Any) -> Any:
            return rlx.ops.matmul(A, v) + 3.0 * x * x * v

        gradient = rlx.ops.matmul(A, x) + x * x * x - B
        return linalg.cg(hessian, gradient, rtol=1e-10).x

    x = np.linspace(0, 1, N)
    expected = np.linalg.solve(A + np.diag(3 * x**2), A @ x + x**3 - B)
    np.testing.assert_allclose(step(x), expected, rtol=1e-7)


def test_norms_are_those_of_scipy() -> None:
    coo = scipy.sparse.coo_array(([3.0, -4.0, 2.0, -1.0], ([0, 0, 2, 0], [1, 1, 0, 2])), shape=(3, 4))
    g: Any = rlx.Graph("norms")
    data = g.input("data", (4,), "f64")
    known = rlx.sparse.coo_array((data, coo.coords), shape=coo.shape)
    dynamic = rlx.sparse.coo_array((data, tuple(g.constant(c.astype(np.int32)) for c in coo.coords)), shape=coo.shape)
    orders: Any = (None, "fro", 1, -1, np.inf, -np.inf)
    g.set_outputs([linalg.norm(m, ord) for ord in orders for m in (known, dynamic)])
    found = rlx.evaluate(g, {"data": coo.data})
    for i, ord in enumerate(orders):
        np.testing.assert_allclose(found[2 * i : 2 * i + 2], np.linalg.norm(coo.toarray(), ord or "fro"))
    with pytest.raises(rlx.Error, match="norm: ord is None"):
        linalg.norm(known, 2)
