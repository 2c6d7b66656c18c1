"""Nested transforms of programs compared with JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.transforms.against_jax import graph_of

_RNG = np.random.default_rng(0)


def _array(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(dtype)


def _close(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def _recurrent(scan: Any, tanh: Any, total: Any) -> Any:
    """Return the loss of one example: `x: [T, 2]`, `w: [2, 2]`."""

    def loss(x: Any, w: Any) -> Any:
        last, _ = scan(lambda h, row: (tanh(h @ w + row), None), x[0], x)
        return total(last * last)

    return loss


def _recurrent_graph() -> rlx.Graph:
    return graph_of(lambda g, x, w: _recurrent(g.scan, g.tanh, g.sum)(x, w), [_array(4, 2), _array(2, 2)])


_JAX_RECURRENT = _recurrent(jax.lax.scan, jnp.tanh, jnp.sum)


def test_gradients_of_each_example() -> None:
    xs, w = _array(5, 4, 2), _array(2, 2)
    made = rlx.vmap(rlx.grad(_recurrent_graph(), "x1"), {"x0": 0}, 5)
    with jax.enable_x64(True):
        expected = jax.vmap(jax.grad(_JAX_RECURRENT, 1), (0, None))(xs, w)
    _close(rlx.evaluate(made, {"x0": xs, "x1": w})[0], expected)


def test_hessian_of_a_recurrence_for_each_example() -> None:
    xs, w = _array(3, 4, 2), _array(2, 2)
    made = rlx.vmap(rlx.hessian(_recurrent_graph(), "x1"), {"x0": 0}, 3)
    with jax.enable_x64(True):
        expected = jax.vmap(jax.hessian(_JAX_RECURRENT, 1), (0, None))(xs, w)
    _close(rlx.evaluate(made, {"x0": xs, "x1": w})[0], expected)


def test_gradient_of_a_penalty_on_the_gradient() -> None:
    x, w = _array(4, 2), _array(2, 2)
    gradient = rlx.grad(_recurrent_graph(), "x0")
    (inner,) = gradient.output_tensors
    gradient.set_outputs([gradient.sum(inner * inner)])
    with jax.enable_x64(True):
        expected = jax.grad(lambda w: jnp.sum(jax.grad(_JAX_RECURRENT)(x, w) ** 2))(w)
    _close(rlx.evaluate(rlx.grad(gradient, "x1"), {"x0": x, "x1": w})[0], expected)


@pytest.mark.parametrize(("ours", "theirs"), [(rlx.jacfwd, jax.jacfwd), (rlx.jacrev, jax.jacrev)])
def test_jacobian_of_a_batched_function(ours: Any, theirs: Any) -> None:
    """Each example's results depend only on its own inputs: blocks off the diagonal are zero."""
    x, w = _array(3, 2), _array(2, 2)
    single = graph_of(lambda g, x, w: g.tanh(x @ w) * g.sum(x), [x[0], w])
    made = ours(rlx.vmap(single, {"x0": 0}, 3), "x0")
    with jax.enable_x64(True):
        expected = theirs(jax.vmap(lambda x: jnp.tanh(x @ w) * jnp.sum(x)))(x)
    (got,) = rlx.evaluate(made, {"x0": x, "x1": w})
    _close(got, expected)
    assert not got[0, :, 1].any()
