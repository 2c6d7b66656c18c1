"""`vmap` of `rlx.linalg`, and its functions in compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import linalg
from tests.linalg.cases import POSITIVE, SQUARE, TALL, agree, evaluated, graph_of, normal, positive

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "lu_solve": (lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b), (SQUARE, normal(4))),
    "cho_solve": (lambda a, b: linalg.cho_solve(linalg.cho_factor(a, True), b), (POSITIVE, normal(4, 2))),
    "solve_triangular": (lambda a, b: linalg.solve_triangular(a, b, left=False), (SQUARE, normal(2, 4))),
    "lstsq": (lambda a, b: linalg.lstsq(a, b), (TALL, normal(5))),
    "functions": (lambda a, b: (linalg.sqrtm(a), linalg.logm(a), linalg.polar(a), linalg.expm(b)),
                  (POSITIVE, SQUARE)),
    "eigh of two": (lambda a, b: linalg.eigvalsh(b, a), (POSITIVE, SQUARE)),
    "solve_sylvester": (lambda a, b: linalg.solve_sylvester(a, a, b), (POSITIVE, SQUARE)),
    "numbers": (lambda a, b: (linalg.logdet(a), linalg.cond(b, 1), linalg.norm(b, "nuc"), linalg.matrix_rank(b)),
                (POSITIVE, SQUARE)),
    "matrices": (lambda a, b: (linalg.lu(b), linalg.block_diag(a, b), linalg.diag_set(a, b[0]), linalg.multi_dot([a, b])),
                 (POSITIVE, SQUARE)),
}  # fmt: skip


@pytest.mark.parametrize("batched", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name: str, batched: tuple[int, ...]) -> None:
    function, arrays = CASES[name]
    more = [[positive(*a.shape) if a is POSITIVE else a + normal(*a.shape) for _ in range(3)] for a in arrays]
    graph = rlx.vmap(graph_of(function, *arrays), {f"x{i}": 0 for i in batched}, 3)
    values = {f"x{i}": np.stack(more[i]) if i in batched else arrays[i] for i in range(len(arrays))}
    found = rlx.evaluate(graph, values)
    for k in range(3):
        one = [more[i][k] if i in batched else arrays[i] for i in range(len(arrays))]
        agree([f[k] for f in found], evaluated(function, *one), 1e-9)


def test_a_matrix_is_factored_once_for_a_batch() -> None:
    """The right-hand sides become columns of one system."""
    for factor, solve in ((linalg.lu_factor, linalg.lu_solve), (linalg.cho_factor, linalg.cho_solve)):
        graph = graph_of(lambda a, b, f=factor, s=solve: s(f(a), b), POSITIVE, normal(4))
        text = str(rlx.vmap(graph, {"x1": 0}, 7))
        assert "tensor<7x4x4xf64>" not in text
        assert "tensor<4x7xf64>" in text


@pytest.mark.parametrize("device", ["cpu", "xla"])
@pytest.mark.parametrize("share", range(3))
def test_compiled(share: int, device: str) -> None:
    """All functions in a few programs; one compilation takes seconds."""
    names = sorted(CASES)[share::3]
    arrays = [a.astype(np.float32) for name in names for a in CASES[name][1]]
    places = {name: slice(2 * i, 2 * i + 2) for i, name in enumerate(names)}
    graph = graph_of(lambda *xs: [CASES[name][0](*xs[place]) for name, place in places.items()], *arrays)
    given = {f"x{i}": a for i, a in enumerate(arrays)}
    found = rlx.Session(rlx.Device(device)).compile(graph).run(given)
    agree(found, rlx.evaluate(graph, given), 2e-3)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_compiled_derivatives(device: str) -> None:
    def loss(a: Any, b: Any) -> Any:
        b_of = a.builder
        logarithm, root = linalg.logm(a), linalg.sqrtm(a)
        solved = linalg.cho_solve(linalg.cho_factor(a), b)
        return b_of.sum(logarithm * b) + b_of.sum(root * solved) + linalg.logdet(a)

    a, b = np.diag([1.0, 1, 2, 5]), normal(4, 4)
    graph = rlx.grad(graph_of(loss, a, b), ["x0", "x1"])
    found = rlx.Session(rlx.Device(device)).compile(graph).run({"x0": a, "x1": b})
    agree(found, rlx.evaluate(graph, {"x0": a, "x1": b}), 1e-9)


def test_jit_and_eager_are_one() -> None:
    @rlx.jit
    def solved(a: Any, b: Any) -> Any:
        factors = linalg.lu_factor(a)
        return linalg.lu_solve(factors, b), linalg.polar(a)

    a, b = SQUARE.astype(np.float32), normal(4).astype(np.float32)
    x, (u, p) = solved(a, b)
    with rlx.eager():
        again = linalg.lu_solve(linalg.lu_factor(a), b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-3)
    np.testing.assert_allclose(x, again.numpy(), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(u) @ np.asarray(p), a, atol=1e-4)
