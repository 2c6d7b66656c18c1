"""Determinants and their derivatives, also at singular matrices; norms, ranks and conditions of special matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance.compiled import compile_graphs

RANDOM = np.random.default_rng(7)


def _graph(function: Any, shape: tuple[int, ...], dtype: str = "f64") -> rlx.Graph:
    g = rlx.Graph()
    g.set_outputs([function(g, g.input("x", shape, dtype))])
    return g


def _determinant(g: Any, x: Any) -> Any:
    return g.sum(g.det(x))


def _value(function: Any, a: np.ndarray) -> np.ndarray:
    return rlx.evaluate(_graph(function, a.shape), {"x": a})[0]


def _cofactors(a: np.ndarray) -> np.ndarray:
    size = len(a)
    minors = [np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for i in range(size) for j in range(size)]
    return np.reshape(minors, (size, size)) * (-1.0) ** np.add.outer(np.arange(size), np.arange(size))


def _of_rank(size: int, rank: int) -> np.ndarray:
    return RANDOM.standard_normal((size, rank)) @ RANDOM.standard_normal((rank, size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_the_derivative_is_the_cofactors_at_any_rank(size: int) -> None:
    matrices = [_of_rank(size, rank) for rank in range(size + 1)]
    zero_column = np.eye(size)
    zero_column[0, 0] = 0  # only the first pivot of a column vanishes
    a = np.stack([*matrices, zero_column, np.eye(size)[::-1]])
    graph = _graph(_determinant, a.shape)
    (gradient,) = rlx.evaluate(rlx.grad(graph, wrt=["x"]), {"x": a})[-1:]
    np.testing.assert_allclose(gradient, np.stack([_cofactors(m) for m in a]), atol=1e-9)
    tangent = RANDOM.standard_normal(a.shape)
    (moved,) = rlx.evaluate(rlx.jvp(graph, ["x"]), {"x": a, "tangent_x": tangent})[-1:]
    np.testing.assert_allclose(moved, np.sum(tangent * gradient), atol=1e-9)
    np.testing.assert_allclose(_value(lambda g, x: g.det(x), a), np.linalg.det(a), atol=1e-9)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_second_derivatives(size: int) -> None:
    """The change of the cofactors, by differences, at a matrix of rank N-1."""
    a, tangent, step = _of_rank(size, size - 1), RANDOM.standard_normal((size, size)), 1e-5
    twice = rlx.jvp(rlx.grad(_graph(_determinant, a.shape), wrt=["x"]), ["x"])
    (found,) = rlx.evaluate(twice, {"x": a, "tangent_x": tangent})[-1:]
    wanted = (_cofactors(a + step * tangent) - _cofactors(a - step * tangent)) / (2 * step)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_product_of_large_and_small_pivots() -> None:
    a = np.diag([1e30, 1e-30, 1e30, 1e-30, 2]).astype(np.float32)
    (found,) = rlx.evaluate(_graph(lambda g, x: g.det(x), a.shape, "f32"), {"x": a})
    np.testing.assert_allclose(found, 2, rtol=1e-6)


def test_compiled_determinants_and_gradients() -> None:
    shapes = [(3, 3), (2, 5, 5)]
    graphs = [rlx.grad(_graph(_determinant, shape, "f32"), wrt=["x"]) for shape in shapes]
    for shape, graph, compiled in zip(shapes, graphs, compile_graphs(graphs), strict=True):
        a = RANDOM.standard_normal(shape).astype(np.float32)
        a[..., -1, :] = 2 * a[..., 0, :]
        for found, wanted in zip(compiled.run([a]), rlx.evaluate(graph, {"x": a}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 0), (0, 2, 2)])
@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_nothing_are_numpys(shape: tuple[int, ...], order: Any, keepdims: bool) -> None:
    x = np.zeros(shape)
    try:
        wanted = np.linalg.matrix_norm(x, ord=order, keepdims=keepdims)
    except ValueError:
        with pytest.raises(rlx.Error, match="the smallest of no numbers"):
            _value(lambda g, t: g.matrix_norm(t, order, keepdims), x)
        return
    found = _value(lambda g, t: g.matrix_norm(t, order, keepdims), x)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def test_conditions_and_ranks_of_zeros_and_nan() -> None:
    """NumPy's `cond` refuses matrices of NaN, because its decomposition does not converge."""
    a = np.stack([np.zeros((2, 2)), np.diag([3.0, 0]), np.diag([4.0, 2]), np.full((2, 2), np.nan)])
    assert _value(lambda g, x: g.cond(x), a)[:3].tolist() == np.linalg.cond(a[:3]).tolist() == [np.inf, np.inf, 2]
    assert np.isnan(_value(lambda g, x: g.cond(x), a)[3])
    assert _value(lambda g, x: g.matrix_rank(x), a).tolist() == [0, 1, 2, 0]
    for shape in ((0, 0), (3, 0)):
        with pytest.raises(np.linalg.LinAlgError, match="empty"):
            np.linalg.cond(np.zeros(shape))
        with pytest.raises(rlx.Error, match="no condition number"):
            _value(lambda g, x: g.cond(x), np.zeros(shape))


def test_the_derivatives_of_singular_vectors_have_no_magnitude() -> None:
    """Squares of singular values overflow or vanish; their quotients do not."""
    a, tangent = (RANDOM.standard_normal((4, 3)).astype(np.float32) for _ in range(2))

    def moved(scale: float) -> list[np.ndarray]:
        g = rlx.Graph()
        g.set_outputs(list(g.svd(g.input("x", (4, 3), "f32"), full_matrices=False)))
        scaled = {"x": a * np.float32(scale), "tangent_x": tangent * np.float32(scale)}
        return rlx.evaluate(rlx.jvp(g, ["x"]), scaled)[3:]

    du, ds, dvt = moved(1)
    for scale in (1e-25, 1e25):
        for found, wanted in zip(moved(scale), (du, ds * scale, dvt), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("values", [lambda g, x: g.eigvalsh(x), lambda g, x: g.svdvals(x)], ids=["eigvalsh", "svdvals"])
def test_derivatives_at_repeated_values(values: Any) -> None:
    """The functions treat equal values alike."""
    a = np.diag([1.0, 1.0, 2.0])
    graph = _graph(lambda g, x: g.sum(g.square(values(g, x))), a.shape)
    (gradient,) = rlx.evaluate(rlx.grad(graph, wrt=["x"]), {"x": a})[-1:]
    np.testing.assert_allclose(gradient, 2 * a, atol=1e-12)
