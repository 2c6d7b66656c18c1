"""Derivatives of functions in regions of scalars, in reductions and in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax, nn  # noqa: E402

_INF = np.float32(np.inf)
ROWS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, 2.0, 2.0, -1.0],
        [-_INF, 0.5, 0.5, -_INF],
        [3.0, -3.0, 0.25, 0.25],
        [-1.0, 1.0, 0.0, 0.0],
    ],
    np.float32,
)


@jax.custom_jvp
def _first_maximum(a: Any, b: Any) -> Any:
    return jnp.maximum(a, b)


@_first_maximum.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    return jnp.maximum(a, b), jnp.where(a >= b, da, db)


@jax.custom_vjp
def _last_maximum(a: Any, b: Any) -> Any:
    return jnp.maximum(a, b)


_last_maximum.defvjp(
    lambda a, b: (jnp.maximum(a, b), a > b),
    lambda is_first, ct: (jnp.where(is_first, ct, 0.0), jnp.where(is_first, 0.0, ct)),
)

# Joins of two numbers, and the neutral element of each join and of its derivative.
_JOINS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "logaddexp": (jnp.logaddexp, -np.inf),
    "first_maximum": (_first_maximum, -np.inf),
    "last_maximum": (_last_maximum, -np.inf),
}
# Joins that are not associative, applied to two elements. At a bound their derivative is 0.
_JOINS_OF_TWO: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "clip": (lambda a, b: jnp.clip(a + b, -1.0, 1.0), 0.0),
    "relu": (lambda a, b: nn.relu(a + b), 0.0),
}


def _in_order(join: Callable[[Any, Any], Any], x: Any) -> Any:
    total = x[:, 0]
    for i in range(1, x.shape[1]):
        total = join(total, x[:, i])
    return total


def _check(function: Callable[..., Any], expected: Callable[..., Any], x: np.ndarray) -> None:
    """Compare value, cotangents and their tangents with those of JAX for a function without regions."""
    g = rlx.from_jax(function, x)
    pulled = rlx.vjp(g, ["arg0"])
    value = np.asarray(expected(jnp.asarray(x)))
    ct = np.resize(np.array([1.0, -0.5, 2.0], np.float32), value.shape)
    tangent = np.resize(np.array([0.5, -1.0, 2.0], np.float32), x.shape)

    def gradient(x: Any) -> Any:
        return jax.vjp(expected, x)[1](jnp.asarray(ct))[0]

    slope, bend = jax.jvp(gradient, (jnp.asarray(x),), (jnp.asarray(tangent),))
    values = {"arg0": x, "cotangent_out0": ct, "tangent_arg0": tangent}
    results = rlx.evaluate(rlx.jvp(pulled, ["arg0"]), values)
    np.testing.assert_allclose(results[0], value, rtol=1e-6)
    np.testing.assert_allclose(results[1], slope, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[3], bend, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*_JOINS, *_JOINS_OF_TWO])
def test_joins_of_reductions_keep_their_derivatives(name: str) -> None:
    join, start = (_JOINS | _JOINS_OF_TWO)[name]
    x = ROWS[:, :2] if name in _JOINS_OF_TWO else ROWS
    _check(lambda x: lax.reduce(x, np.float32(start), join, (1,)), lambda x: _in_order(join, x), x)


@pytest.mark.parametrize("name", _JOINS)
def test_joins_of_windows_keep_their_derivatives(name: str) -> None:
    join, start = _JOINS[name]

    def windows(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(start), join, (1, 3), (1, 1), "VALID")

    def slices(x: Any) -> Any:
        return jnp.stack([_in_order(join, x[:, i : i + 3]) for i in range(2)], 1)

    _check(windows, slices, ROWS)


def test_vmap_of_joins_keeps_their_derivatives() -> None:
    g = rlx.from_jax(lambda x: lax.reduce(x, -_INF, _first_maximum, (0,)), ROWS[0])
    pulled = rlx.vmap(rlx.vjp(g, ["arg0"]), {"arg0": 0, "cotangent_out0": 0}, len(ROWS))
    found = rlx.evaluate(pulled, {"arg0": ROWS, "cotangent_out0": np.ones(len(ROWS), np.float32)})[1]
    np.testing.assert_array_equal(found, np.eye(4, dtype=np.float32)[ROWS.argmax(1)])
