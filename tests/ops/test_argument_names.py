"""Argument names of other libraries: accepted by reductions, suggested by all other ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.support.errors import ShapeError
from tests.functions.test_spectral import built
from tests.ops.references import random

X = random("f32", (2, 3, 4))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_reductions_take_the_names_of_numpy(name: str) -> None:
    expected = built(lambda g, x: getattr(g, name)(x, axes=(0, 2), keep_dims=True), X)[0]
    got = built(lambda g, x: getattr(g, name)(x, axis=(0, 2), keepdims=True), X)[0]
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(built(lambda g, x: g.reduce(name, x, axis=(0, 2), keepdims=True), X)[0], expected)


def test_positions_take_the_name_of_numpy() -> None:
    assert built(lambda g, x: g.argmax(x, axis=1, keepdims=True), X)[0].shape == (2, 1, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.sum(x, 0, axis=1), "axes and axis are two names"),
        (lambda g, x: g.sum(x, keep_dims=True, keepdims=True), "keep_dims and keepdims are two names"),
        (lambda g, x: g.sum(x, dim=1), "did you mean 'ax[ei]s'"),
        (lambda g, x: g.argmax(x, dim=1), "did you mean 'axis'"),
        (lambda g, x: g.softmax(x, axes=1), "did you mean 'axis'"),
        (lambda g, x: g.softmax(x, dim=1), "did you mean 'axis'"),
        (lambda g, x: g.sum(x, keepdim=True), "did you mean 'keep_dims'"),
        (lambda g, x: g.layer_norm(x, x[0, 0], x[0, 0], epsilon=1e-5), "did you mean 'eps'"),
        (lambda g, x: g.max_pool(x, kernel_size=2), "did you mean 'kernel'"),
        (lambda g, x: g.squeeze(x, dim=1), "did you mean 'axis'"),
        (lambda g, x: g.flip(x, axes=1), "did you mean 'axis'"),
    ],
)
def test_a_misspelt_keyword_names_the_right_one(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        built(call, X)
