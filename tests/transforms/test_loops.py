"""Reverse mode of loops: loop invariants are differentiated once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.ir.graph.listing import inspect_graph

STEPS, SIZE = 8, 16


def _recurrent(inside: bool, loop: str) -> rlx.Graph:
    """Return a loss of a recurrence whose weight is normalised in each step or before the loop."""
    g: Any = rlx.Graph("recurrent")
    x, w = g.input("x", (STEPS, SIZE), "f64"), g.param("w", (SIZE, SIZE), "f64")

    def normalised() -> Any:
        return w * g.rsqrt(g.sum(w * w, axes=0, keep_dims=True) + 1.0)

    before = None if inside else normalised()

    def step(h: Any, row: Any) -> Any:
        return g.tanh(h @ (before if before is not None else normalised()) + row), None

    start = g.constant(np.zeros(SIZE))
    if loop == "scan":
        last, _ = g.scan(step, start, x)
    else:
        last = g.while_(lambda h: g.sum(h) < 1e9, lambda h: step(h, x[0])[0], start, max_iterations=STEPS)
    g.set_outputs({"loss": g.sum(last * last)})
    return g


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_what_is_the_same_in_every_step_is_differentiated_once(loop: str) -> None:
    random = np.random.default_rng(0)
    values = {"x": random.standard_normal((STEPS, SIZE)), "w": random.standard_normal((SIZE, SIZE))}
    for transform in (rlx.grad, rlx.vjp, lambda g: rlx.grad_with_loss(g, loss="loss")):
        inside, before = transform(_recurrent(True, loop)), transform(_recurrent(False, loop))
        assert inspect_graph(inside).cost.flops == inspect_graph(before).cost.flops
        given = values | {"cotangent_loss": np.array(1.0)}
        arguments = {a.name: given[a.name] for a in inside.arguments}
        for a, b in zip(rlx.evaluate(inside, arguments), rlx.evaluate(before, arguments), strict=True):
            np.testing.assert_array_equal(a, b)
    graph = _recurrent(True, loop)
    text = str(graph)
    rlx.grad(graph)
    assert str(graph) == text  # unchanged


def _halved(x: Any, start: Any = 1.0) -> Any:
    """Return a number halved until it is small compared with an invariant, and the number of steps."""
    until = lambda c: c[0] * jnp.sum(c[1] ** 2) > 0.1  # noqa: E731
    value, _, _, steps = lax.while_loop(until, lambda c: (c[0] * 0.5, c[1], c[2], c[3] + 1), (start, x, jnp.sin(x), 0))
    return value, steps


def _by_its_condition_alone(x: Any) -> Any:
    return jnp.sum(x * _halved(x)[0])


def _by_what_it_captures(x: Any) -> Any:
    return jnp.sum(x * lax.while_loop(lambda t: t * jnp.sum(x**2) > 0.1, lambda t: t * 0.5, 1.0))


def _with_the_derivative_stopped(x: Any) -> Any:
    return jnp.sum(x * lax.stop_gradient(_halved(x, jnp.max(x))[0]))


def _from_a_start_that_is_stopped(x: Any) -> Any:
    start = lax.stop_gradient(x) * 2 + 1
    return jnp.sum(x * lax.while_loop(lambda v: jnp.sum(v) < 30, lambda v: v * 1.5 + 1, start))


def _from_a_start_of_steps(x: Any) -> Any:
    return jnp.sum(x * lax.while_loop(lambda v: jnp.sum(v) < 30, lambda v: v * 1.5 + 1, jnp.floor(x)))


def _by_a_stopped_capture(x: Any) -> Any:
    same = lax.stop_gradient(x)
    return jnp.sum(x * lax.while_loop(lambda v: jnp.sum(v) < 30, lambda v: v + same, jnp.zeros(3)))


def _stopped_in_each_step(x: Any) -> Any:
    step = lambda c: (c[0] + lax.stop_gradient(jnp.sin(c[1])), c[1])  # noqa: E731
    value, same = lax.while_loop(lambda c: jnp.sum(c[0]) < 5, step, (jnp.zeros(3), x))
    return jnp.sum(value * same)


def _of_what_it_gives_on(x: Any) -> Any:
    step = lambda c: (c[0] * 0.5, c[1])  # noqa: E731
    value, same = lax.while_loop(lambda c: c[0] > 0.1, step, (jnp.ones(()), jnp.sin(x)))
    return jnp.sum(same * value)


def _in_the_steps_of_a_scan(x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        row, count = carry
        value, steps = _halved(row)
        return (row - lax.stop_gradient(value) * row, count + steps), jnp.sum(row**2)

    (last, _), squares = lax.scan(step, (x, 0), None, length=3)
    return jnp.sum(last) + jnp.sum(squares)


def _in_a_branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, lambda: jnp.sum(x * _halved(x)[0]), lambda: jnp.sum(x))


WITHOUT_A_BOUND = (
    _by_its_condition_alone,
    _by_what_it_captures,
    _with_the_derivative_stopped,
    _from_a_start_that_is_stopped,
    _from_a_start_of_steps,
    _by_a_stopped_capture,
    _stopped_in_each_step,
    _of_what_it_gives_on,
    _in_the_steps_of_a_scan,
    _in_a_branch,
)


@pytest.mark.parametrize("function", WITHOUT_A_BOUND)
def test_what_a_loop_without_a_bound_does_not_change_has_a_gradient(function: Any) -> None:
    """As in JAX: if the carries get no cotangent, the number of steps need not be known."""
    x = np.array([1.0, 2, 3], np.float32)
    gradient = rlx.grad(rlx.from_jax(function, x), "arg0")
    np.testing.assert_allclose(rlx.evaluate(gradient, {"arg0": x})[0], jax.grad(function)(x), rtol=1e-5)
    rows = np.stack([x, x * 0.1])
    (found,) = rlx.evaluate(rlx.vmap(gradient, {"arg0": 0}, 2), {"arg0": rows})
    np.testing.assert_allclose(found, jax.vmap(jax.grad(function))(rows), rtol=1e-5)


def _a_carry_that_moves(x: Any) -> Any:
    return jnp.sum(lax.while_loop(lambda t: jnp.sum(t) > 0.1, lambda t: t * 0.5, x))


def _carries_that_change_places(x: Any) -> Any:
    swap = lambda c: (c[1], c[0], c[2] - 1)  # noqa: E731
    return jnp.sum(lax.while_loop(lambda c: c[2] > 0, swap, (x, jnp.ones(3), jnp.sum(x)))[0])


@pytest.mark.parametrize("function", [_a_carry_that_moves, _carries_that_change_places])
def test_what_a_loop_without_a_bound_changes_has_none(function: Any) -> None:
    x = np.array([1.0, 2, 3], np.float32)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(function)(x)
    with pytest.raises(rlx.Error, match=r"test_loops.py:\d+:\d+: .*rlx.while.*without max_iterations") as caught:
        rlx.grad(rlx.from_jax(function, x), "arg0")
    assert "rlx.stop_gradient" in str(caught.value)
