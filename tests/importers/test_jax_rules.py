"""`rlx.from_jax` of functions under `custom_jvp` and `custom_vjp`: operands without derivatives, and failing rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

X = np.array([0.3, 1.2, -0.7], np.float32)


def _without_tangent(x: Any) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0)


def _value(n: Any, mask: Any, key: Any, x: Any) -> Any:
    return n * 2, jnp.where(mask, x * n, x * x) + jax.random.uniform(key, x.shape), x > 0


def _slope(n: Any, mask: Any, key: Any, x: Any) -> Any:
    """Return a value that is not the derivative, so that use of the custom rule is visible."""
    return jnp.where(mask, 7 * n, 3 * x) + jax.random.uniform(key, x.shape)


forwards = jax.custom_jvp(_value)


@forwards.defjvp
def _(primals: Any, tangents: Any) -> Any:
    assert [t.dtype == jax.dtypes.float0 for t in tangents] == [True, True, True, False]
    n, result, sign = forwards(*primals)
    return (n, result, sign), (_without_tangent(n), _slope(*primals) * tangents[3], _without_tangent(sign))


backwards = jax.custom_vjp(_value)
backwards.defvjp(
    lambda *primals: (backwards(*primals), primals),
    lambda primals, cotangents: (_without_tangent(primals[0]), None, None, _slope(*primals) * cotangents[1]),
)


@pytest.mark.parametrize("function", [forwards, backwards], ids=["custom_jvp", "custom_vjp"])
@drawn("impl", ["threefry2x32", "rbg", None])
def test_integers_booleans_and_keys_have_no_derivative(function: Any, impl: str | None) -> None:
    key = jax.random.PRNGKey(3) if impl is None else jax.random.key(3, impl=impl)

    def loss(x: Any) -> Any:
        n, result, sign = function(jnp.arange(3) + (x > 0), x < 1, jax.random.fold_in(key, n_steps(x)), x)
        return jnp.sum(result**2) + jnp.sum(n * sign)

    def n_steps(x: Any) -> Any:
        return jnp.sum(x > 0).astype(np.uint32)

    g = rlx.from_jax(loss, X)
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": X}), [loss(X)], rtol=1e-5)
    (found,) = rlx.evaluate(rlx.grad(g, "arg0"), {"arg0": X})
    np.testing.assert_allclose(found, jax.grad(loss)(X), rtol=1e-5)


def _closing_over(decorator: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        factor = jnp.sin(x)
        made = decorator(lambda y: y * factor)
        if decorator is jax.custom_jvp:
            made.defjvp(lambda primals, tangents: (made(*primals), 2 * tangents[0] * factor))
        else:
            made.defvjp(lambda y: (made(y), factor), lambda factor, cotangent: (2 * cotangent * factor,))
        return jnp.sum(made(x))

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: jnp.sum(jax.scipy.special.xlogy(-1, x * x)), "custom_jvp fails: TypeError: .*float0"),
        (_closing_over(jax.custom_jvp), "custom_jvp fails: it closes over a value that is traced"),
        (_closing_over(jax.custom_vjp), "custom_vjp fails: it closes over a value that is traced"),
    ],
)
def test_where_a_rule_fails_the_derivative_is_refused_and_no_other(function: Any, message: str) -> None:
    """JAX computes the value of each function, but neither derivative."""
    g = rlx.from_jax(lambda x, y: function(x) + jnp.sum(y**2), X, X)
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": X, "arg1": X}), [function(X) + np.sum(X**2)], rtol=1e-5)
    with pytest.raises(Exception, match=r"float0|unexpected tracer|PyTreeDef"):
        jax.grad(function)(X)
    for derivative in (rlx.grad, rlx.jvp):
        with pytest.raises(rlx.Error, match=rf"test_jax_rules.py:\d+:.*no derivative: its rule under jax.{message}"):
            derivative(g, "arg0")
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, "arg1"), {"arg0": X, "arg1": X}), [2 * X], rtol=1e-6)


def test_a_rule_that_fails_for_what_is_constant_is_not_asked() -> None:
    """The density of Gumbel's distribution uses `xlogy` of an integer, which has no derivative, and of its scale."""

    def loss(x: Any) -> Any:
        return jnp.sum(jax.scipy.stats.gumbel_r.logpdf(x) + jax.scipy.stats.gumbel_l.logcdf(x))

    (found,) = rlx.evaluate(rlx.grad(rlx.from_jax(loss, X), "arg0"), {"arg0": X})
    np.testing.assert_allclose(found, jax.grad(loss)(X), rtol=1e-4)


def _clipped(x: Any, w: Any, g: Any) -> Any:
    return jnp.clip(g * jnp.cos(x) * w, -0.6, 0.6), jnp.tanh(g * x)


def _of_activations(x: Any, w: Any, g: Any) -> Any:
    """Return cotangents by functions that are imported as functions with rules, or as loops."""
    scanned = jax.lax.scan(lambda c, v: (c + jnp.square(v), c * v), jnp.float32(0), g)[1]
    return jax.nn.relu(g - 0.1) * w + jax.nn.silu(g), scanned * x


@pytest.mark.parametrize("rule", [_clipped, _of_activations])
def test_derivatives_of_a_gradient_differentiate_a_backward_function_that_is_not_linear(rule: Any) -> None:
    function = jax.custom_vjp(lambda x, w: jnp.sin(x) * w)
    function.defvjp(lambda x, w: (jnp.sin(x) * w, (x, w)), lambda kept, g: rule(*kept, g))

    def loss(x: Any, w: Any) -> Any:
        return jnp.sum(function(x, w * w) ** 2 + function(w, x))

    x, w = X, np.array([0.9, -0.4, 1.6], np.float32)
    v, u = np.array([1.0, -2.0, 0.5], np.float32), np.array([0.3, 0.7, -1.0], np.float32)
    graph = rlx.from_jax(loss, x, w)
    names = [a.name for a in graph.arguments]
    values = dict(zip(names, (x, w), strict=True))
    moved = values | {f"tangent_{n}": t for n, t in zip(names, (v, u), strict=True)}
    gradient = jax.grad(loss, (0, 1))
    _, expected = jax.jvp(gradient, (x, w), (v, u))
    _, *found = rlx.evaluate(rlx.hvp(graph, names), moved)
    for mine, theirs in zip(found, (*gradient(x, w), *expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    of_gradient = rlx.evaluate(rlx.jvp(rlx.grad(graph, names), names), moved)
    for mine, theirs in zip(of_gradient[2:], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    (hessian,) = rlx.evaluate(rlx.hessian(graph, names[:1]), values)
    np.testing.assert_allclose(hessian, jax.hessian(loss)(x, w), rtol=1e-4, atol=1e-5)
    with pytest.raises(rlx.Error, match="must be linear in tangents and cotangents") as caught:
        rlx.jvp(graph, names)  # nor does JAX differentiate the function itself in forward mode
    assert "hvp and hessian of a gradient" in str(caught.value)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (x, w), (v, u))
