"""NumPy functions on tensors take their arguments in NumPy's positions and with NumPy's meaning."""

from __future__ import annotations

from typing import Any, cast

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
    lambda a: np.fft.fft(a, None, 0),
    lambda a: np.fft.rfft(a, None, -1, "ortho"),
    lambda a: np.fft.fftn(a, None, (1,)),
    lambda a: np.fft.fft(a, 1),
    lambda a: np.fft.rfft(a, 3, 1),
    lambda a: np.fft.ifft(a, 7, 0, "ortho"),
    lambda a: np.fft.fftn(a, (2, 5), (1, 0)),
    lambda a: np.nan_to_num(a / a, True, 5.0),
    lambda a: np.nan_to_num(a, False, 5.0, 1.0, 2.0),
    lambda a: np.isin(np.rint(a), np.array([0, 1], np.float32), True),
    lambda a: np.isin(np.rint(a), np.array([0, 1], np.float32), False, True),
    lambda a: np.cross(a[:, :3], a[:, 1:], -1, -1, -1, 0),
    lambda a: np.average(a, 1, None, False),
    lambda a: np.median(a, 1, None, False, True),
    lambda a: np.quantile(a, 0.3, 1, None, False, "linear"),
    lambda a: np.sort(a, 0, None),
    lambda a: np.round(a, 0),
    lambda a: np.histogram(a, 3, (0, 1), True)[0].astype(np.float32),
    lambda a: np.full_like(a, 3, np.int32),
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


ELSEWHERE: list[Any] = [
    lambda a: np.cross(a[:, :3], a[:, 1:], 0),
    lambda a: cast("Any", np).average(a, 1, None, True),
    lambda a: np.sort(a, 0, "stable"),
    lambda a: np.round(a, 2),
]


@pytest.mark.parametrize("call", ELSEWHERE)
def test_what_numpy_has_in_a_place_means_nothing_else_here(call: Any) -> None:
    """An argument that tensors lack is refused, by position and by name, and not confused with the next one."""
    x: Any = rlx.Graph().input("x", X.shape)
    with pytest.raises(rlx.Error, match="unexpected keyword argument"):
        call(x)


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_norms_of_singular_values(ord: Any) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4))
    g = rlx.Graph()
    x: Any = g.input("x", (3, 4), "f64")
    norm: Any = np.linalg.norm(x, ord)
    g.set_outputs([norm])
    np.testing.assert_allclose(rlx.evaluate(g, {"x": values})[0], np.linalg.norm(values, ord), rtol=1e-12)


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
    """None of the functions is the module of the same name."""
    from rlx.ops import surface

    assert all(type(getattr(rlx.ops, name)).__name__ == "function" for name in surface.methods())
