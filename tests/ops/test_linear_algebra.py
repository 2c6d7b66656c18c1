"""Linear systems against LAPACK; products by group and low-rank adaptation against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg

from rlx.ir.dtype import dtype
from rlx.ops.contraction.linear_algebra import _block_size
from rlx.support.errors import ShapeError
from tests.drawing import drawn
from tests.ops.references import FLOATS, INTEGERS, agree, decomposed, random, run

NAN, INF = np.nan, np.inf
BOTH = pytest.mark.parametrize("evaluated", [run, decomposed], ids=["evaluated", "decomposed"])

# --- systems of linear equations --------------------------------------------------------------------


def _expect_solution(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Check that the solution is as close to LAPACK's f64 solution as the condition number allows for the dtype."""
    wide = a.astype(np.float64), b.astype(np.float64)
    reference = np.linalg.solve(*wide)
    # f16 and bf16 are solved in f32 and rounded once.
    kind = dtype(a.dtype)
    solved = min(kind.eps, float(np.finfo(np.float32).eps)) * np.linalg.cond(wide[0]) * len(a)
    error = np.abs(got.astype(np.float64) - reference).max()
    assert error <= (solved + kind.eps) * np.abs(reference).max()


@BOTH
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 40])
def test_dense_solve(size: int, name: str, evaluated: Any) -> None:
    a, b = random(name, (size, size), seed=size), random(name, (size, 3), seed=1)
    _expect_solution(evaluated("dense_solve", a, b), a, b)
    vector = evaluated("dense_solve", a, b[:, 0])
    assert vector.shape == (size,)
    _expect_solution(vector, a, b[:, 0])


@BOTH
def test_pivots_are_sought(evaluated: Any) -> None:
    """The diagonal has zeros and small numbers; elimination without pivoting would divide by them."""
    permutation = np.eye(6)[[3, 1, 5, 0, 2, 4]]
    b = random("f64", (6,))
    assert np.array_equal(evaluated("dense_solve", permutation, b), permutation.T @ b)
    a = np.array([[1e-20, 1.0], [1.0, 1.0]])
    agree(evaluated("dense_solve", a, np.array([1.0, 2.0])), np.array([1.0, 1.0]))


@BOTH
def test_an_ill_conditioned_system_has_a_small_residual(evaluated: Any) -> None:
    a = linalg.hilbert(9)
    b = a @ np.ones(9)
    x = evaluated("dense_solve", a, b)
    assert np.abs(a @ x - b).max() < 1e-14
    assert np.abs(x - 1).max() < 1e-16 * np.linalg.cond(a)


@BOTH
def test_triangular_systems_are_substituted_exactly(evaluated: Any) -> None:
    upper = np.triu(np.arange(1.0, 26.0).reshape(5, 5)) + 30 * np.eye(5)
    x = np.array([1.0, -2.0, 3.0, -4.0, 5.0])
    agree(evaluated("dense_solve", upper, upper @ x), x, factor=4)


@BOTH
@pytest.mark.parametrize(
    "a",
    [[[0, 0], [0, 0]], [[1, 2], [2, 4]], [[1, 2, 3], [2, 4, 6], [0, 0, 1]], [[0, 1], [0, 1]], [[NAN, 1], [1, 1]]],
)
def test_a_singular_system_has_no_finite_solution(a: Any, evaluated: Any) -> None:
    a = np.array(a, np.float64)
    x = evaluated("dense_solve", a, np.ones(len(a)))
    assert not np.isfinite(x).all()


@BOTH
def test_empty_systems(evaluated: Any) -> None:
    for a, b in (((0, 0), (0,)), ((0, 0), (0, 3)), ((3, 3), (3, 0))):
        assert evaluated("dense_solve", np.ones(a, np.float32), np.ones(b, np.float32)).shape == b
    for a, b in (((0, 2, 2), (0, 2)), ((2, 0, 0), (2, 0, 4))):
        assert evaluated("batched_dense_solve", np.ones(a, np.float32), np.ones(b, np.float32)).shape == b


@BOTH
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_batched_dense_solve(name: str, evaluated: Any) -> None:
    a, b = random(name, (4, 6, 6)), random(name, (4, 6, 2), seed=1)
    a[2, 3] = a[2, 4]  # a singular system does not affect the others
    got = evaluated("batched_dense_solve", a, b)
    for i in (0, 1, 3):
        _expect_solution(got[i], a[i], b[i])
    vectors = evaluated("batched_dense_solve", a, b[..., 0])
    assert vectors.shape == (4, 6)
    _expect_solution(vectors[3], a[3], b[3, :, 0])


@pytest.mark.parametrize(("a", "b"), [((2, 3), (2,)), ((2, 2), (3,)), ((2, 2), ()), ((2, 2), (2, 1, 1)), ((4,), (4,))])
def test_what_is_no_system_is_refused(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        run("dense_solve", np.ones(a, np.float32), np.ones(b, np.float32))
    with pytest.raises(ShapeError):
        run("batched_dense_solve", np.ones((1, *a), np.float32), np.ones((1, *b), np.float32))


# --- products ---------------------------------------------------------------------------------------


def _grouped(x: np.ndarray, w: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Compute one product of a vector and a matrix for each row."""
    rows = []
    for row, index in zip(x, indices, strict=True):
        matrix = w[min(max(int(index), 0), len(w) - 1)]
        rows.append(row.astype(np.float64) @ matrix.astype(np.float64))
    return np.array(rows).reshape(len(x), w.shape[2]).astype(x.dtype)


@BOTH
@drawn("name", FLOATS, of_each=1)
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (1, 5), (3, 20), (12, 4), (50, 3), (33, 1), (0, 2)])
def test_grouped_matmul(rows: int, groups: int, name: str, evaluated: Any) -> None:
    x, w = random(name, (rows, 4)), random(name, (groups, 4, 3), seed=1)
    indices = np.random.default_rng(rows).integers(0, groups, rows)
    got = evaluated("grouped_matmul", x, w, indices)
    agree(got, _grouped(x, w, indices), noise=np.full((rows, 3), 3e-6 if name != "f64" else 1e-14))


@BOTH
@pytest.mark.parametrize("group", [0, 2, 4])
def test_all_rows_of_one_group(group: int, evaluated: Any) -> None:
    """The other groups are empty and have no blocks."""
    x, w = random("f64", (70, 3)), random("f64", (5, 3, 2), seed=1)
    got = evaluated("grouped_matmul", x, w, np.full(70, group))
    agree(got, x @ w[group], noise=np.full((70, 2), 1e-14))


@BOTH
@pytest.mark.parametrize("name", INTEGERS)
def test_groups_are_clamped(name: str, evaluated: Any) -> None:
    kind = dtype(name)
    indices = np.array([0, 2, 3, 100, *([-1, -100] if kind.is_signed else [200]), kind.min, kind.max], object).astype(
        kind.numpy
    )
    x, w = random("f32", (len(indices), 2)), random("f32", (3, 2, 2), seed=1)
    agree(evaluated("grouped_matmul", x, w, indices), _grouped(x, w, indices), noise=np.full((len(x), 2), 1e-6))


@BOTH
def test_rows_do_not_spoil_each_other(evaluated: Any) -> None:
    x, w = random("f32", (6, 3)), random("f32", (2, 3, 4), seed=1)
    x[2], w[1] = NAN, INF
    got = evaluated("grouped_matmul", x, w, np.array([0, 1, 0, 0, 1, 0]))
    finite = [True, False, False, True, False, True]
    assert np.isfinite(got).all(1).tolist() == finite


@pytest.mark.parametrize(("rows", "groups", "block"), [(1, 8, 1), (4, 8, 1), (32, 8, 8), (256, 8, 64), (9999, 8, 128)])
def test_blocks_grow_with_the_rows_of_a_group(rows: int, groups: int, block: int) -> None:
    assert _block_size(rows, groups) == block


@pytest.mark.parametrize(
    ("x", "w", "indices"), [((2, 3), (4, 2, 5), (2,)), ((2, 3), (3, 5), (2,)), ((2, 3), (0, 3, 5), (2,))]
)
def test_products_that_do_not_fit_are_refused(x: Any, w: Any, indices: Any) -> None:
    with pytest.raises(ShapeError):
        run("grouped_matmul", np.ones(x, np.float32), np.ones(w, np.float32), np.zeros(indices, np.int32))
    with pytest.raises(ShapeError):
        run("grouped_matmul", np.ones((2, 3), np.float32), np.ones((4, 3, 5), np.float32), np.zeros(3, np.int32))


@BOTH
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dims", [(), (5,), (2, 3)])
def test_lora_matmul(dims: tuple[int, ...], name: str, evaluated: Any) -> None:
    shapes = [(*dims, 6), (6, 4), (6, 2), (2, 4)]
    x, w, a, b = (random(name, shape, low=-1, high=1, seed=i) for i, shape in enumerate(shapes))
    wide = [v.astype(np.float64) for v in (x, w, a, b)]
    expected = wide[0] @ (wide[1] + 0.5 * wide[2] @ wide[3])
    got = evaluated("lora_matmul", x, w, a, b, scale=0.5)
    assert got.shape == (*dims, 4)
    # The decomposition rounds the products of f16 and bf16 before it adds them.
    agree(got, expected.astype(x.dtype), noise=np.full(expected.shape, 4 * dtype(name).eps))
    plain = evaluated("lora_matmul", x, w, a, np.zeros_like(b), scale=0.5)
    agree(plain, (wide[0] @ wide[1]).astype(x.dtype), noise=np.full(expected.shape, dtype(name).eps))
