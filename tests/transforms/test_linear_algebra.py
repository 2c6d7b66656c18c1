"""Derivatives and batches of linear solves and grouped products compared with JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.references import random
from tests.transforms.against_jax import check, check_second, graph_of
from tests.transforms.checks import check_vmap


def _matrix(*shape: int, name: str = "f64") -> np.ndarray:
    """Return well-conditioned matrices that need pivots."""
    found = random("f64", shape, low=-1, high=1) + 3 * np.eye(shape[-1])
    return found[..., ::-1, :].astype(random(name, ()).dtype)


def _solved(a: Any, b: Any) -> Any:
    if b.ndim == a.ndim:
        return jnp.linalg.solve(a, b)
    return jnp.linalg.solve(a, b[..., None])[..., 0]


@pytest.mark.parametrize("order", [check, check_second])
@pytest.mark.parametrize("rhs", [(4,), (4, 3), (4, 0)])
def test_dense_solve(rhs: tuple[int, ...], order: Any) -> None:
    order(lambda g, a, b: g.dense_solve(a, b), _solved, _matrix(4, 4), random("f64", rhs))


@pytest.mark.parametrize("rhs", [(2, 3), (2, 3, 4)])
def test_batched_dense_solve(rhs: tuple[int, ...]) -> None:
    arrays = _matrix(2, 3, 3), random("f64", rhs)
    check(lambda g, a, b: g.batched_dense_solve(a, b), _solved, *arrays)


def test_narrow_floats() -> None:
    arrays = _matrix(3, 3, name="bf16"), random("bf16", (3, 2))
    check(lambda g, a, b: g.dense_solve(a, b), _solved, *arrays, tolerance=2e-2)


@pytest.mark.parametrize("axes", [{"x0": 0}, {"x1": 0}, {"x1": 1}, {"x0": 1, "x1": 0}])
@pytest.mark.parametrize("rhs", [(3,), (3, 2)])
def test_batches_of_systems(rhs: tuple[int, ...], axes: dict[str, int]) -> None:
    values = {"x0": _matrix(3, 3), "x1": random("f64", rhs)}
    graph = graph_of(lambda g, a, b: g.dense_solve(a, b), list(values.values()))
    check_vmap(graph, values, axes, fresh={"x0": [_matrix(3, 3) * (i + 1) for i in range(3)]})
    # If only the right-hand sides are batched, the one matrix is eliminated once.
    assert ("batched_dense_solve" in str(rlx.vmap(graph, axes, 3))) == ("x0" in axes)


# --- grouped products ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "groups"), [(7, 3), (2, 5), (40, 2), (1, 1), (0, 3)])
def test_grouped_matmul(rows: int, groups: int) -> None:
    x, w = random("f64", (rows, 4)), random("f64", (groups, 4, 5))
    indices = np.random.default_rng(2).integers(-2, groups + 2, rows)  # out of range on both sides, and clamped
    own = np.clip(indices, 0, groups - 1)

    def formula(a: Any, b: Any) -> Any:
        return jnp.einsum("mk,mkn->mn", a, b[own], precision="highest")

    check(lambda g, a, b: g.grouped_matmul(a, b, indices), formula, x, w)
    if rows == 7:
        check_second(lambda g, a, b: g.grouped_matmul(a, b, indices), formula, x, w)
        narrow = x.astype(np.float16), w.astype(np.float16)
        check(lambda g, a, b: g.grouped_matmul(a, b, indices), formula, *narrow, tolerance=2e-3)


def test_rows_count_for_their_own_group_alone() -> None:
    """Block positions without a row are filled with some row; infinite rows do not affect other groups."""
    x, w, dy = np.full((3, 2), np.inf), np.ones((2, 2, 1)), np.ones((3, 1))
    x[1:] = 1.0
    graph = graph_of(lambda g, a, b: g.grouped_matmul(a, b, np.array([0, 1, 1])), (x, w))
    pulled = rlx.vjp(graph, ["x1"])
    got = rlx.evaluate(pulled, {"x0": x, "x1": w, pulled.arguments[-1].name: dy})[1]
    np.testing.assert_array_equal(got[..., 0], [[np.inf, np.inf], [2, 2]])


def test_gradients_by_group_take_no_matrix_for_each_row() -> None:
    graph = rlx.Graph()
    x, w = graph.input("x", (64, 8), "f32"), graph.input("w", (4, 8, 6), "f32")
    graph.set_outputs([graph.grouped_matmul(x, w, graph.input("i", (64,), "i32"))])
    assert "64x8x6" not in str(rlx.vjp(graph, ["x", "w"]))
    assert "64x6x8" not in str(rlx.vjp(graph, ["x", "w"]))


@pytest.mark.parametrize("name", ["u8", "i64"])
def test_batches_of_matrices_have_groups_of_their_own(name: str) -> None:
    indices = np.array([0, 250, 1, 2, 99], dtype=random(name, ()).dtype)
    values = {"x0": random("f64", (5, 2)), "x1": random("f64", (3, 2, 4)), "x2": indices}
    graph = rlx.Graph()
    inputs = [graph.input(n, a.shape, a.dtype.name) for n, a in zip(values, values.values(), strict=True)]
    graph.set_outputs([graph.emit("grouped_matmul", inputs)])
    for axes in ({"x0": 1}, {"x1": 2}, {"x2": 0}, {"x1": 0, "x2": 1}, {"x0": 0, "x1": 0, "x2": 0}):
        check_vmap(graph, values, axes)


def test_lora_matmul() -> None:
    arrays = [random("f64", s, seed=i) for i, s in enumerate(((2, 3, 6), (6, 5), (6, 2), (2, 5)))]
    check(
        lambda g, x, w, a, b: g.lora_matmul(x, w, a, b, scale=0.5),
        lambda x, w, a, b: x @ w + 0.5 * (x @ a @ b),
        *arrays,
    )
