"""Gathers and scatters at tuples of indices, against JAX, PyTorch and plain loops."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, dtype
from rlx.ir.graph.evaluate import evaluate
from tests.drawing import drawn
from tests.ops.references import FLOATS, INTEGERS, agree, in_jax, random, run, same_bits, samples_of

NAMES = [d.name for d in DTYPES]
NAN, INF = np.nan, np.inf


def _values(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return values that include special ones, in another order for each seed."""
    kind = dtype(name).numpy
    return np.resize(np.random.default_rng(seed).permutation(samples_of(name, 20)), shape).astype(kind)


def _indices(name: str, shape: tuple[int, ...], high: int, seed: int = 0) -> np.ndarray:
    """Return indices in range, and far out of range in both directions."""
    values = random(name, shape, low=-3, high=high + 3, seed=seed)
    values.flat[0], values.flat[-1] = dtype(name).max, dtype(name).min
    return values


# --- gather_nd --------------------------------------------------------------------------------------


def _gathered(x: np.ndarray, indices: np.ndarray, batch_dims: int) -> np.ndarray:
    """Compute the formula, one position at a time."""
    *places, count = indices.shape
    result = np.zeros((*places, *x.shape[batch_dims + count :]), x.dtype)
    for place in np.ndindex(*places):
        sizes = x.shape[batch_dims : batch_dims + count]
        chosen = [min(max(int(i), 0), d - 1) for i, d in zip(indices[place], sizes, strict=True)]
        result[place] = x[(*place[:batch_dims], *chosen)]
    return result


@drawn("name", NAMES, of_each=5)
def test_gather_nd(name: str) -> None:
    x = _values(name, (4, 5, 3))
    for count in (0, 1, 2, 3):
        indices = _indices("i32", (2, 6, count), 5) if count else np.zeros((2, 6, 0), np.int32)
        got = run("gather_nd", x, indices)
        same_bits(got, _gathered(x, indices, 0))
        if count:
            inside = np.clip(indices, 0, np.array(x.shape[:count]) - 1)
            same_bits(got, in_jax(lambda v, i: v[tuple(jnp.moveaxis(i, -1, 0))], x, inside))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("batch_dims", [0, 1, 2])
def test_indices_of_every_dtype_and_batches(batch_dims: int, name: str) -> None:
    x = _values("f32", (2, 3, 4, 5, 2))
    indices = _indices(name, (2, 3, 7, 2), 5)
    same_bits(run("gather_nd", x, indices, batch_dims=batch_dims), _gathered(x, indices, batch_dims))


def test_gathering_nothing() -> None:
    x, none = np.zeros((0, 5), np.float32), np.zeros((0, 2), np.int32)
    assert run("gather_nd", x, none).shape == (0,)
    assert run("gather_nd", x, none[:, :1]).shape == (0, 5)
    assert run("gather_nd", x[:, :0], np.zeros((3, 1), np.int32)).shape == (3, 0)
    with pytest.raises(rlx.ShapeError, match="axis 0 of"):
        run("gather_nd", x, np.zeros((3, 1), np.int32))


@pytest.mark.parametrize(
    ("shape", "indices", "batch_dims"),
    [
        ((4,), (3, 2), 0),
        ((4, 5), (), 0),
        ((4, 5), (3, 1), 1),
        ((4, 5), (4, 1), 2),
        ((4,), (4, 1), 1),
        ((4, 5), (4, 1), -1),
    ],
)
def test_gathers_that_do_not_fit(shape: Any, indices: Any, batch_dims: int) -> None:
    with pytest.raises(rlx.ShapeError, match=r"rlx\.gather_nd"):
        run("gather_nd", np.zeros(shape, np.float32), np.zeros(indices, np.int32), batch_dims=batch_dims)


# --- scatter_nd -------------------------------------------------------------------------------------


def _positions(indices: np.ndarray, sizes: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return pairs of the position and target of each update, without dropped updates."""
    pairs = [(p, tuple(int(i) for i in indices[p])) for p in np.ndindex(*indices.shape[:-1])]
    return [(p, t) for p, t in pairs if all(0 <= i < d for i, d in zip(t, sizes, strict=True))]


@pytest.mark.parametrize("name", NAMES)
def test_the_last_update_wins(name: str) -> None:
    x, updates = _values(name, (4, 3)), _values(name, (5, 6, 3), seed=1)
    indices = _indices("i64", (5, 6, 1), 4)
    expected = x.copy()
    for place, target in _positions(indices, (4,)):
        expected[target] = updates[place]
    same_bits(run("scatter_nd", x, indices, updates), expected)


@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_out_of_range_is_dropped(name: str) -> None:
    x, updates = _values("f32", (3, 5)), _values("f32", (40,), seed=1)
    indices = _indices(name, (40, 2), 5)
    expected = x.copy()
    for place, target in _positions(indices, (3, 5)):
        expected[target] = updates[place]
    same_bits(run("scatter_nd", x, indices, updates), expected)
    outside = np.full((2, 1), dtype(name).max, dtype(name).numpy)
    same_bits(run("scatter_nd", x, outside, _values("f32", (2, 5)), reduction="add"), x)


@drawn("name", (*FLOATS, *INTEGERS, "c64"), of_each=4)
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_reductions(reduction: str, name: str) -> None:
    if name == "c64" and reduction in ("max", "min"):
        with pytest.raises(rlx.ShapeError, match="complex numbers have no order"):
            run("scatter_nd", np.zeros(3, "c8"), np.zeros((1, 1), "i4"), np.zeros(1, "c8"), reduction=reduction)
        return
    is_integer = dtype(name).is_integer
    low, high = (-100, 100) if is_integer else (0.5, 1.5)
    x, updates = random(name, (6, 4), low=low, high=high), random(name, (50, 4), low=low, high=high, seed=1)
    indices = random("i32", (50, 1), low=-2, high=8)
    got = run("scatter_nd", x, indices, updates, reduction=reduction)
    method = {"add": "add", "mul": "multiply", "max": "max", "min": "min"}[reduction]
    inside = np.where(indices < 0, 99, indices)[:, 0]  # in JAX negative indices count from the end

    def reference(v: Any, i: Any, u: Any) -> Any:
        return getattr(v.at[i], method)(u, mode="drop")

    # JAX adds f16 and bf16 in f16 and bf16.
    wide = {"f16": np.float32, "bf16": np.float32}.get(name, x.dtype)
    expected = in_jax(reference, x.astype(wide), inside, updates.astype(wide)).astype(x.dtype)
    exact = is_integer or reduction in ("max", "min")
    eps = float(np.finfo(np.float64 if name == "f64" else np.float32).eps)
    room = None if exact else np.abs(got.astype(np.complex128)) * 50 * eps
    agree(got, expected, factor=0 if exact else 1, noise=room)


def test_reductions_of_bools() -> None:
    x = np.array([False, True, False, True])
    indices, updates = np.array([[0], [1], [2], [3], [0]]), np.array([True, True, False, False, False])
    for reduction, expected in (
        ("add", [True, True, False, True]),
        ("max", [True, True, False, True]),
        ("mul", [False, True, False, False]),
        ("min", [False, True, False, False]),
    ):
        assert run("scatter_nd", x, indices, updates, reduction=reduction).tolist() == expected


def test_special_values() -> None:
    x = np.array([1, INF, 2, NAN, -0.0], np.float32)
    indices = np.array([[0], [1], [1], [2], [3], [4]])
    updates = np.array([NAN, -INF, 1, INF, 0, -0.0], np.float32)
    expected = {
        "add": [NAN, NAN, INF, NAN, -0.0],
        "mul": [NAN, -INF, INF, NAN, 0.0],
        "max": [NAN, INF, INF, NAN, -0.0],
        "min": [NAN, -INF, 2, NAN, -0.0],
    }
    for reduction, values in expected.items():
        got = run("scatter_nd", x, indices, updates, reduction=reduction)
        agree(got, np.array(values, np.float32), signed_zeros=True)
    # Dropped updates leave even -0 and NaN unchanged.
    for reduction in expected:
        dropped = run("scatter_nd", x, indices - 6, updates, reduction=reduction)
        same_bits(dropped, x)


def test_scatters_of_nothing() -> None:
    x = _values("f32", (3, 2))
    none = np.zeros((0, 1), np.int32)
    same_bits(run("scatter_nd", x, none, x[:0]), x)
    same_bits(run("scatter_nd", x[:0], np.zeros((3, 1), np.int32), x), x[:0])
    same_bits(run("scatter_nd", x[:, :0], np.zeros((3, 1), np.int32), x[:, :0]), x[:, :0])
    # The tuples have no indices: every update is the whole tensor.
    same_bits(run("scatter_nd", x, np.zeros((2, 0), np.int32), np.stack([x + 1, x + 2])), x + 2)


@pytest.mark.parametrize(
    ("shape", "indices", "updates"),
    [
        ((4,), (3, 2), (3,)),
        ((4, 5), (3, 1), (3, 4)),
        ((4, 5), (3, 1), (2, 5)),
        ((4, 5), (), (5,)),
        ((4, 5), (3, 2), (3, 1)),
    ],
)
def test_scatters_that_do_not_fit(shape: Any, indices: Any, updates: Any) -> None:
    with pytest.raises(rlx.ShapeError, match=r"rlx\.scatter_nd"):
        run("scatter_nd", np.zeros(shape, "f4"), np.zeros(indices, "i4"), np.zeros(updates, "f4"))


# --- scatter_add ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", (*FLOATS, *INTEGERS, "c64"))
def test_scatter_add(name: str) -> None:
    updates, indices = random(name, (60, 3), low=-9, high=9), _indices("i16", (60,), 5)
    got = run("scatter_add", updates, indices, size=(5,))
    wide = updates.dtype if dtype(name).is_integer else np.clongdouble if name == "c64" else np.longdouble
    expected, sizes = np.zeros((5, 3), wide), np.zeros((5, 3))
    for index, row in zip(indices.tolist(), updates.astype(wide), strict=True):
        if 0 <= index < 5:
            expected[index] += row
            sizes[index] += np.abs(row).astype(np.float64)
    exact = dtype(name).is_integer
    agree(got, expected.astype(updates.dtype), factor=0 if exact else 0.25, noise=None if exact else sizes * 3e-16)


def test_the_size_may_be_a_symbol() -> None:
    g = rlx.Graph()
    x, updates, indices = g.input("x", ("n",)), g.input("u", (4, 2)), g.input("i", rlx.Shape((4,), "i32"))
    g.set_outputs([g.scatter_add(updates, indices, "n"), g.scatter_add(updates, np.array([0, 0, 1, 9]), 2), x])
    arrays = {"x": np.zeros(3, "f4"), "u": np.ones((4, 2), "f4"), "i": np.array([2, 2, -1, 3], "i4")}
    by_symbol, by_number, _ = evaluate(g, arrays)
    assert by_symbol.tolist() == [[0, 0], [0, 0], [2, 2]] and by_number.tolist() == [[2, 2], [1, 1]]
    with pytest.raises(rlx.ShapeError, match="first axes of the updates"):
        g.scatter_add(updates, np.zeros((3,), np.int32), 2)
