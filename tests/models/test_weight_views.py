"""Views of weights: rows move as a whole, packed or not."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rlx
from rlx import Error
from rlx.models.weight_views import rows, split_groups, split_rows, stacked, transposed
from rlx.weights import PackedBlocks, Weight, Weights


def plain(array: np.ndarray) -> Weight:
    return Weights.of({"w": array}, "the test")["w"]


def packed(array: np.ndarray) -> tuple[Weight, np.ndarray]:
    """Return a packed weight, and its values."""
    scheme = rlx.weights.schemes["q8_0"]
    assert scheme.encode is not None
    stored = scheme.encode(array)
    weight = Weight("w", array.shape, PackedBlocks(scheme), stored.nbytes, "the test", stored.tobytes)
    return weight, scheme.decode(stored)


MATRIX = np.random.default_rng(0).normal(size=(12, 64)).astype(np.float32)


def test_consecutive_rows_are_not_copied() -> None:
    weight = plain(MATRIX)
    part = rows(weight, 4, 3)
    np.testing.assert_array_equal(part.numpy(), MATRIX[4:7])
    assert np.shares_memory(part.stored(), weight.stored())


def test_parts_of_rows() -> None:
    weight, values = packed(MATRIX)
    parts = split_rows(weight, [6, 4, 2])
    assert [part.shape for part in parts] == [(6, 64), (4, 64), (2, 64)]
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part in parts]), values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(parts[1])).numpy(), values[6:10])
    vector = plain(np.arange(12, dtype=np.float32))
    np.testing.assert_array_equal(split_rows(vector, [8, 4])[1].numpy(), np.arange(8, 12))


def test_parts_of_an_inner_axis() -> None:
    weight, values = packed(MATRIX.reshape(3, 4, 64))
    gate, up = split_rows(weight, [2, 2], axis=1)
    np.testing.assert_array_equal(gate.numpy(), values[:, :2])
    np.testing.assert_array_equal(up.numpy(), values[:, 2:])


@pytest.mark.parametrize("is_packed", [False, True])
def test_parts_of_groups(is_packed: bool) -> None:
    weight, values = packed(MATRIX) if is_packed else (plain(MATRIX), MATRIX)
    parts = split_groups(weight, 3, [2, 1, 1])
    split = values.reshape(3, 4, 64)
    for part, expected in zip(parts, (split[:, :2], split[:, 2], split[:, 3]), strict=True):
        np.testing.assert_array_equal(part.numpy(), expected.reshape(-1, 64))


def test_stacked_and_transposed() -> None:
    weight, values = packed(MATRIX)
    np.testing.assert_array_equal(stacked([weight, weight]).numpy(), np.stack([values, values]))
    np.testing.assert_array_equal(transposed(plain(MATRIX)).numpy(), MATRIX.T)


def test_sizes_that_do_not_fit() -> None:
    weight = plain(MATRIX)
    with pytest.raises(Error, match=r"tensor 'w' of the test is float32\[12, 64\], and 6 \+ 5 rows are expected"):
        split_rows(weight, [6, 5])
    with pytest.raises(Error, match="and 15 rows are expected"):
        split_groups(weight, 3, [3, 1, 1])
    with pytest.raises(Error, match="differ in shape, dtype or order of columns"):
        stacked([weight, rows(weight, 0, 3)])
