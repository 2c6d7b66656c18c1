"""Sorting against NumPy, JAX and PyTorch, and against Python's own sort."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from tests.drawing import drawn
from tests.ops.references import FLOATS, INTEGERS, in_jax, random, run, samples_of

NAMES = (*FLOATS, *INTEGERS, "bool")


def _values(name: str) -> np.ndarray:
    """Return special values and ties."""
    x = np.resize(samples_of(name), (12, 20))
    x[:, 3], x[5] = x[:, 11], x[4]
    return x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_argsort(axis: int, descending: bool, name: str) -> None:
    x = _values(name)
    got = run("argsort", x, axis=axis, descending=descending)
    assert got.dtype == np.int32
    rows = x if axis == 1 else x.T
    for order, row in zip(got if axis == 1 else got.T, rows.tolist(), strict=True):

        def key(i: int, row: list[Any] = row) -> Any:
            value = float("inf") if math.isnan(row[i]) else row[i]
            return (math.isnan(row[i]), value)

        # Python's sort is stable, also in reverse.
        assert order.tolist() == sorted(range(len(row)), key=key, reverse=descending)


@drawn("name", NAMES, of_each=4)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool, name: str) -> None:
    x = _values(name)
    for axis in (0, 1):
        got = run("sort", x, axis=axis, descending=descending)
        order = run("argsort", x, axis=axis, descending=descending)
        assert got.tobytes() == np.take_along_axis(x, order, axis).tobytes()
    few = random(name, (6, 30), low=0, high=5)
    for axis in (0, 1):
        reference = in_jax(lambda v, axis=axis: jnp.sort(v, axis=axis, descending=descending), few)
        assert np.array_equal(run("sort", few, axis=axis, descending=descending), reference)


def test_all_bits_of_large_integers_count() -> None:
    x = np.array([0, -(2**63), 2**63 - 1, 2**63 - 2, -(2**63) + 1])
    assert run("argsort", x, axis=0).tolist() == [1, 4, 0, 3, 2]
    assert run("argsort", x, axis=0, descending=True).tolist() == [2, 3, 0, 4, 1]
    unsigned = np.array([0, 2**32 - 1, 2**31, 2**31 - 1], np.uint32)
    assert run("argsort", unsigned, axis=0).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (1, 1), (0,), (2, 3, 4)])
def test_any_shape_and_negative_axes(shape: tuple[int, ...]) -> None:
    x = random("f32", shape)
    g = rlx.Graph()
    tensor = g.input("x", shape)
    g.set_outputs([g.sort(tensor), g.sort(tensor, axis=0, descending=True), g.argsort(tensor, axis=-len(shape))])
    last, first, order = evaluate(g, {"x": x})
    assert np.array_equal(last, np.sort(x)) and np.array_equal(first, np.flip(np.sort(x, 0), 0))
    assert np.array_equal(order, np.argsort(x, 0, kind="stable"))
