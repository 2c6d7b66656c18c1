"""Derivatives of the solvers, judged by those of a dense solve."""

import numpy as np
import pytest

import rlx
from rlx.sparse import linalg
from tests.sparse.systems import convection, laplacian

N = 5
RNG = np.random.default_rng(2)
B, W = RNG.normal(size=N), RNG.normal(size=N)


def _graph(solve, symmetric):
    g = rlx.Graph("solve")
    a, b = g.param("a", (N, N), "f64"), g.param("b", (N,), "f64")
    matrix = (a + g.transpose(a)) * 0.5 if symmetric else a
    x = solve(g, matrix, b)
    g.set_outputs({"y": g.sum(x * x * W)})
    return g


@pytest.mark.parametrize("name", ["cg", "minres", "bicgstab", "gmres"])
def test_derivatives_are_those_of_a_dense_solve(name):
    symmetric = name in ("cg", "minres")
    own = _graph(lambda g, a, b: getattr(linalg, name)(lambda x: a @ x, b, rtol=1e-13).x, symmetric)
    dense = _graph(lambda g, a, b: g.solve(a, b), symmetric)
    values = {"a": laplacian(N) if symmetric else convection(N), "b": B}
    stacked = {"a": np.stack([values["a"], 2.0 * values["a"]]), "b": np.stack([B, B[::-1]])}
    cases = (
        (lambda q: rlx.grad(q, ["a", "b"]), values),
        (lambda q: rlx.jacfwd(q, ["a", "b"]), values),
        (lambda q: rlx.hessian(q, ["a"]), values),
        (lambda q: rlx.vmap(rlx.grad(q, ["a", "b"]), {"a": 0, "b": 0}, size=2), stacked),
        (lambda q: rlx.vmap(q, {"b": 0}, size=2), {**values, "b": stacked["b"]}),
    )
    for transform, given in cases:
        for got, expected in zip(*(rlx.evaluate(transform(q), given) for q in (own, dense)), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)
