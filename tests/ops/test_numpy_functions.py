"""NumPy functions of tensors, against those of arrays: in a graph and in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.functions.test_spectral import built
from tests.ops.references import random

X, ROW, F64 = random("f32", (2, 3)), random("f32", (3,)), np.arange(6.0).reshape(2, 3)
CALLS: list[Callable[[Any], Any]] = [
    lambda x: np.hstack([x, x]),
    lambda x: np.hstack([F64, x, x]),
    lambda x: np.hstack([x[0], ROW]),
    lambda x: np.hstack([x[0, 0], ROW[0]]),
    lambda x: np.vstack([x, F64]),
    lambda x: np.vstack([ROW, x, x[1]]),
    lambda x: np.vstack([x[0, 0], 1.0]),
    lambda x: np.copy(x, order="C") + np.size(x) + np.size(x, -1) + np.ndim(x) + sum(np.shape(x)),
    lambda x: np.add.reduce(x) + np.multiply.reduce(x, axis=0) + np.maximum.reduce(x),
    lambda x: np.add.reduce(x, axis=None),
    lambda x: np.multiply.outer(x, ROW),
    lambda x: np.subtract.outer(ROW, x) + np.maximum.outer(x[0], x[1])[:, None],
    lambda x: np.logaddexp.reduce(x) + np.logaddexp.reduce(x, axis=1)[0],
    lambda x: np.add.accumulate(x) * np.maximum.accumulate(x, axis=1) + np.minimum.accumulate(x),
    lambda x: np.multiply.accumulate(x, axis=1) + np.logaddexp.accumulate(x, axis=-1),
    lambda x: np.cumsum(x) + np.cumprod(x),
    lambda x: np.cumsum(x, axis=1) + np.cumsum(x, 0),
    lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 10.0, 20.0]),
    lambda x: np.where(np.iscomplexobj(x), x, 2 * x),
    lambda x: np.concatenate([x, F64], axis=None),
]


@pytest.mark.parametrize("call", CALLS)
def test_gives_what_arrays_give(call: Callable[[Any], Any]) -> None:
    expected = np.asarray(call(X.astype(np.float64)))
    with rlx.eager():
        value = call(rlx.ops.constant(X))
    for got in (built(lambda g, x: call(x), X)[0], np.asarray(value)):
        assert got.shape == expected.shape and got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=2e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: np.hstack([x, x], dtype=np.float32),
            "numpy.hstack of tensors: got an unexpected keyword argument 'dtype'",
        ),
        (lambda x: np.vstack([x, x[:, :2]]), r"rlx\.concat: "),
        (lambda x: np.size(x, 2), "axis 2 is out of range for rank 2"),
        (lambda x: np.sum(x, out=np.zeros(())), "numpy.sum: tensors are values"),
        (lambda x: np.sum(x, where=X > 0), "'where'.*\n  hint: g.sum"),
        (lambda x: np.add(x, x, where=X > 0), "'where'.*\n  hint: g.where"),
        (lambda x: np.subtract.accumulate(x), "numpy.subtract.accumulate has no form for tensors"),
        (lambda x: np.hstack([x, "a"]), "expected a tensor, an array or a number, got str"),
    ],
)
def test_what_has_no_form_for_tensors_is_said(call: Callable[[Any], Any], message: str) -> None:
    g: Any = rlx.Graph()
    with pytest.raises(rlx.Error, match=message) as caught:
        call(g.input("x", (2, 3)))
    assert "test_numpy_functions.py:" in str(caught.value)
