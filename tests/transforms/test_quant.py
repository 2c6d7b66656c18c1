"""Derivatives of quantisation: straight-through by convention, compared with JAX formulas of the convention."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.formulas import lsq, straight_through_factor
from tests.ops.references import random
from tests.transforms.against_jax import check, graph_of
from tests.transforms.checks import check_vmap

ESTIMATORS = ("identity", "clipped_identity", "tanh", "hard_tanh")
NARROW = {"f16": 2e-3, "bf16": 1.6e-2}  # two roundings


def _spread(scale: Any, axis: int | None, rank: int) -> Any:
    return scale if axis is None else scale.reshape(-1, *(1,) * (rank - 1 - axis))


def _through(ste: str, bits: int, axis: int | None, scale: Any) -> Callable[..., Any]:
    """Return `factor·x` with a constant factor, so that its derivative is that of the estimator."""
    most = 2 ** (bits - 1) - 1

    def formula(x: Any) -> Any:
        others = tuple(i for i in range(x.ndim) if i != axis)
        limit = jnp.abs(x).max(others, keepdims=True) if scale is None else most * _spread(scale, axis, x.ndim)
        return x * jax.lax.stop_gradient(straight_through_factor(ste, x / limit))

    return formula


def _fake(g: Any, x: Any, scale: Any, mode: str, **attributes: Any) -> Any:
    """Return only the rounded values."""
    state = None if scale is None else g.constant(scale)
    return g.emit("fake_quantize", (x, state), scale_mode=mode, decay=0.75, **attributes)[0]


@pytest.mark.parametrize("ste", ESTIMATORS)
@pytest.mark.parametrize("mode", ["per_batch", "ema", "fixed"])
@pytest.mark.parametrize(("bits", "axis"), [(4, None), (2, 1)])
def test_fake_quantize(bits: int, axis: int | None, mode: str, ste: str) -> None:
    """The range is that of the scale in use; with a carried or fixed scale, some values are outside."""
    x = random("f64", (4, 3, 5))
    most, others = 2 ** (bits - 1) - 1, tuple(i for i in range(3) if i != axis)
    state = None if mode == "per_batch" else random("f64", () if axis is None else (3,), low=0.3, high=0.6, seed=2)
    used = state
    if mode == "ema" and state is not None:
        used = 0.75 * state + 0.25 * np.abs(x).max(others) / most

    def build(g: Any, value: Any) -> Any:
        return _fake(g, value, state, mode, bits=bits, axis=axis, ste=ste)

    if mode != "per_batch":
        assert (np.abs(x) > most * _spread(np.asarray(used), axis, 3)).any()
    check(build, _through(ste, bits, axis, used), x)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("ste", ["tanh", "hard_tanh"])
def test_narrow_floats(ste: str, name: str) -> None:
    scale = np.array(0.5, np.float32)
    for mode, state in (("per_batch", None), ("fixed", scale)):
        check(
            lambda g, x, m=mode, s=state: _fake(g, x, s, m, bits=4, axis=None, ste=ste),
            _through(ste, 4, None, state),
            random(name, (40,)),
            tolerance=NARROW[name],
        )


def test_the_scale_counts_as_a_constant() -> None:
    """The scale has no derivative, and the derivative of the result does not pass through it."""
    x, state = random("f64", (3, 4)), np.array(0.5)
    graph = rlx.Graph()
    tensors = graph.input("x", (3, 4), "f64"), graph.input("state", (), "f64")
    graph.set_outputs(list(graph.fake_quantize(*tensors, bits=4, scale_mode="ema")))
    forward = rlx.jvp(graph, ["x", "state"])
    values = {"x": x, "state": state}
    tangents = {"tangent_x": x, "tangent_state": state}
    _, _, moved, of_scale = rlx.evaluate(forward, {**values, **tangents})
    assert np.array_equal(moved, x) and of_scale == 0
    backward = rlx.vjp(graph, ["x", "state"])
    names = [a.name for a in backward.arguments[2:]]
    pulled = rlx.evaluate(backward, {**values, names[0]: x, names[1]: np.array(7.0)})[2:]
    assert np.array_equal(pulled[0], x) and pulled[1] == 0


def test_zeros_pass_the_gradient() -> None:
    x, dy = np.zeros((2, 3)), random("f64", (2, 3))
    for ste in ESTIMATORS:
        graph = graph_of(lambda g, v, s=ste: _fake(g, v, None, "per_batch", bits=4, axis=None, ste=s), [x])
        pulled = rlx.vjp(graph, ["x0"])
        assert np.array_equal(rlx.evaluate(pulled, {"x0": x, pulled.arguments[-1].name: dy})[1], dy)


# --- with a learned scale -----------------------------------------------------------------------------


def _learned(bits: int, axis: int | None) -> Callable[..., Any]:
    return lambda g, x, scale: g.fake_quantize_lsq(x, scale, bits=bits, axis=axis)


@pytest.mark.parametrize(("bits", "axis"), [(8, None), (4, None), (4, 1), (2, 0), (2, 2)])
def test_fake_quantize_lsq(bits: int, axis: int | None) -> None:
    x = random("f64", (4, 3, 5))
    scale = random("f64", () if axis is None else (x.shape[axis],), low=0.3, high=1.5, seed=2)
    check(_learned(bits, axis), lsq(bits, axis), x, scale, tolerance=1e-11)


def test_halves_and_the_edge_of_the_range() -> None:
    """Halves round to even, and the largest representable number counts as inside."""
    x = np.array([7.0, 7.25, -7.0, -7.25, 0.5, 1.5])
    graph = graph_of(_learned(4, 0), [x, np.ones(6)])
    pulled = rlx.vjp(graph, ["x0", "x1"])
    given = {"x0": x, "x1": np.ones(6), pulled.arguments[-1].name: np.ones(6)}
    _, of_x, of_scale = rlx.evaluate(pulled, given)
    assert of_x.tolist() == [1, 0, 1, 0, 1, 1] and of_scale.tolist() == [0, 7, 0, -7, -0.5, 0.5]


def test_a_scale_of_zero_has_a_gradient_all_the_same() -> None:
    """Nonzero values are out of range, and zeros remain zero."""
    x, scale = np.array([0.0, 2.0, -3.0]), np.array(0.0)
    graph = graph_of(_learned(4, None), [x, scale])
    pulled = rlx.vjp(graph, ["x0", "x1"])
    _, of_x, of_scale = rlx.evaluate(pulled, {"x0": x, "x1": scale, pulled.arguments[-1].name: np.array([1.0, 2, 1])})
    assert not of_x[1:].any() and of_scale == 7.0


# --- integers and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 1])
def test_dequantize_is_linear_in_its_scale(axis: int | None) -> None:
    q = random("i8", (2, 3, 4), low=-128, high=128)
    zero_point = random("i32", () if axis is None else (3,), low=-20, high=20)
    scale = random("f32", () if axis is None else (3,), low=0.05, high=0.2)

    def formula(s: Any) -> Any:
        return (q.astype(np.int32) - _spread(zero_point, axis, 3)) * _spread(s, axis, 3)

    def build(g: Any, s: Any) -> Any:
        return g.dequantize(g.constant(q), s, g.constant(zero_point), axis=axis)

    check(build, formula, scale, tolerance=1e-5)


def test_integers_have_no_gradient() -> None:
    x, scale = random("f32", (5,)), np.array(0.1, np.float32)
    graph = graph_of(lambda g, x, s: g.dequantize(g.quantize(x, s), s), [x, scale])
    pulled = rlx.vjp(graph, ["x0", "x1"])
    dy = np.ones(5, np.float32)
    _, of_x, of_scale = rlx.evaluate(pulled, {"x0": x, "x1": scale, pulled.arguments[-1].name: dy})
    assert not of_x.any() and np.isclose(of_scale, np.rint(x / scale).sum())


# --- batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("mode", ["per_batch", "ema", "fixed", "lsq"])
def test_every_entry_has_scales_of_its_own(mode: str, axis: int | None) -> None:
    """Batches are straight-through too: the derivative of a batch is the batch of derivatives."""
    x = random("f64", (4, 3, 5))
    scale = random("f64", () if axis is None else (x.shape[axis],), low=0.3, high=0.6, seed=2)

    def build(g: Any, x: Any, state: Any = None) -> Any:
        if mode == "lsq":
            return g.fake_quantize_lsq(x, state, bits=2, axis=axis)
        options: Any = {"bits": 2, "axis": axis, "ste": "hard_tanh", "scale_mode": mode, "decay": 0.75}
        return g.emit("fake_quantize", (x, state), **options)[0]

    values = {"x0": x} if mode == "per_batch" else {"x0": x, "x1": scale}
    graph = graph_of(build, list(values.values()))
    pulled = rlx.vjp(graph, list(values))
    dy = random("f64", x.shape, seed=3)
    name = pulled.arguments[-1].name
    for count in range(1, len(values) + 1):
        for names in itertools.combinations(values, count):
            check_vmap(graph, values, dict.fromkeys(names, 0))
            entries = {n: np.stack([values[n], values[n] * 0.5]) for n in names}
            batched = rlx.vjp(rlx.vmap(graph, dict.fromkeys(names, 0), 2), list(names))
            both = np.stack([dy, dy + 1])
            got = rlx.evaluate(batched, {**values, **entries, batched.arguments[-1].name: both})[1:]
            for i in range(2):
                one = {**values, **{n: entries[n][i] for n in names}, name: both[i]}
                expected = dict(zip(values, rlx.evaluate(pulled, one)[1:], strict=True))
                for n, gradient in zip(names, got, strict=True):
                    np.testing.assert_allclose(gradient[i], expected[n], rtol=1e-12, atol=1e-12)
