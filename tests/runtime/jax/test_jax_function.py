"""`rlx.jax_function`: JAX functions on RLX tensors, compiled and differentiated together, compared with JAX alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from tests.importers.jax_functions import CASES, f  # noqa: E402


class Layer(NamedTuple):
    w: Any
    b: Any


BIG, OTHER = f(40, 40) / 6, f(40, 40) / 6  # as constants large enough to become weights of a graph


@rlx.jax_function(static="power")
def block(layers: list[Layer], *xs: Any, power: int, scale: Any = 2.0) -> dict[str, Any]:
    x: Any = sum(xs)
    for layer in layers:
        x = jnp.tanh(x @ layer.w + layer.b) @ BIG
    return {"y": scale * x**power, "rest": (x.sum(), None, jnp.argmax(x, -1))}


@rlx.jax_function
def other(x: Any) -> Any:
    return x @ OTHER


def test_pytrees_go_in_and_come_out() -> None:
    g = rlx.Graph("mixed")
    x = g.input("x", (3, 40))
    layers = [Layer(g.param(f"w{i}", (40, 40)), g.param(f"b{i}", (40,))) for i in range(2)]
    found = block(layers, x, x * 0.5, power=2)
    assert isinstance(found["y"], rlx.Tensor) and found["rest"][1] is None
    g.set_outputs({"loss": g.mean(other(found["y"]) ** 2), "sum": found["rest"][0], "best": found["rest"][2]})
    values = {"x": f(3, 40), **{a.name: f(*a.shape.static) / 6 for a in g.params}}
    gradients = rlx.grad_with_loss(g, ["w0", "b1"])

    def loss(w0: Any, b1: Any) -> Any:
        leaves = [Layer(w0, values["b0"]), Layer(values["w1"], b1)]
        result = block(leaves, values["x"], values["x"] * 0.5, power=2)  # not tensors, so JAX computes it
        return jnp.mean(other(result["y"]) ** 2), (result["rest"][0], result["rest"][2])

    (value, others), wanted = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(values["w0"], values["b1"])
    for run in (lambda: rlx.evaluate(gradients, values), lambda: _compiled(gradients, values)):
        for ours, theirs in zip(run(), [value, *wanted, *others], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-4)


def _compiled(g: Any, values: Any) -> Any:
    params = {a.name: values[a.name] for a in g.params}
    return rlx.Session("cpu").compile(g, params=params).run({"x": values["x"]})


@drawn("name", CASES, of_each=4)
def test_all_kinds_of_functions(name: str) -> None:
    function, arguments = CASES[name]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    g = rlx.Graph("around")
    tensors = [g.input(f"x{i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)]
    found = rlx.jax_function(function)(*jax.tree.unflatten(jax.tree.structure(arguments), tensors))
    wanted = jax.jit(function)(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    g.set_outputs(jax.tree.leaves(found))
    results = rlx.evaluate(g, {f"x{i}": leaf for i, leaf in enumerate(leaves)})
    for ours, theirs in zip(results, jax.tree.leaves(wanted), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_in_functions_that_rlx_traces_and_op_by_op() -> None:
    @rlx.jit
    def function(x: Any, scale: float) -> Any:
        return other(x) * scale, other(np.ones((2, 40), np.float32)), block([], x, power=1, scale=scale)["y"]

    x = f(3, 40)
    wanted = [x @ OTHER * 1.5, np.ones((2, 40), np.float32) @ OTHER, 1.5 * x]
    for ours, theirs in zip(function(x, 1.5), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with rlx.eager():
        for ours, theirs in zip(function(x, 1.5), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other(rlx.ops.abs(x)), np.abs(x) @ OTHER, rtol=1e-4, atol=1e-5)


def test_numbers_and_dtypes_are_jaxs() -> None:
    """A Python number takes the dtype of the array operand, and an array keeps its own, as in JAX."""
    g = rlx.Graph("dtypes")
    x = g.input("x", (2,), "bf16")
    times = rlx.jax_function(lambda a, b: a * b)
    assert [times(x, b).dtype.name for b in (3, 2.5, np.float32(2), np.ones(2, np.int32))] == [
        *("bf16", "bf16", "f32", "bf16"),
    ]

    class Scaled:
        @rlx.jax_function(static="self")
        def apply(self, x: Any) -> Any:
            return x * 3

    g.set_outputs([Scaled().apply(x), times(x, 2.5)])
    found = rlx.evaluate(g, {"x": np.ones(2, rlx.bf16.numpy)})
    np.testing.assert_array_equal(np.asarray(found, np.float32), [[3, 3], [2.5, 2.5]])


def test_it_is_traced_once_for_each_signature() -> None:
    traces: list[Any] = []

    @rlx.jax_function(static="n")
    def function(x: Any, n: int) -> Any:
        traces.append((x.shape, n))
        return x * n

    g = rlx.Graph("twice")
    for shape, n in [((2,), 3), ((2,), 3), ((3,), 3), ((2,), True), ((2,), 1)]:
        function(g.constant(np.ones(shape, np.float32)), n)
    assert set(traces) == {((2,), 3), ((3,), 3), ((2,), 1)} and traces.count(((2,), 3)) == 1


def _tensor(*shape: Any, dtype: str = "f32") -> Any:
    return rlx.Graph("g").input("x", shape, dtype)


NOT_ONE: Any = 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlx.jax_function(NOT_ONE), "rlx.jax_function takes a function"),
        (lambda: rlx.jax_function(jnp.sin, static="y"), "static= takes names of arguments, got 'y'"),
        (lambda: other(), "JAX function 'other': missing a required argument: 'x'"),
        (lambda: other(_tensor("n", 40)), r"traces sizes that are known, got f32\[n, 40\]"),
        (lambda: other(_tensor(3, 4)), "JAX function 'other': JAX cannot trace the function: TypeError"),
        (lambda: other(_tensor(3, 40, dtype="f64")), "JAX is set to have no f64"),
        (lambda: rlx.jax_function(lambda x, m: x)(_tensor(3), "text"), "(?s)an array.*, got str.*static= names the arg"),
        (lambda: block([], _tensor(3, 40), power=[1]), "static argument 'power' must be hashable"),
        (lambda: rlx.jax_function(jax.scipy.linalg.schur)(_tensor(3, 3)), "schur"),
        (lambda: rlx.jax_function(lambda x, y: x)(_tensor(3), "text"), "an argument"),
        (lambda: rlx.jax_function(lambda x, y: x + y)(_tensor(3), _tensor(3)), "belongs to another graph"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()
