"""Functions of NumPy on tensors take their arguments where NumPy has them, and mean what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
ORDERS: list[Any] = [None, 1, -1, np.inf, -np.inf, "fro"]
CALLS: list[Any] = [
    lambda a: np.sum(a, 1, np.float64),
    lambda a: np.sum(a, 0, None, None, True),
    lambda a: np.mean(a, (0, 1), np.float32),
    lambda a: np.std(a, 0, np.float32),
    lambda a: np.var(a, 0, None, None, 1),
    lambda a: np.cumsum(a, 1, np.float64),
    lambda a: np.argmax(a),
    lambda a: np.argmin(a, None),
    lambda a: np.argmax(a, axis=1, keepdims=True),
    lambda a: np.argmax(a, keepdims=True),
    lambda a: a.argmax(),
    lambda a: np.linalg.norm(a, 1, (1, 0), keepdims=True),
    lambda a: np.linalg.norm(a, np.inf, axis=(1, 0)),
    *(lambda a, ord=ord: np.linalg.norm(a, ord) for ord in ORDERS),
    *(lambda a, ord=ord: np.linalg.norm(a, ord, 1) for ord in (None, 1, 2, 3, np.inf)),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_what_numpy_computes(call: Any) -> None:
    g: Any = rlx.Graph()
    g.set_outputs([call(g.input("x", X.shape))])
    (found,), wanted = rlx.evaluate(g, {"x": X}), call(X)
    assert found.shape == np.shape(wanted)
    assert found.dtype.kind != "f" or found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_norms_that_need_singular_values_are_refused(ord: Any) -> None:
    x: Any = rlx.Graph().input("x", (3, 4))
    with pytest.raises(rlx.Error, match="singular values"):
        np.linalg.norm(x, ord)


def test_a_flag_is_no_dtype() -> None:
    x: Any = rlx.Graph().input("x", (3, 4))
    for call in (lambda: x.sum(0, np.float64), lambda: x.argmax(0, 1), lambda: x.mean(keepdims="f32")):
        with pytest.raises(rlx.Error, match="keep_dims must be True or False"):
            call()


def test_random_numbers_without_a_seed_differ_within_a_graph_and_not_from_run_to_run() -> None:
    def built() -> Any:
        g: Any = rlx.Graph()
        x = g.input("x", (64,))
        drawn = [g.dropout(x), g.dropout(x), g.rng_uniform((64,)), g.rng_uniform((64,)), g.rng_normal((64,))]
        g.set_outputs(drawn)
        return rlx.evaluate(g, {"x": np.ones(64, np.float32)})

    first, second = built(), built()
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[2], first[3])


def test_every_function_is_a_function() -> None:
    """None of them is the module of the same name."""
    from rlx.ops import surface

    assert all(type(getattr(rlx.ops, name)).__name__ == "function" for name in surface.methods())
