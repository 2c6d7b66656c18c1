"""Derivatives of the losses compared with JAX, and at kinks and overflows of the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.formulas import cross_entropy
from tests.ops.references import random
from tests.transforms.against_jax import check, check_second, graph_of
from tests.transforms.checks import check_vmap

NARROW = {"f16": 2e-3, "bf16": 1.6e-2}  # two roundings
REDUCTIONS: dict[str, Callable[[Any], Any]] = {"none": lambda x: x, "mean": jnp.mean, "sum": jnp.sum}


def _gradient(graph: rlx.Graph, *arrays: np.ndarray, dy: Any = 1.0) -> list[np.ndarray]:
    """Return the cotangents of the float inputs."""
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    floats = [n for n, a in values.items() if a.dtype.kind == "f"]
    pulled = rlx.vjp(graph, floats)
    shape, name = graph.outputs[0].shape, pulled.arguments[-1].name
    cotangent = np.broadcast_to(np.asarray(dy, shape.dtype.numpy), shape.static)
    return rlx.evaluate(pulled, {**values, name: cotangent})[1:]


# --- cross entropy with class indices -----------------------------------------------------------------


def _classes(labels: np.ndarray) -> Callable[..., Any]:
    return lambda g, logits: g.softmax_cross_entropy_with_logits(logits, g.constant(labels))


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4), (7,), (0, 3)])
def test_softmax_cross_entropy(shape: tuple[int, ...]) -> None:
    labels = np.asarray(np.random.default_rng(2).integers(-1, shape[-1] + 1, shape[:-1]))
    formula = cross_entropy(labels, shape[-1])
    check(_classes(labels), formula, random("f64", shape))
    check_second(_classes(labels), formula, random("f64", shape))


@pytest.mark.parametrize("name", NARROW)
def test_narrow_logits(name: str) -> None:
    labels = np.arange(6, dtype=np.int32) * 2 - 1
    check(_classes(labels), cross_entropy(labels, 9), random(name, (6, 9), low=-8, high=8), tolerance=NARROW[name])


@pytest.mark.parametrize(("index", "ignored"), [("i8", -1), ("u8", 255), ("i64", 2**32 + 1), ("u32", 2**32 - 1)])
def test_ignored_labels_have_no_gradient(index: str, ignored: int) -> None:
    """The logits of ignored rows may have any values."""
    logits = np.array([[np.nan, np.inf, 0], [1, 2, 3]], np.float32)
    labels = np.array([ignored, 1], rlx.dtype(index).numpy)
    graph = graph_of(lambda g, x, y: g.softmax_cross_entropy_with_logits(x, y), [logits, labels])
    (got,) = _gradient(graph, logits, labels)
    assert not got[0].any() and np.isclose(got[1].sum(), 0, atol=1e-6) and got[1, 1] < 0
    forward = rlx.jvp(graph, ["x0"])
    assert rlx.evaluate(forward, {"x0": logits, "x1": labels, "tangent_x0": np.ones_like(logits)})[1][0] == 0


def test_large_logits() -> None:
    logits, labels = np.array([[1e4, 0, -1e4], [0, 1e4, -np.inf]], np.float32), np.array([1, 1])
    graph = graph_of(_classes(labels), [logits])
    assert np.array_equal(_gradient(graph, logits)[0], [[1, -1, 0], [0, 0, 0]])


def test_labels_of_many_entries_share_the_logits() -> None:
    """A batch of labels shares the logits, whose derivative is the sum over the batch."""
    logits, labels = random("f64", (4, 5)), np.random.default_rng(0).integers(-1, 6, (4,))
    graph = graph_of(lambda g, x, y: g.softmax_cross_entropy_with_logits(x, y), [logits, labels])
    for axes in ({"x0": 0}, {"x1": 0}, {"x0": 1, "x1": 1}):
        check_vmap(graph, {"x0": logits, "x1": labels}, axes)
    entries = np.stack([labels, labels[::-1], np.full(4, 2)])
    (got,) = _gradient(rlx.vmap(graph, {"x1": 0}, 3), logits, entries)
    expected = sum(_gradient(graph, logits, one)[0] for one in entries)
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)


# --- elementwise losses ---------------------------------------------------------------------------------


def _huber(x: Any, y: Any, delta: float) -> Any:
    distance = jnp.abs(x - y)
    return jnp.where(distance > delta, delta * (distance - delta / 2), (x - y) ** 2 / 2)


def _binary_cross_entropy(logits: Any, targets: Any) -> Any:
    return targets * jax.nn.softplus(-logits) + (1 - targets) * jax.nn.softplus(logits)


_ELEMENTS: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    ("mse_loss", {}, lambda x, y: (x - y) ** 2),
    ("huber_loss", {}, lambda x, y: _huber(x, y, 1.0)),
    ("huber_loss", {"delta": 0.25}, lambda x, y: _huber(x, y, 0.25)),
    ("binary_cross_entropy_with_logits", {}, _binary_cross_entropy),
]
_IDS = [f"{name}-{i}" for i, (name, _, _) in enumerate(_ELEMENTS)]
_each_loss = pytest.mark.parametrize(("op", "attributes", "formula"), _ELEMENTS, ids=_IDS)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@_each_loss
def test_losses_of_elements(op: str, attributes: Any, formula: Callable[..., Any], reduction: str) -> None:
    arrays = random("f64", (3, 5), low=-2, high=2), random("f64", (3, 5), low=0, high=1, seed=1)

    def build(g: Any, x: Any, y: Any) -> Any:
        return getattr(g, op)(x, y, reduction=reduction, **attributes)

    def reduced(x: Any, y: Any) -> Any:
        return REDUCTIONS[reduction](formula(x, y))

    check(build, reduced, *arrays)
    check_second(build, reduced, *arrays)


@pytest.mark.parametrize("name", NARROW)
@_each_loss
def test_narrow_losses(op: str, attributes: Any, formula: Callable[..., Any], name: str) -> None:
    arrays = random(name, (3, 5), low=-2, high=2), random(name, (3, 5), low=0, high=1, seed=1)

    def build(g: Any, x: Any, y: Any) -> Any:
        return getattr(g, op)(x, y, **attributes)

    check(build, lambda x, y: jnp.mean(formula(x, y)), *arrays, tolerance=NARROW[name])


@_each_loss
def test_the_mean_of_nothing_has_no_gradient(op: str, attributes: Any, formula: Callable[..., Any]) -> None:
    nothing = np.zeros((0, 3))
    graph = graph_of(lambda g, x, y: getattr(g, op)(x, y, **attributes), [nothing, nothing])
    assert [g.shape for g in _gradient(graph, nothing, nothing)] == [(0, 3)] * 2


def test_at_kinks() -> None:
    """Both branches agree at this point, so the derivative is that of either."""
    zero, x = np.zeros(5), np.array([0.0, 1.0, -1.0, 3.0, -3.0])
    graph = graph_of(lambda g, x, y: g.huber_loss(x, y, reduction="none"), [x, zero])
    assert _gradient(graph, x, zero)[0].tolist() == [0, 1, -1, 1, -1]
    half = np.full(1, 0.0), np.full(1, 0.25)
    graph = graph_of(lambda g, x, y: g.binary_cross_entropy_with_logits(x, y, reduction="none"), half)
    assert [g.item() for g in _gradient(graph, *half)] == [0.25, 0]
    # The same in a batch with one loss per entry.
    batched = rlx.vmap(graph, {"x0": 0, "x1": 0}, 2)
    found = _gradient(batched, *(np.stack([h, h]) for h in half))
    assert [g.ravel().tolist() for g in found] == [[0.25, 0.25], [0, 0]]


def test_saturated_logits_keep_their_digits() -> None:
    x, t = np.array([800.0, -800.0, 30.0, -30.0]), np.array([1.0, 0.0, 1.0, 0.0])
    graph = graph_of(lambda g, x, y: g.binary_cross_entropy_with_logits(x, y, reduction="sum"), [x, t])
    got = _gradient(graph, x, t)[0]
    assert got[:2].tolist() == [0, 0]
    np.testing.assert_allclose(got[2:], [-np.exp(-30), np.exp(-30)], rtol=1e-12)


def test_a_batch_of_narrow_losses_does_not_overflow() -> None:
    """Each mean is computed in f32, as for one entry."""
    x = np.full((2, 300), 300, np.float16)
    graph = graph_of(lambda g, x, y: g.mse_loss(x, y), [x[0], x[0]])
    batched = rlx.vmap(graph, {"x0": 0}, 2)
    x[:, 1:] = 0
    (got,) = rlx.evaluate(batched, {"x0": x, "x1": np.zeros_like(x[0])})
    assert got.tolist() == [300.0, 300.0]  # 90000/300
