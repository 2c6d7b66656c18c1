"""Indexing of tensors: what NumPy gives for the same index."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.evaluate import evaluate

_BOUNDS = (None, 0, 1, 3, 6, 7, 9, -1, -3, -7, -9)


def _check(x: np.ndarray, dims: tuple[Any, ...], indices: list[Any]) -> None:
    g = rlx.Graph()
    tensor = g.input("x", dims)
    g.set_outputs([tensor[index] for index in indices])
    for index, got in zip(indices, evaluate(g, {"x": x}), strict=True):
        assert got.shape == x[index].shape and np.array_equal(got, x[index]), f"{index} of {x.shape}"


@pytest.mark.parametrize("step", [1, 2, 9, -1, -2, -3, -9])
def test_slices(step: int) -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    _check(x, x.shape, [np.s_[1:, start:stop:step] for start, stop in product(_BOUNDS, _BOUNDS)])


@pytest.mark.parametrize("size", [0, 1, 5, 6])
def test_slices_of_symbolic_axes(size: int) -> None:
    x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
    indices: list[Any] = [np.s_[::-1], np.s_[::-2], np.s_[::-1, ::-3], np.s_[::3], np.s_[::-1, None, 2]]
    indices += [np.s_[::-1, [1, 3]], np.s_[..., ::-1]]
    if size >= 5:
        indices += [np.s_[4:1:-1], np.s_[-2::-2], np.s_[:-3:-1], np.s_[1:-1], np.s_[-1], np.s_[-3:-1:2]]
    _check(x, ("n", 4), indices)


def test_other_entries() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    indices: list[Any] = [0, -1, np.s_[..., 1], np.s_[:, None, 2], np.s_[1, ..., ::-1], (), np.s_[:, [2, 0, 0]], None]
    _check(x, x.shape, [*indices, np.s_[::-1, 1, np.array([[3, 1]])]])


def test_indices_that_are_refused() -> None:
    x = rlx.Graph().input("x", (2, 3))
    for index, reason in (
        (np.s_[::0], "step must not be 0"),
        (5, "out of range"),
        ((0, 0, 0), "3 indices"),
        ((..., ...), "one ellipsis"),
        (True, "booleans"),
        (([0], [1]), "at most one axis"),
    ):
        with pytest.raises(rlx.ShapeError, match=reason):
            x[index]
