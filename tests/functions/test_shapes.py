"""Functions that arrange, split and create tensors, against the NumPy functions of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx.support.errors import ShapeError
from tests.functions.test_spectral import built
from tests.ops.references import random

X = random("f32", (2, 3, 4))
ONE = random("f32", (5,))
SQUEEZABLE = random("f32", (1, 3, 1, 2))
SQUARE = np.arange(12, dtype=np.int32).reshape(3, 4)

# Calls, where `m` is NumPy or the graph.
CALLS: dict[str, tuple[np.ndarray, Callable[[Any, Any], Any]]] = {
    "squeeze": (SQUEEZABLE, lambda m, x: m.squeeze(x)),
    "squeeze one": (SQUEEZABLE, lambda m, x: m.squeeze(x, axis=-2)),
    "expand_dims": (X, lambda m, x: m.expand_dims(x, (0, -1))),
    "ravel": (X, lambda m, x: m.ravel(x)),
    "moveaxis": (X, lambda m, x: m.moveaxis(x, (0, 2), (-1, 0))),
    "moveaxis one": (X, lambda m, x: m.moveaxis(x, -1, 0)),
    "swapaxes": (X, lambda m, x: m.swapaxes(x, 0, -1)),
    "flip": (X, lambda m, x: m.flip(x)),
    "flip axes": (X, lambda m, x: m.flip(x, axis=(0, -1))),
    "broadcast_to": (ONE, lambda m, x: m.broadcast_to(x, (2, 5))),
    "roll": (X, lambda m, x: m.roll(x, 5)),
    "roll back": (X, lambda m, x: m.roll(x, -1, axis=1)),
    "roll axes": (X, lambda m, x: m.roll(x, (1, -6), axis=(0, 2))),
    "roll one shift": (X, lambda m, x: m.roll(x, 2, axis=(1, 2))),
    "roll empty": (X[:0], lambda m, x: m.roll(x, 2, axis=0)),
    "tile": (X, lambda m, x: m.tile(x, (2, 1, 3, 2))),
    "tile last": (X, lambda m, x: m.tile(x, 2)),
    "tile none": (X, lambda m, x: m.tile(x, (0, 1))),
    "repeat": (X, lambda m, x: m.repeat(x, 2)),
    "repeat axis": (X, lambda m, x: m.repeat(x, 3, axis=-2)),
    "repeat list": (X, lambda m, x: m.repeat(x, [2, 0, 1], axis=1)),
    "stack": (X, lambda m, x: m.stack([x, x + 1], axis=-1)),
    "stack first": (X, lambda m, x: m.stack([x])),
    "split": (X, lambda m, x: m.split(x, 2, axis=-1)),
    "split places": (X, lambda m, x: m.split(x, [1, 3], axis=2)),
    "split beyond": (X, lambda m, x: m.split(x, [-1, 1, 9], axis=2)),
    "array_split": (X, lambda m, x: m.array_split(x, 3, axis=2)),
    "array_split many": (X, lambda m, x: m.array_split(x, 6, axis=2)),
    "tril": (X, lambda m, x: m.tril(x, -1)),
    "triu": (X, lambda m, x: m.triu(x, k=1)),
    "diag": (ONE, lambda m, x: m.diag(x)),
    "diag above": (ONE, lambda m, x: m.diag(x, 2)),
    "diag below": (ONE, lambda m, x: m.diag(x, k=-1)),
    "diag of": (SQUARE, lambda m, x: m.diag(x, 1)),
    "diagonal": (SQUARE, lambda m, x: m.diagonal(x)),
    "diagonal below": (SQUARE, lambda m, x: m.diagonal(x, -2)),
    "diagonal outside": (SQUARE, lambda m, x: m.diagonal(x, 7)),
    "diagonal axes": (X, lambda m, x: m.diagonal(x, 1, axis1=2, axis2=0)),
    "outer": (ONE, lambda m, x: m.outer(x, x + 1)),
    "meshgrid": (ONE, lambda m, x: m.meshgrid(x, x[:2])),
    "meshgrid ij": (ONE, lambda m, x: m.meshgrid(x, x[:2], x[:3], indexing="ij")),
    "meshgrid xy": (ONE, lambda m, x: m.meshgrid(x, x[:2], x[:3])),
    "zeros_like": (SQUARE, lambda m, x: m.zeros_like(x)),
    "ones_like": (X, lambda m, x: m.ones_like(x)),
    "full_like": (SQUARE, lambda m, x: m.full_like(x, 7)),
    "zeros": (ONE, lambda m, x: m.zeros((2, 3), dtype=np.float32)),
    "ones": (ONE, lambda m, x: m.ones(4, dtype=np.int32)),
    "full": (ONE, lambda m, x: m.full((2, 0), 1.5, dtype=np.float32)),
    "eye": (ONE, lambda m, x: m.eye(3, 4, 1, dtype=np.float32)),
    "tri": (ONE, lambda m, x: m.tri(3, 4, -1, dtype=np.float32)),
    "arange": (ONE, lambda m, x: m.arange(2, 11, 3, dtype=np.int32)),
    "arange down": (ONE, lambda m, x: m.arange(5, dtype=np.float32)),
    "linspace": (ONE, lambda m, x: m.linspace(-1, 2, 7, dtype=np.float32)),
    "linspace open": (ONE, lambda m, x: m.linspace(0, 1, 4, endpoint=False, dtype=np.float32)),
}


@pytest.mark.parametrize("name", CALLS)
def test_gives_what_numpy_gives(name: str) -> None:
    x, call = CALLS[name]
    expected = call(np, x)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    got = built(call, x)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_names_of_others() -> None:
    assert [p.shape for p in built(lambda g, x: g.chunk(x, 3, axis=2), X)] == [(2, 3, 2), (2, 3, 2)]
    assert built(lambda g, x: g.flatten(x, 1), X)[0].shape == (2, 12)
    assert built(lambda g, x: g.unsqueeze(x, -1), X)[0].shape == (2, 3, 4, 1)
    classes = np.asarray([[0, 2], [-1, 3]], np.int8)
    expected = np.arange(3) == classes[..., None]
    np.testing.assert_array_equal(built(lambda g, x: g.one_hot(x, 3), classes)[0], expected.astype(np.float32))
    first = built(lambda g, x: g.one_hot(x, 3, dtype="i32", axis=0), classes)[0]
    np.testing.assert_array_equal(first, np.moveaxis(expected, -1, 0).astype(np.int32))


@pytest.mark.parametrize(
    ("call", "numpy"),
    [
        (lambda g, x: g.roll(x, 1, axis=0), lambda x: np.roll(x, 1, axis=0)),
        (lambda g, x: g.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1))),
        (lambda g, x: g.repeat(x, 2, axis=0), lambda x: np.repeat(x, 2, axis=0)),
        (lambda g, x: g.stack([x, x], axis=1), lambda x: np.stack([x, x], axis=1)),
        (lambda g, x: g.split(x, [1])[1], lambda x: x[1:]),
        (lambda g, x: g.ravel(x), np.ravel),
        (lambda g, x: g.diagonal(x), np.diagonal),
        (lambda g, x: g.diag(g.ravel(x), 1), lambda x: np.diag(x.ravel(), 1)),
        (lambda g, x: g.arange("n"), lambda x: np.arange(len(x), dtype=np.int32)),
        (lambda g, x: g.eye("n"), lambda x: np.eye(len(x), dtype=np.float32)),
        (lambda g, x: g.zeros_like(x), np.zeros_like),
    ],
)
@pytest.mark.parametrize("n", [2, 5])
def test_symbolic_sizes(call: Any, numpy: Any, n: int) -> None:
    x = random("f32", (n, 3))
    np.testing.assert_array_equal(built(call, x, dims=[("n", 3)])[0], numpy(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.squeeze(x, 1), "axis 1 of .* has size 3"),
        (lambda g, x: g.split(x, 3, axis=2), "no 3 equal parts"),
        (lambda g, x: g.stack([x, x[0]]), "must have one shape"),
        (lambda g, x: g.stack([]), "at least one tensor"),
        (lambda g, x: g.diagonal(x, axis1=1), "both axis 1"),
        (lambda g, x: g.moveaxis(x, (0, 0), (1, 2)), "each once"),
        (lambda g, x: g.repeat(x, [1, 2]), "repeats must be 24 numbers"),
        (lambda g, x: g.meshgrid(x), "rank 1"),
        (lambda g, x: g.one_hot(x, 3), "integers"),
        (lambda g, x: g.arange(0, 3, 0), "step must not be 0"),
        (lambda g, x: g.roll(x, 1.5, axis=0), "shift must be an integer"),
        (lambda g, x: g.flatten(x, 2, 1), "after end_axis"),
    ],
)
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as problem:
        built(call, X)
    assert "test_shapes.py" in str(problem.value)
