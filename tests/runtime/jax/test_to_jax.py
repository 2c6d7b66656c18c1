"""`Graph.to_jax` compared with JAX: functions converted there and back, derivatives in both modes, batches, refusals."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn, shares

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

from tests.importers.jax_functions import CASES, f  # noqa: E402
from tests.importers.test_jax import SMOOTH  # noqa: E402

NUM_SHARES = 30


class There:
    """A JAX function of its leaves, and its conversion to RLX and back."""

    def __init__(self, name: str):
        function, arguments = CASES[name]
        structure = jax.tree.structure(arguments)
        self.leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
        self.back = rlx.from_jax(function, *arguments).to_jax()
        self.jax = lambda *leaves: tuple(jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves))))


def loss(function: Any) -> Any:
    """Return the sum of squares of all float results."""
    return lambda *leaves: sum(jnp.sum(r**2) for r in function(*leaves) if jnp.issubdtype(r.dtype, jnp.floating))


def batched(function: Any) -> Any:
    """Batch a function over its first argument and a multiple of it, which keeps the properties of a matrix."""

    def of_batch(first: Any, *others: Any) -> Any:
        pair = jnp.stack([first, first * jnp.asarray(2, first.dtype)])
        return jax.vmap(function, (0, *[None] * len(others)))(pair, *others)

    return of_batch


def along(function: Any) -> Any:
    """Return the tangents of float results along one direction of the first argument."""

    def tangents(first: Any, *others: Any) -> Any:
        direction = jnp.cos(jnp.arange(first.size, dtype=first.dtype)).reshape(first.shape)
        floats = lambda x: [r for r in function(x, *others) if jnp.issubdtype(r.dtype, jnp.floating)]  # noqa: E731
        return jax.jvp(floats, (first,), (direction,))[1]

    return tangents


def second(function: Any) -> Any:
    """Return a product with the Hessian of the loss, by reverse mode over reverse mode."""
    gradient = jax.grad(loss(function))
    return jax.grad(lambda x, *others: jnp.sum(jnp.sin(gradient(x, *others))))


def _judge(names: list[str], transforms: list[Any], rtol: float, atol: float) -> None:
    """Return all functions under all transforms, in one program per side."""
    cases = [There(name) for name in names]
    sides = [[c.back for c in cases], [c.jax for c in cases]]
    found, wanted = jax.jit(
        lambda leaves: [[t(f)(*a) for f, a in zip(side, leaves, strict=True) for t in transforms] for side in sides]
    )([c.leaves for c in cases])
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=str(names))


@drawn("share", range(NUM_SHARES))
def test_values_and_batches_are_jaxs(share: int) -> None:
    names = shares(CASES, NUM_SHARES, str)[share]
    _judge(names, [lambda function: function, batched], 3e-4, 3e-5)


# JAX has no reverse mode of "while", and no forward mode of the others.
TWO_MODES = [n for n in SMOOTH if n not in ("while", "custom_vjp", "custom_vjp_of_constants")]


@drawn("share", range(NUM_SHARES))
def test_derivatives_are_jaxs(share: int) -> None:
    names = shares(TWO_MODES, NUM_SHARES, str)[share]
    _judge(names, [lambda fun: jax.grad(loss(fun)), along, lambda fun: batched(jax.grad(loss(fun)))], 3e-3, 3e-4)


# JAX has no second derivatives of these two.
@drawn("name", [n for n in TWO_MODES if n not in ("random_gamma", "igamma")], of_each=2)
def test_second_derivatives_are_jaxs(name: str) -> None:
    _judge([name], [second], 1e-2, 5e-3)


@drawn("name", ["solve", "inv", "det", "expm"])
def test_second_derivatives_of_what_solves_are_jaxs(name: str) -> None:
    """JAX stops derivatives at the matrices that it factors for a solve, whose rule is needed in both orders."""
    _judge([name], [second], 1e-2, 5e-3)


def test_rules_of_cotangents_are_kept() -> None:
    _judge(
        ["custom_vjp", "custom_vjp_of_constants"],
        [lambda fun: jax.grad(loss(fun)), lambda fun: batched(jax.grad(loss(fun)))],
        3e-3,
        3e-4,
    )


def test_a_loop_without_reverse_mode_has_forward_mode() -> None:
    """JAX lacks reverse mode too for a variable number of steps. If the number is known, RLX has it and JAX does not."""
    _judge(["fori_dyn"], [lambda fun: jax.jacfwd(loss(fun)), along], 2e-3, 2e-4)
    case = There("fori_dyn")
    with pytest.raises(rlx.Error, match="while"):
        jax.grad(loss(case.back))(*case.leaves)
    case = There("while")
    np.testing.assert_allclose(
        jax.grad(loss(case.back))(*case.leaves), jax.jacfwd(loss(case.jax))(*case.leaves), rtol=1e-4
    )


# --- a native graph -----------------------------------------------------------------------------------


def _layer() -> Any:
    g = rlx.Graph("layer")
    x = g.input("x", ("batch", 4))
    h = g.gelu(x @ g.param("w", (4, 3), value=f(4, 3)) + g.param("b", (3,)))
    g.set_outputs({"h": h, "best": g.argmax(h, axis=-1)})
    return g


def test_arguments_by_order_and_by_name_and_sizes_of_symbols() -> None:
    g = _layer()
    function, b = g.to_jax(), f(3)
    for size in (2, 5):
        x = f(size, 4)
        wanted = rlx.evaluate(g, {"x": x, "b": b})
        for found in (function(x, params={"b": b}), jax.jit(function)(x=jnp.asarray(x), params={"b": jnp.asarray(b)})):
            assert isinstance(found, tuple)
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(found[1], wanted[1])
    zeros = np.zeros((4, 3), np.float32)
    np.testing.assert_allclose(
        function(f(2, 4), params={"b": b, "w": zeros})[0][1],
        rlx.evaluate(g, {"x": f(1, 4), "b": b, "w": zeros})[0][0],
        rtol=1e-5,
        atol=1e-6,
    )
    h = g.cast(g.argument("x"), "f32")  # later additions are not in the function
    g.set_outputs([h])
    assert len(function(f(2, 4), params={"b": b})) == 2


def test_transforms_of_both_sides_compose() -> None:
    """A gradient from RLX, batched by JAX, equals JAX's gradient of the batched function."""
    g = rlx.Graph("quartic")
    x, w = g.input("x", (3,)), g.param("w", (3,))
    g.set_outputs([g.sum((x * w) ** 4)])
    value, gradient = g.to_jax(), rlx.grad(g, ["w"]).to_jax()
    xs, w = jnp.asarray(f(5, 3)), jnp.asarray(f(3))
    ours = jax.jit(jax.vmap(lambda x: gradient(x, params={"w": w})[0]))(xs)
    theirs = jax.jacrev(lambda w: jax.vmap(lambda x: value(x, params={"w": w})[0])(xs))(w)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs, 4 * (xs * w) ** 3 * xs, rtol=1e-4, atol=1e-5)
    hessian = jax.jit(jax.hessian(lambda w: value(xs[0], params={"w": w})[0]))(w)
    np.testing.assert_allclose(hessian, np.diag(12 * (xs[0] * w) ** 2 * xs[0] ** 2), rtol=1e-4, atol=1e-5)
    third = jax.grad(lambda s: jax.grad(lambda s: jax.grad(lambda s: value(xs[0] * s, params={"w": w})[0])(s))(s))(1.0)
    np.testing.assert_allclose(third, 24 * jnp.sum((xs[0] * w) ** 4), rtol=1e-3)


def test_the_backward_pass_takes_what_the_forward_pass_has_computed() -> None:
    back = rlx.from_jax(lambda w, v, x: jnp.sum(jnp.tanh(x @ w) @ v), f(3, 4), f(4, 5), f(2, 3)).to_jax()
    gradients = jax.jit(jax.value_and_grad(lambda *leaves: back(*leaves)[0], argnums=(0, 1)))
    text = gradients.lower(f(3, 4), f(4, 5), f(2, 3)).as_text()
    assert text.count("stablehlo.dot_general") == 2 + 3


def test_complex_arguments_have_jaxs_cotangents() -> None:
    z = (f(4) + 1j * f(4)).astype(np.complex64)
    function = lambda z, x: (jnp.exp(z) * x * jnp.conj(z), jnp.abs(z), z.real * x)  # noqa: E731
    back = rlx.from_jax(function, z, f(4)).to_jax()
    cotangents = (jnp.asarray(z[::-1]), jnp.asarray(f(4)), jnp.asarray(f(4)))
    x = f(4)
    for found, wanted in zip(jax.vjp(back, z, x)[1](cotangents), jax.vjp(function, z, x)[1](cotangents), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    holomorphic = lambda function: jax.grad(lambda z: jnp.sum(function(z, x)[0]), holomorphic=True)  # noqa: E731
    entire = lambda z, x: (jnp.exp(z) * z * x,)  # noqa: E731
    np.testing.assert_allclose(
        holomorphic(rlx.from_jax(entire, z, x).to_jax())(z), holomorphic(entire)(z), rtol=1e-4, atol=1e-5
    )
    # The derivative is linear, so it has a transpose, which has one too.
    linear = lambda function: lambda t: jax.jvp(lambda z: function(z, x)[0], (z,), (t,))[1]  # noqa: E731
    for n in (1, 2):
        ours, theirs = linear(back), linear(function)
        for _ in range(n):
            ours, theirs = ((lambda t, h=h: jax.linear_transpose(h, z)(t)[0]) for h in (ours, theirs))
        np.testing.assert_allclose(ours(z), theirs(z), rtol=1e-4, atol=1e-5)


def test_states_are_arguments_and_results() -> None:
    g = rlx.Graph("counter")
    x, total = g.input("x", (2,)), g.state("total", (2,), init=1)
    g.update(total, total + x)
    g.set_outputs([total * 2])
    function, x = jax.jit(g.to_jax()), np.array([3, 4], np.float32)
    (doubled,), states = function(x)
    np.testing.assert_array_equal(doubled, [2, 2])
    (doubled,), states = function(x, states=states)
    np.testing.assert_array_equal(doubled, [8, 10])
    np.testing.assert_array_equal(states["total"], [7, 9])


def test_it_is_a_part_of_what_jax_makes() -> None:
    """Scan, remat and export work as for a JAX function."""
    g = rlx.from_jax(lambda h, x: jnp.tanh(h * x), f(3), f(3))
    step, (h, xs) = g.to_jax(), (f(3), f(4, 3))
    ours, theirs = (
        jax.jit(jax.grad(lambda h, s=s: jax.lax.scan(jax.checkpoint(lambda c, x: (s(c, x), None)), h, xs)[0].sum()))(h)
        for s in (lambda h, x: step(h, x)[0], lambda h, x: jnp.tanh(h * x))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    exported = export.export(jax.jit(step))(h, xs[0])
    np.testing.assert_allclose(exported.call(h, xs[0])[0], np.tanh(h * xs[0]), rtol=1e-6)


def test_an_op_of_a_user_with_a_derivative_of_its_own() -> None:
    g = rlx.Graph("own")
    x = g.input("x", (3,))
    g.set_outputs(
        [g.custom_fn(lambda x: g.sum(x * x), x, vjp=lambda args, results, cotangents: cotangents[0] * 100 * args[0])]
    )
    value = g.to_jax()
    np.testing.assert_allclose(jax.grad(lambda x: value(x)[0])(f(3) * 0 + 2), [200] * 3)


def _wide() -> Any:
    g = rlx.Graph("wide")
    g.set_outputs({"y": g.cast(g.input("x", (2,)), "f64")})
    return g


NOT_JAX: Any = object()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: rlx.Graph("empty").to_jax(), rlx.Error, "no outputs"),
        (lambda: _layer().to_jax()(), rlx.Error, r"graph 'layer': input 'x' \(f32\[batch, 4\]\) is missing"),
        (lambda: _layer().to_jax()(f(2, 4)), rlx.Error, "param 'b' .* is missing"),
        (lambda: _layer().to_jax()(f(2, 4), f(3)), rlx.Error, "2 arrays for 1 inputs"),
        (lambda: _layer().to_jax()(f(2, 4), x=f(2, 4)), rlx.Error, "input 'x' is given twice"),
        (lambda: _layer().to_jax()(f(2, 4), X=f(2, 4)), rlx.Error, r"no input 'X' \(did you mean 'x'\?\)"),
        (lambda: _layer().to_jax()(f(2, 4), params={"bias": f(3)}), rlx.Error, "no param 'bias'"),
        (lambda: _layer().to_jax()(f(2, 4), params=NOT_JAX), rlx.Error, "params must be a mapping"),
        (lambda: _layer().to_jax()(f(2, 4), states={"s": 1}), rlx.Error, "no state 's'"),
        (lambda: _layer().to_jax()(f(2, 5), params={"b": f(3)}), rlx.ShapeError, "input 'x' must be f32"),
        (lambda: _layer().to_jax()(f(2, 4).astype(np.float64), params={"b": f(3)}), rlx.ShapeError, "float64"),
        (lambda: _layer().to_jax()(3.0, params={"b": f(3)}), rlx.Error, "the number 3.0"),
        (lambda: _layer().to_jax()("text", params={"b": f(3)}), rlx.Error, "input 'x'"),
        (lambda: _wide().to_jax(), rlx.Error, "output 'y' is f64.*JAX is set to have no f64"),
        (lambda: jax.linear_transpose(rlx.from_jax(jnp.sin, f(2)).to_jax(), f(2))((f(2),)), rlx.Error, "be linear"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_elements_of_64_bits_where_jax_has_them() -> None:
    with jax.enable_x64(True):
        x = np.array([1.5, 2.5], np.float32)
        (y,) = _wide().to_jax()(x)
        assert y.dtype == np.float64
        np.testing.assert_array_equal(y, x)


def test_a_function_is_copied_and_pickled() -> None:
    function, x, b = _layer().to_jax(), f(2, 4), f(3)
    for other in (copy.deepcopy(function), pickle.loads(pickle.dumps(function))):
        np.testing.assert_array_equal(other(x, params={"b": b})[0], function(x, params={"b": b})[0])


def test_weights_go_with_their_graph() -> None:
    """JAX keeps its compiled programs, but not the weights."""
    g = _layer()
    weight = weakref.ref(g.weights["w"])
    function = g.to_jax()
    jax.grad(lambda x: function(x, params={"b": f(3)})[0].sum())(f(2, 4))
    del g, function
    gc.collect()
    assert weight() is None


class Sealed(rlx.CustomOp, name="tests.sealed_for_jax"):
    """An op known to the evaluator only."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x


def test_an_op_without_stablehlo_is_named() -> None:
    g = rlx.Graph("sealed")
    g.set_outputs([g.custom("tests.sealed_for_jax", g.input("x", (2,)))])
    with pytest.raises(rlx.UnsupportedError, match=r"tests\.sealed_for_jax"):
        jax.jit(g.to_jax())(f(2))
