"""Methods of tensors, against those of NumPy arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.answers.names import calls
from rlx.ops import surface
from rlx.ops.numpy_functions import METHOD_OF
from tests.functions.test_spectral import built
from tests.ops.references import random

X = random("f32", (2, 1, 4))
CALLS: list[Callable[[Any], Any]] = [
    *(
        lambda x, n=name: getattr(x, n)(axis=(0, -1), keepdims=True)
        for name in ("sum", "mean", "max", "min", "prod", "any", "all", "var", "std")
    ),
    lambda x: x.sum(),
    lambda x: x.mean(1),
    lambda x: x.flatten(),
    lambda x: x.ravel(),
    lambda x: x.squeeze(),
    lambda x: x.squeeze(1),
    lambda x: x.swapaxes(0, -1),
    lambda x: x.transpose(),
    lambda x: x.transpose(1, 0, 2),
    lambda x: x.transpose((2, 0, 1)),
]


@pytest.mark.parametrize("call", CALLS)
def test_gives_what_an_array_gives(call: Callable[[Any], Any]) -> None:
    (got,), expected = built(lambda g, x: call(x), X), np.asarray(call(X.astype(np.float64)))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-7)


def test_tensors_have_a_length_and_are_iterated_over() -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (3, 2))
    assert len(x) == 3
    assert x.size == 6
    rows = list(x)
    assert [r.shape for r in rows] == [(2,)] * 3
    for tensor in (g.input("n", ("n", 2)), g.input("scalar", ())):
        for use in (len, list):
            with pytest.raises(rlx.Error, match=r"test_tensor_methods\.py"):
                use(tensor)


def test_names_of_other_libraries_say_the_call() -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (3, 2))
    for owner, name, call in (
        (x, "view", r"g\.reshape\(x, shape\)"),
        (g, "cat", r"g\.concat"),
        (rlx.ops, "masked_fill", r"g\.where"),
        (rlx.ops, "linalg", r"g\.solve.*g\.inv.*g\.det.*g\.cholesky.*g\.lu.*g\.qr.*g\.svd.*g\.eigh"),
        (g, "linalg", r"g\.solve.*g\.inv"),
        (g, "sofmax", "did you mean 'softmax'"),
        (x, "sofmax", "did you mean 'softmax'"),
        (rlx.ops, "sofmax", "did you mean 'softmax'"),
    ):
        with pytest.raises(AttributeError, match=call):
            getattr(owner, name)


def test_every_named_call_exists() -> None:
    """The calls that replace other names exist, and are not themselves replaced."""
    g: Any = rlx.Graph()
    known = {"Session", "evaluate", "grad", "nn"}
    for name, method in METHOD_OF.items():
        assert name not in surface.methods() and method in surface.methods()
    for name, call in calls().items():
        assert name not in surface.methods(), name
        assert not (hasattr(g, name) and hasattr(rlx.Tensor, name)), name
        for used in re.findall(r"\b(?:g|x|rlx)\.(\w+)", call):
            assert hasattr(g, used) or hasattr(rlx.Tensor, used) or hasattr(rlx, used) or used in known, call


def test_a_function_of_another_meaning_says_which_call_is_meant() -> None:
    g: Any = rlx.Graph()
    with pytest.raises(rlx.Error, match="too many") as caught:
        g.cond(g.input("p", (), "bool"), lambda: 1.0, lambda: 2.0)
    assert "g.if_(pred" in (caught.value.hint or "")


def test_tensors_of_other_libraries_are_named_in_full() -> None:
    class Tensor:
        __module__ = "torch"

        def __array__(self) -> np.ndarray:
            return np.ones(3)

    x: Any = rlx.Graph().input("x", (3,))
    with pytest.raises(rlx.Error, match=r"got torch\.Tensor") as caught:
        _ = x + Tensor()
    assert "np.asarray" in (caught.value.hint or "")
