"""Transforms as users call them: results, composition, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.transforms.checks import check_second, check_vjp, check_vmap

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with jax.enable_x64(True):
        yield


def _array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def _mlp() -> tuple[rlx.Graph, dict[str, np.ndarray], Any]:
    """Return a graph with a loss and another output, arrays for it, and the JAX loss as a function of w and b."""
    g = rlx.Graph("mlp")
    x, w, b = g.input("x", (4, 3), "f64"), g.param("w", (3, 5), "f64"), g.param("b", (5,), "f64")
    h = g.tanh(x @ w + b)
    g.set_outputs({"loss": g.mean(h * h), "hidden": h})
    values = {"x": _array(4, 3), "w": _array(3, 5), "b": _array(5)}
    return g, values, lambda w, b: jnp.mean(jnp.tanh(values["x"] @ w + b) ** 2)


def _names(graph: Any) -> list[str]:
    return [o.name for o in graph.outputs]


def _close(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


# --- results ------------------------------------------------------------------------------------------


def test_grad() -> None:
    g, values, loss = _mlp()
    made = rlx.grad(g, ["w", "b"])
    assert _names(made) == ["grad_w", "grad_b"]
    for got, expected in zip(rlx.evaluate(made, values), jax.grad(loss, (0, 1))(values["w"], values["b"]), strict=True):
        _close(got, expected)
    assert _names(rlx.grad(g)) == ["grad_w", "grad_b"]  # all parameters
    assert _names(rlx.grad(g, "x")) == ["grad_x"]


def test_grad_with_loss_keeps_the_other_outputs() -> None:
    g, values, _ = _mlp()
    made = rlx.grad_with_loss(g, ["b"])
    assert _names(made) == ["loss", "grad_b", "hidden"]
    loss, _, hidden = rlx.evaluate(made, values)
    for got, expected in zip((loss, hidden), rlx.evaluate(g, values), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_loss_may_be_named() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,), "f64")
    g.set_outputs({"y": x * 2.0, "loss": g.sum(x * x)})
    assert rlx.evaluate(rlx.grad(g, "x", loss="loss"), {"x": np.arange(3.0)})[0].tolist() == [0, 2, 4]


def test_an_argument_that_is_not_used_has_the_gradient_zero() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (2,)), g.param("w", (3,))
    g.set_outputs([g.sum(x)])
    made = rlx.grad_with_loss(g, ["w"])
    assert rlx.evaluate(made, {"x": np.ones(2, np.float32), "w": np.ones(3, np.float32)})[1].tolist() == [0, 0, 0]
    with pytest.raises(rlx.Error, match="'w' does not reach the loss"):
        rlx.grad_with_loss(g, ["w"], unused="error")
    assert w.name == "w"


def test_vjp_and_jvp() -> None:
    g, values, _ = _mlp()
    pulled, pushed = rlx.vjp(g, ["w"]), rlx.jvp(g, ["w"])
    assert _names(pulled) == ["loss", "hidden", "grad_w"]
    assert [a.name for a in pulled.inputs] == ["x", "cotangent_loss", "cotangent_hidden"]
    assert _names(pushed) == ["loss", "hidden", "tangent_loss", "tangent_hidden"]
    assert [a.name for a in pushed.inputs] == ["x", "tangent_w"]
    check_vjp(g, values)


def test_hvp_and_hessian() -> None:
    g, values, loss = _mlp()
    tangent = _array(3, 5)
    made = rlx.hvp(g, ["w"])
    assert _names(made) == ["loss", "grad_w", "hvp_w"]
    gradient = jax.grad(lambda w: loss(w, values["b"]))
    expected = jax.jvp(gradient, (values["w"],), (tangent,))
    for got, wanted in zip(rlx.evaluate(made, {**values, "tangent_w": tangent})[1:], expected, strict=True):
        _close(got, wanted)
    dense = rlx.hessian(g, ["w", "b"])
    assert _names(dense) == ["hessian_w_w", "hessian_w_b", "hessian_b_w", "hessian_b_b"]
    wanted = jax.tree.leaves(jax.hessian(loss, (0, 1))(values["w"], values["b"]))
    for got, one in zip(rlx.evaluate(dense, values), wanted, strict=True):
        _close(got, one)


@pytest.mark.parametrize(("ours", "theirs"), [(rlx.jacfwd, jax.jacfwd), (rlx.jacrev, jax.jacrev)])
def test_dense_derivatives(ours: Any, theirs: Any) -> None:
    g, values, _ = _mlp()
    made = ours(g, ["b", "x"])
    assert _names(made) == ["jacobian_loss_b", "jacobian_loss_x", "jacobian_hidden_b", "jacobian_hidden_x"]

    def outputs(b: Any, x: Any) -> Any:
        h = jnp.tanh(x @ values["w"] + b)
        return jnp.mean(h * h), h

    expected = jax.tree.leaves(theirs(outputs, (0, 1))(values["b"], values["x"]))
    for got, wanted in zip(rlx.evaluate(made, values), expected, strict=True):
        _close(got, wanted)


def test_higher_orders() -> None:
    g = rlx.Graph()
    x = g.input("x", (), "f64")
    g.set_outputs([g.sin(x) * x**3.0])
    derivative: Any = lambda x: jnp.sin(x) * x**3  # noqa: E731
    for order in range(5):
        _close(rlx.evaluate(rlx.nth_order_grad(g, "x", order), {"x": np.float64(0.7)})[0], derivative(0.7))
        derivative = jax.grad(derivative)


def test_directional_derivatives_of_a_vector() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,), "f64")
    g.set_outputs({"y": g.exp(x) * g.sum(x)})
    values = {name: _array(3) for name in ("x", "dir_0", "dir_1")}
    f = lambda x: jnp.exp(x) * jnp.sum(x)  # noqa: E731
    once = lambda x: jax.jvp(f, (x,), (values["dir_0"],))[1]  # noqa: E731
    _, expected = jax.jvp(once, (values["x"],), (values["dir_1"],))
    made = rlx.directional_nth_grad(g, "x", 2)
    assert _names(made) == ["dir2_y"]
    _close(rlx.evaluate(made, values)[0], expected)


def test_linearize() -> None:
    g, values, _ = _mlp()
    split = rlx.linearize(g, ["w"])
    results = dict(zip(_names(split.primal), rlx.evaluate(split.primal, values), strict=True))
    residuals = {name: results[name] for name in split.residuals}
    tangent = _array(3, 5)
    expected = rlx.evaluate(rlx.jvp(g, ["w"]), {**values, "tangent_w": tangent})
    for got, wanted in zip(rlx.evaluate(split.linear, {**residuals, "tangent_w": tangent}), expected[2:], strict=True):
        _close(got, wanted)
    # It is linear: it has no nonlinear ops.
    assert "tanh" not in str(split.linear) and "rlx.activation_backward" not in str(split.linear)


# --- stages and passes ------------------------------------------------------------------------------


def _block_module() -> rlx.GraphModule:
    m = rlx.GraphModule.hir("m")
    x, w, b = m.input("x", (2, 4)), m.param("w", (4, 3)), m.param("b", (3,))
    m.set_outputs([m.sum(m.linear(x, w, b, activation="gelu"))])
    return m


def test_of_a_module_at_hir_comes_a_module_at_mir() -> None:
    module = _block_module()
    for made in (rlx.grad(module, ["w"]), module.grad(["w"]), module.lower().grad(["w"])):
        assert isinstance(made, rlx.GraphModule) and made.stage == "mir" and _names(made) == ["grad_w"]
    assert module.stage == "hir"
    assert [len(module.linearize(["w"]).residuals) > 0, _names(module.vmap({"x": 0}, 3))] == [True, ["output0"]]


def test_lir_is_too_late() -> None:
    low = rlx.Pipeline(target="cpu").compile(_block_module()).lir
    with pytest.raises(rlx.StageError, match="stage lir"):
        rlx.grad(low)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("rlx-grad{wrt=w,b}", lambda g: rlx.grad(g, ["w", "b"])),
        ("rlx-vjp{wrt=w}", lambda g: rlx.vjp(g, ["w"])),
        ("rlx-jvp{tangents=w}", lambda g: rlx.jvp(g, ["w"])),
        ("rlx-hvp{wrt=w}", lambda g: rlx.hvp(g, ["w"])),
        ("rlx-vmap{batched=x:1 size=3}", lambda g: rlx.vmap(g, {"x": 1}, 3)),
        ("rlx-jacfwd{wrt=b}", lambda g: rlx.jacfwd(g, ["b"])),
        ("rlx-hessian{wrt=b}", lambda g: rlx.hessian(g, ["b"])),
        ("rlx-checkpoint", rlx.checkpoint),
    ],
)
def test_each_is_a_pass(text: str, call: Any) -> None:
    g, _, _ = _mlp()
    assert str(rlx.passes.run(g, f"builtin.module({text})")) == str(call(g))


# --- composition ------------------------------------------------------------------------------------


def test_grad_of_vmap_of_grad() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (3,), "f64"), g.param("w", (3,), "f64")
    g.set_outputs([g.sum(g.sin(x * w) * w)])
    inner = rlx.vmap(rlx.grad(g, ["x"]), {"x": 0}, 5)
    outer = rlx.Graph.from_module(inner.clone().module)
    (gradients,) = outer.output_tensors
    outer.set_outputs([outer.sum(gradients * gradients)])
    values = {"x": _array(5, 3), "w": _array(3)}

    def loss(w: Any) -> Any:
        one = jax.grad(lambda x: jnp.sum(jnp.sin(x * w) * w))
        return jnp.sum(jax.vmap(one)(values["x"]) ** 2)

    _close(rlx.evaluate(rlx.grad(outer, ["w"]), values)[0], jax.grad(loss)(values["w"]))


def _recurrence(num_checkpoints: int | None = None, reverse: bool = False) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    g = rlx.Graph("recurrence")
    h, xs, w = g.input("h", (2, 3), "f64"), g.input("xs", (7, 2, 3), "f64"), g.param("w", (3, 3), "f64")

    def step(carry: Any, x: Any) -> Any:
        following = g.tanh(carry @ w + x)
        return following, g.sum(following * x, 1)

    last, sums = g.scan(step, h, xs, num_checkpoints=num_checkpoints, reverse=reverse)
    g.set_outputs([g.sum(last * last) + g.sum(sums)])
    return g, {"h": _array(2, 3), "xs": _array(7, 2, 3), "w": _array(3, 3)}


def _jax_recurrence(reverse: bool) -> Any:
    def loss(h: Any, xs: Any, w: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            n = jnp.tanh(c @ w + x)
            return n, jnp.sum(n * x, 1)

        last, sums = jax.lax.scan(step, h, xs, reverse=reverse)
        return jnp.sum(last * last) + jnp.sum(sums)

    return loss


@pytest.mark.parametrize("reverse", [False, True])
@drawn("num_checkpoints", [None, 1, 2, 3, 7, 9], of_each=2)
def test_grad_of_scan(num_checkpoints: int | None, reverse: bool) -> None:
    """The gradient does not depend on which forward values are kept."""
    g, values = _recurrence(num_checkpoints, reverse)
    expected = jax.grad(_jax_recurrence(reverse), (0, 1, 2))(*values.values())
    for got, wanted in zip(rlx.evaluate(rlx.grad(g, list(values)), values), expected, strict=True):
        _close(got, wanted)
    check_second(g, values)


def test_jvp_of_grad_of_scan() -> None:
    g, values = _recurrence()
    tangents = {f"tangent_{name}": RNG.standard_normal(v.shape) for name, v in values.items()}
    gradient = jax.grad(_jax_recurrence(False), 2)
    _, expected = jax.jvp(gradient, tuple(values.values()), tuple(tangents.values()))
    made = rlx.jvp(rlx.grad(g, ["w"]), list(values))
    _close(rlx.evaluate(made, {**values, **tangents})[1], expected)


def test_vmap_of_while_whose_entries_stop_at_different_steps() -> None:
    g = rlx.Graph()
    n, x = g.input("n", (), rlx.i32), g.input("x", (2,), "f64")
    count, y = g.while_(lambda i, x: i < n, lambda i, x: (i + 1, x * 1.5), 0, x)
    g.set_outputs([count, y])
    rows = [np.asarray(k, np.int32) for k in (3, 0, 5)]
    values = {"n": rows[0], "x": _array(2)}
    check_vmap(g, values, {"n": 0, "x": 1}, fresh={"n": rows})
    check_vmap(g, values, {"n": 0}, fresh={"n": rows})
    check_vmap(g, values, {"x": 0})


def test_vmap_of_a_branch_by_each_entry() -> None:
    g = rlx.Graph()
    p, x, w = g.input("p", (), rlx.bool_), g.input("x", (3,), "f64"), g.param("w", (3,), "f64")
    g.set_outputs([g.if_(p, lambda: x * w, lambda: g.sin(x) - w)])
    rows = [np.asarray(k) for k in (True, False, True)]
    values = {"p": rows[0], "x": _array(3), "w": _array(3)}
    check_vmap(g, values, {"p": 0, "x": 0}, fresh={"p": rows})
    check_vmap(g, values, {"p": 0}, fresh={"p": rows})
    check_vmap(rlx.vjp(g, ["w"]), {**values, "cotangent_output0": _array(3)}, {"p": 0, "x": 1}, fresh={"p": rows})


def test_bounded_while_in_reverse() -> None:
    g = rlx.Graph()
    x = g.input("x", (), "f64")
    (y,) = (g.while_(lambda y: y < 50.0, lambda y: y * x, x, max_iterations=20),)
    g.set_outputs([y])
    made = rlx.grad(g, ["x"])
    for start in (1.1, 2.0, 60.0):  # x to the power of the number of steps
        value = np.float64(start)
        steps, y_ = 1, value
        while y_ < 50 and steps <= 20:
            y_, steps = y_ * value, steps + 1
        _close(rlx.evaluate(made, {"x": value})[0], steps * value ** (steps - 1), 1e-9)
    check_second(g, {"x": np.asarray(2.0)})


def test_symbolic_sizes() -> None:
    g = rlx.Graph()
    x, w = g.input("x", ("batch", "seq"), "f64"), g.param("w", (4,), "f64")
    y = g.softmax(x, -1)
    g.set_outputs([g.mean(g.sum(y * x, 1)) * g.sum(w * w)])
    made = rlx.grad(g, ["x", "w"])
    batched = rlx.vmap(made, {"x": 2}, "many")
    for batch, seq in ((3, 5), (1, 7)):
        values = {"x": _array(batch, seq), "w": _array(4)}
        loss = lambda x, w: jnp.mean(jnp.sum(jax.nn.softmax(x) * x, 1)) * jnp.sum(w * w)  # noqa: E731
        expected = jax.grad(loss, (0, 1))(values["x"], values["w"])
        for got, wanted in zip(rlx.evaluate(made, values), expected, strict=True):
            _close(got, wanted)
        many = np.stack([values["x"], values["x"] + 1], 2)
        _close(rlx.evaluate(batched, {"x": many, "w": values["w"]})[0][0], expected[0])


def test_states_are_still_updated() -> None:
    g = rlx.Graph()
    x, seen = g.input("x", (2,)), g.state("seen", (2,))
    w = g.param("w", (2,))
    g.update(seen, seen + x)
    g.set_outputs([g.sum(w * x * seen)])
    made = rlx.grad_with_loss(g, ["w"])
    assert [o.updates for o in made.results] == [None, None, "seen"]
    with pytest.raises(rlx.Error, match="state 'seen' is batched, and the state is not"):
        rlx.vmap(g, {"x": 0}, 2)
    assert rlx.vmap(g, {"x": 0, "seen": 0}, 2).states[0].shape == (2, 2)


def test_custom_rules_hold_under_every_transform() -> None:
    """A rule with twice the gradient shows that the rule is used."""
    g = rlx.Graph()
    x = g.input("x", (3,), "f64")
    double = lambda args, results, cotangents: cotangents[0] * g.cos(args[0]) * 2.0  # noqa: E731
    y = g.custom_fn(lambda x: g.sin(x), x, vjp=double)
    g.set_outputs([g.sum(y)])
    values = {"x": _array(3)}
    _close(rlx.evaluate(rlx.grad(g, "x"), values)[0], 2 * np.cos(values["x"]))
    tangent = _array(3)
    moved = rlx.evaluate(rlx.jvp(g, "x"), {**values, "tangent_x": tangent})[1]
    _close(moved, (2 * np.cos(values["x"]) * tangent).sum())  # the adjoint of the rule
    many = rlx.grad(_summed(rlx.vmap(g, {"x": 0}, 2)), "x")
    _close(rlx.evaluate(many, {"x": np.stack([values["x"]] * 2)})[0][1], 2 * np.cos(values["x"]))


def _summed(graph: rlx.Graph) -> rlx.Graph:
    graph.set_outputs([graph.sum(graph.output_tensors[0])])
    return graph


def test_one_tensor_in_several_places_counts_once_for_each() -> None:
    """As two arguments, as an argument and a capture, and as a result that is itself an argument or a capture."""
    values = {"x": _array(3), "w": _array(3)}

    def both(g: Any, x: Any, w: Any) -> Any:
        y, same, captured, twice = g.custom_fn(lambda a, b: (a * b * x * w, a, w, b), x, x)
        return g.sum(y * same + captured * twice * x + same)

    expected = jax.grad(lambda x, w: jnp.sum(x * x * x * w * x + w * x * x + x), (0, 1))(*values.values())
    g = rlx.Graph()
    g.set_outputs([both(g, g.input("x", (3,), "f64"), g.input("w", (3,), "f64"))])
    for got, wanted in zip(rlx.evaluate(rlx.grad(g, ["x", "w"]), values), expected, strict=True):
        _close(got, wanted)


def test_a_loop_over_values_of_many_types() -> None:
    """A group of values may change its type 15 times; carries with their tangents would exceed that."""
    g = rlx.Graph()
    sizes = range(1, 8)
    carries = tuple(g.input(f"c{i}", (i,), "f64") for i in sizes)
    weights = [g.input(f"w{i}", (i,), "f64") for i in sizes]
    step = lambda c, _: (tuple(g.sin(a * w) for a, w in zip(c, weights, strict=True)), c[::-1])  # noqa: E731
    last, stacked = g.scan(step, carries, None, length=3)
    g.set_outputs([sum((g.sum(v) for v in (*last, *stacked)), g.constant(0.0, dtype="f64"))])
    check_second(g, {a.name: _array(*a.shape.static) for a in g.arguments})


def test_a_checkpointed_scan_that_passes_values_through() -> None:
    """The body yields a tensor of the loop around it."""
    g = rlx.Graph()
    x, w = g.input("x", (4,), "f64"), g.input("w", (), "f64")

    def outer(carry: Any, row: Any) -> Any:
        scaled = w * row
        last, _ = g.scan(lambda c, _: (scaled, c), carry, None, length=2, num_checkpoints=1)
        return last * carry, g.if_(row > 0.0, lambda: scaled, lambda: carry)

    last, stacked = g.scan(outer, w, x)
    g.set_outputs([last + g.sum(stacked)])
    check_second(g, {"x": _array(4), "w": np.asarray(0.7)})


def test_stop_gradient() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,), "f64")
    g.set_outputs([g.sum(g.stop_gradient(x) * x)])
    values = {"x": _array(3)}
    _close(rlx.evaluate(rlx.grad(g, "x"), values)[0], values["x"])


# --- costs --------------------------------------------------------------------------------------------


def test_a_gradient_has_at_most_three_times_the_ops() -> None:
    from rlx.transforms.base import tensor_graph
    from tools.training_models import MODELS

    for model in MODELS:
        graph = tensor_graph(model.graph())
        before, after = (len(g.function.entry_block.operations) for g in (graph, rlx.grad_with_loss(graph)))
        assert after <= 3 * before, f"{model.name}: {after} ops of {before}"


def test_no_cotangent_that_nobody_needs() -> None:
    """The gradient of only one of the two operands is requested."""
    g = rlx.Graph()
    x, w = g.input("x", (8, 4)), g.param("w", (4, 2))
    g.set_outputs([g.sum(x @ w)])
    assert str(rlx.grad(g, ["w"])).count("rlx.dot_general") == 1
