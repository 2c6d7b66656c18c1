"""Preconditioners: fewer iterations, the same solution."""

import numpy as np
import pytest

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import laplacian


def test_jacobi_takes_fewer_iterations():
    a = laplacian(30) + np.diag(np.linspace(0, 1000, 30) ** 2)
    b = np.random.default_rng(3).normal(size=30)
    g = rlx.Graph("jacobi")
    matrix, side = g.param("a", a.shape, "f64"), g.input("b", b.shape, dtype="f64")
    plain, better = linalg.cg(matrix, side, rtol=1e-10), linalg.cg(matrix, side, rtol=1e-10, M=linalg.jacobi(matrix))
    g.set_outputs([better.x, plain.iterations, better.iterations])
    x, before, after = rlx.evaluate(g, {"a": a, "b": b})
    np.testing.assert_allclose(a @ x, b, atol=1e-8)
    assert after < 0.5 * before
    (slope,) = rlx.evaluate(rlx.grad(_sum(g, better), ["a"]), {"a": a, "b": b})
    assert np.isfinite(slope).all()
    with pytest.raises(rlx.Error, match="no known diagonal"), rlx.eager():
        linalg.jacobi(lambda x: x)


def _sum(g, result):
    g.set_outputs({"y": g.sum(result.x)})
    return g
