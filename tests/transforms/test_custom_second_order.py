"""Derivatives of gradients by a `vjp` that is not linear, against `jax.custom_vjp`."""

# Functions of cases are lambdas of tensors and of JAX's arrays. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
JAX = SimpleNamespace(
    exp=jnp.exp,
    sin=jnp.sin,
    cos=jnp.cos,
    tanh=jnp.tanh,
    sum=jnp.sum,
    sqrt=jnp.sqrt,
    clamp=lambda x, a, b: jnp.clip(x, a, b),
)
# The functions of x and y, and the cotangents of both: by the ops, the arguments, the result and its cotangent.
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "clip": (
        lambda n, x, y: n.exp(x) * y,
        lambda n, a, r, c: (n.clamp(c * a[1] * n.exp(a[0]), -1.0, 1.0), n.clamp(c * n.exp(a[0]), -2.0, 2.0)),
    ),
    "norm": (
        lambda n, x, y: n.sin(x) * y,
        lambda n, a, r, c: (c / n.sqrt(n.sum(c * c) + 0.1) * a[1] * n.cos(a[0]), c * n.sin(a[0])),
    ),
    "tanh": (lambda n, x, y: n.sin(x) * y, lambda n, a, r, c: (n.tanh(c) * a[1], n.tanh(c * 2.0) * a[0] * r)),
    "cube": (lambda n, x, y: x * x + y, lambda n, a, r, c: (c * c * c * a[0], c)),
}
X, Y, DIRECTION = (np.random.default_rng(0).standard_normal(4) for _ in range(3))
VALUES: dict[str, Any] = {"x": X, "y": Y}


@pytest.fixture(autouse=True)
def _f64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def in_jax(name: str) -> Any:
    fwd, bwd = FUNCTIONS[name]
    function = jax.custom_vjp(lambda x, y: fwd(JAX, x, y))
    function.defvjp(
        lambda x, y: (fwd(JAX, x, y), ((x, y), fwd(JAX, x, y))), lambda saved, c: bwd(JAX, saved[0], saved[1], c)
    )
    return function


def in_graph(g: Any, name: str, **more: Any) -> Any:
    fwd, bwd = FUNCTIONS[name]
    return lambda x, y: g.custom_fn(
        lambda x, y: fwd(g, x, y), x, y, vjp=lambda args, results, c: bwd(g, args, results[0], c[0]), **more
    )


def check(g: rlx.Graph, loss: Any) -> None:
    """Compare hvp, hessian, jvp of grad and grad with those of JAX."""
    gradient = jax.grad(loss)
    expected = jax.jvp(lambda x: gradient(x, Y), (X,), (DIRECTION,))[1]
    given = VALUES | {"tangent_x": DIRECTION}
    _, slope, product = rlx.evaluate(rlx.hvp(g, "x"), given)
    np.testing.assert_allclose(slope, gradient(X, Y), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rlx.evaluate(rlx.jvp(rlx.grad(g, "x"), "x"), given)[1], expected, rtol=1e-12, atol=1e-14)
    (hessian,) = rlx.evaluate(rlx.hessian(g, "x"), VALUES)
    np.testing.assert_allclose(hessian, jax.hessian(loss)(X, Y), rtol=1e-12, atol=1e-14)


def graph_of(result: Any) -> rlx.Graph:
    g: Any = rlx.Graph("rules")
    z = result(g, g.input("x", (4,), "f64"), g.input("y", (4,), "f64"))
    g.set_outputs({"loss": g.sum(z * z)})
    return g


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function = in_jax(name)
    check(graph_of(lambda g, x, y: g.sin(in_graph(g, name)(x, y))), lambda x, y: jnp.sum(jnp.sin(function(x, y)) ** 2))


def _in_checkpoint(g: Any, own: Any, x: Any, y: Any) -> Any:
    with g.checkpoint():
        z = own(x * 2.0, y)
    return z


def _scanned(g: Any, step: Any, x: Any, **options: Any) -> Any:
    ((last,), _) = g.scan(lambda c, i: ((step(c[0], i),), ()), (x,), g.iota((4,), 0, "i64"), **options)
    return last


def _in_while(g: Any, own: Any, x: Any, y: Any) -> Any:
    start = g.constant(np.int64(0))
    return g.while_(lambda i, c: g.lt(i, 3), lambda i, c: (g.add(i, 1), own(c, y)), start, x, max_iterations=5)[1]


def _steps(function: Any, x: Any, y: Any, count: int = 4) -> Any:
    for _ in range(count):
        x = function(x, y)
    return x


# The function inside other ops: in a graph, and in JAX.
PLACES: dict[str, tuple[Any, Any]] = {
    "if": (
        lambda g, own, x, y: g.if_(g.lt(g.sum(x), 100.0), lambda: own(x, y), lambda: x * y),
        lambda f, x, y: f(x, y),
    ),
    "checkpoint": (_in_checkpoint, lambda f, x, y: f(x * 2.0, y)),
    "scan": (lambda g, own, x, y: _scanned(g, lambda c, _: own(c, y), x), _steps),
    "scan with checkpoints": (
        lambda g, own, x, y: _scanned(g, lambda c, _: own(c, y), x, num_checkpoints=2),
        _steps,
    ),
    "if in scan": (
        lambda g, own, x, y: _scanned(g, lambda c, i: g.if_(g.lt(i, 2), lambda: own(c, y), lambda: c * y), x),
        lambda f, x, y: _steps(f, x, y, 2) * y * y,
    ),
    "while": (_in_while, lambda f, x, y: _steps(f, x, y, 3)),
}


@pytest.mark.parametrize("place", PLACES)
def test_functions_in_regions(place: str) -> None:
    inside, expected = PLACES[place]
    function = in_jax("tanh")
    check(
        graph_of(lambda g, x, y: inside(g, in_graph(g, "tanh"), x, y)),
        lambda x, y: jnp.sum(expected(function, x, y) ** 2),
    )


def test_forward_mode_alone_is_refused_as_in_jax() -> None:
    """With a `jvp` as well it has a value."""
    with pytest.raises(TypeError, match=r"can't apply forward-mode .* custom_vjp"):
        jax.jvp(lambda x: in_jax("cube")(x, Y), (X,), (DIRECTION,))
    with pytest.raises(rlx.Error, match="must be linear in tangents and cotangents") as raised:
        rlx.jvp(graph_of(lambda g, x, y: in_graph(g, "cube")(x, y)), "x")
    assert raised.value.hint == (
        "give the function a jvp as well; or differentiate it in reverse mode: grad, and jvp, hvp and hessian of a gradient, "
        "take any vjp"
    )
    rule: Any = lambda args, tangents: args[0] * tangents[0] * 2.0 + tangents[1]  # noqa: E731
    both = graph_of(lambda g, x, y: in_graph(g, "cube", jvp=rule)(x, y))
    tangent = rlx.evaluate(rlx.jvp(both, "x"), VALUES | {"tangent_x": DIRECTION})[1]
    np.testing.assert_allclose(tangent, np.sum(2 * (X * X + Y) * 2 * X * DIRECTION), rtol=1e-12)
