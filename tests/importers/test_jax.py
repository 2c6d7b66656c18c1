"""`rlx.from_jax`: functions of all kinds of primitives compared with JAX, derivatives, names and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax.experimental import io_callback

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from tests.importers.jax_functions import CASES, f  # noqa: E402


def _inputs(g: Any, arguments: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves(arguments)
    return {i.name: np.asarray(leaf) for i, leaf in zip(g.inputs, leaves, strict=True)}


def _assert_close(found: Any, wanted: Any) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.asarray(ours).dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@drawn("name", CASES, of_each=25)
def test_a_function_is_what_jax_computes(name: str) -> None:
    function, arguments = CASES[name]
    g = rlx.from_jax(function, *arguments)
    wanted = [np.asarray(e) for e in jax.tree.leaves(jax.jit(function)(*arguments))]
    assert [o.name for o in g.outputs] == [f"out{n}" for n in range(len(wanted))]
    _assert_close(rlx.evaluate(g, _inputs(g, arguments)), wanted)


@drawn("name", list(CASES), of_each=5)
def test_a_compiled_function_is_what_jax_computes(name: str) -> None:
    function, arguments = CASES[name]
    g = rlx.from_jax(function, *arguments)
    wanted = [np.asarray(e) for e in jax.tree.leaves(jax.jit(function)(*arguments))]
    _assert_close(rlx.Session("cpu").compile(g).run(_inputs(g, arguments)), wanted)


# Functions that are smooth in their first argument, which is f32.
SMOOTH = [
    *("gather_index", "gather_2", "take_along", "at_set", "at_add", "at_mul", "dyn_slice", "dyn_upd", "sort", "cumsum"),
    *("while", "fori", "scan", "scan_rev", "cond", "switch", "map", "assoc", "conv_same", "conv_dil", "conv_group"),
    *(
        "conv_batchgroup",
        "conv_transpose",
        "maxpool",
        "avgpool",
        "redwin_dil",
        "pad",
        "chol",
        "trisolve",
        "solve",
        "inv",
    ),
    *(
        "einsum",
        "logsumexp",
        "softmax",
        "lstm",
        "grad_scan",
        "vmap",
        "image_resize",
        "attn",
        "segment_sum",
        "expm",
        "topk",
    ),
    *("eigh", "svd", "qr", "lu", "det", "pinv", "lstsq", "cholesky_as_it_is", "norms"),
    *("conjugate_gradients", "stop_gradient", "relu_at_zero", "custom_vjp", "clamp_of_three", "round_times", "igamma"),
    *("random_gamma", "erf_family", "betainc", "custom_vjp_of_constants", "custom_jvp_of_constants"),
]


@drawn("name", SMOOTH, of_each=5)
def test_gradients_are_jaxs(name: str) -> None:
    """The gradient of the sum of squares of all real results equals JAX's, including loops of a known number of steps."""
    function, arguments = CASES[name]

    def loss(*given: Any) -> Any:
        results = [r for r in jax.tree.leaves(function(*given)) if jnp.issubdtype(r.dtype, jnp.floating)]
        return sum(jnp.sum(r**2) for r in results)

    # JAX has no reverse-mode derivative of `while`.
    wanted = (jax.jacfwd if name == "while" else jax.grad)(loss)(*arguments)
    g = rlx.from_jax(loss, *arguments)
    gradient = rlx.grad(g, wrt=[g.inputs[0].name])
    found = rlx.evaluate(
        gradient, {n: a for n, a in _inputs(g, arguments).items() if n in [i.name for i in gradient.inputs]}
    )
    np.testing.assert_allclose(found[0], wanted, rtol=2e-3, atol=2e-4)


def test_betainc_has_derivatives_by_its_shapes_which_jax_has_not() -> None:
    special = pytest.importorskip("scipy.special")
    a, b = (grid.ravel() for grid in np.meshgrid([0.3, 1.0, 4.0, 300.0], [0.2, 1.0, 7.0, 500.0]))
    x = np.clip(a / (a + b) + np.linspace(-0.2, 0.2, a.size), 0.001, 0.999)
    with jax.enable_x64(True):
        g = rlx.from_jax(lambda a, b, x: jnp.sum(jax.lax.betainc(a, b, x)), a, b, x)
    found = rlx.evaluate(rlx.grad(g, ["arg0", "arg1"]), {"arg0": a, "arg1": b, "arg2": x})
    h = 1e-4
    by_a = (special.betainc(a * (1 + h), b, x) - special.betainc(a * (1 - h), b, x)) / (2 * a * h)
    by_b = (special.betainc(a, b * (1 + h), x) - special.betainc(a, b * (1 - h), x)) / (2 * b * h)
    np.testing.assert_allclose(found, [by_a, by_b], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", ["special", "topk", "nextafter"])
def test_text_with_ops_of_chlo(name: str) -> None:
    function, arguments = CASES[name]
    for debug in (False, True):
        text = jax.jit(function).lower(*arguments).as_text(debug_info=debug)
        assert "chlo." in text
        g = rlx.from_stablehlo(text)
        wanted = [np.asarray(e) for e in jax.tree.leaves(jax.jit(function)(*arguments))]
        _assert_close(rlx.evaluate(g, _inputs(g, arguments)), wanted)


def test_inputs_are_called_by_their_path() -> None:
    params = {"w": f(4, 3), "layers": [f(3), (f(3),)]}
    g = rlx.from_jax(
        lambda p, n, x: (x @ p["w"] + p["layers"][0] * n, p["layers"][1][0]), params, 3, f(2, 4), static_argnums=1
    )
    assert [i.name for i in g.inputs] == ['arg0["layers"][0]', 'arg0["layers"][1][0]', 'arg0["w"]', "arg2"]


def test_with_64_bits() -> None:
    with jax.enable_x64(True):
        g = rlx.from_jax(lambda x, n: (jnp.clip(x * n, -1.0, 1.0), jnp.cumsum(n)), np.arange(3.0), np.arange(3))
    assert [t.shape.dtype.name for t in g.inputs] == ["f64", "i64"]
    found = rlx.evaluate(g, {"arg0": np.arange(3.0) - 1, "arg1": np.array([0, 2**40, -3])})
    np.testing.assert_array_equal(found[0], [0.0, 0.0, -1.0])
    np.testing.assert_array_equal(found[1], [0, 2**40, 2**40 - 3])


def test_what_a_function_closes_over_is_a_parameter_and_what_it_does_not_use_an_input() -> None:
    w = f(64, 32)
    g = rlx.from_jax(lambda x, unused: x @ w, jax.ShapeDtypeStruct((2, 64), jnp.float32), jnp.zeros(3))
    assert [p.name for p in g.params] == ["constant0"]
    assert [i.name for i in g.inputs] == ["arg0", "arg1"]
    x = f(2, 64)
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": x, "arg1": np.zeros(3, np.float32)})[0], x @ w, rtol=1e-4)


def test_a_loop_with_a_known_number_of_steps_is_a_scan() -> None:
    g = rlx.from_jax(lambda x: jax.lax.fori_loop(2, 9, lambda n, c: c * 2 + n, x), f(3))
    assert "rlx.scan" in g.text() and "rlx.while" not in g.text()
    g = rlx.from_jax(lambda x, n: jax.lax.fori_loop(0, n, lambda _, c: c * 2, x), f(3), np.int32(3))
    assert "rlx.while" in g.text()


def _shown(**options: Any) -> Any:
    """Return a function that prints values in a loop, a branch and a derivative."""

    def shown(x: Any) -> Any:
        jax.debug.print("{x}", x=x, **options)
        jax.debug.callback(lambda _: None, x, **options)
        return x * x

    def function(x: Any) -> Any:
        x, _ = jax.lax.scan(lambda c, _: (shown(c), None), x, None, length=2)
        x = jax.lax.cond(x[0] > 0, shown, lambda v: v, x)
        return jax.vmap(shown)(x) + jax.grad(lambda v: jnp.sum(shown(v)))(x)

    return function


def test_what_only_shows_a_value_is_left_out() -> None:
    x = f(3)
    g = rlx.from_jax(_shown(), x)
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": x})[0], _shown()(x), rtol=1e-6)


def symbolic(name: str, *sizes: int) -> Any:
    """Return an argument whose first size is a JAX symbol."""
    return jax.ShapeDtypeStruct((*jax.export.symbolic_shape(name), *sizes), jnp.float32)


def test_a_batch_of_any_size_comes_from_the_graph_of_one_example() -> None:
    w, x = f(4, 3), f(5, 4)
    g = rlx.vmap(rlx.from_jax(lambda x: jnp.tanh(x @ w), f(4)), {"arg0": 0}, "n")
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": x})[0], np.tanh(x @ w), rtol=1e-5, atol=1e-6)


NO_POSITIONS: tuple[Any, ...] = (None, 1.5, "x", [None], [[0]], {"a": 1})
NO_FUNCTION: Any = 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlx.from_jax(NO_FUNCTION), "expected a function, got int"),
        (lambda: rlx.from_jax(lambda x: x @ x, f(2, 3)), "JAX cannot trace the function: TypeError: dot_general"),
        (lambda: rlx.from_jax(lambda x: x + "a", f(2)), "JAX cannot trace the function"),
        (
            lambda: rlx.from_jax(lambda x, mode: x, f(2), "text"),
            "(?s)from_jax: 'arg1' is 'text', .*static_argnums=1 makes it a Python value for the trace.*functools.partial",
        ),
        (
            lambda: rlx.from_jax(lambda x: x, {"a": f}),
            r"(?s)'arg0\[\"a\"\]' is <function.*makes all of argument 0 a Python",
        ),
        (lambda: rlx.from_jax(lambda x: x, f(2), static_argnums=4), "name no argument"),
        (lambda: rlx.from_jax(lambda x: x, f(2), param_argnums=1), "param_argnums 1 name no argument"),
        (lambda: rlx.from_jax(lambda x: x, f(2), param_argnums=0, static_argnums=0), "name the same argument"),
        (lambda: rlx.from_jax(lambda x: x, {"a": "text"}, param_argnums=0), "no array, but str"),
        (
            lambda: rlx.from_jax(jnp.sin, symbolic("n", 4)),
            r"arg0 has the size n, .*\n.*rlx.vmap\(graph, \{'arg0': 0\}, 'n'\)",
        ),
        (lambda: rlx.from_jax(jax.scipy.linalg.schur, f(3, 3)), "schur of real matrices cannot be imported"),
        (lambda: rlx.from_jax(lambda x: jax.pure_callback(np.sin, x, x), f(3)), "calls back into Python"),
        (lambda: rlx.from_jax(lambda x: io_callback(np.sin, x, x), f(3)), "calls back into Python"),
        (lambda: rlx.from_jax(_shown(ordered=True), f(3)), "effects in an order"),
        *(
            (lambda option=option, value=value: rlx.from_jax(lambda x: x, f(2), **{option: value}), "are the positions")
            for option in ("static_argnums", "param_argnums")
            for value in NO_POSITIONS
        ),
        (
            lambda: rlx.from_stablehlo(
                "func.func @f(%x: tensor<2xf6E2M3FN>) -> tensor<2xf6E2M3FN> {return %x : tensor<2xf6E2M3FN>}"
            ),
            "f6E2M3FN",
        ),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()


def test_parameters_are_arguments_that_the_caller_names_with_their_values() -> None:
    params = {"w": f(64, 32), "key": jax.random.key(3), "open": jax.ShapeDtypeStruct((32,), jnp.float32)}
    table = f(64, 32)  # large, but not a parameter of the user

    def function(scale: Any, p: Any, x: Any) -> Any:
        return (x @ (p["w"] + table) * scale + p["open"]) * jax.random.uniform(p["key"], (32,))

    g = rlx.from_jax(function, 2.0, params, f(2, 64), param_argnums=1)
    assert [i.name for i in g.inputs] == ["arg0", "arg2"]
    assert [p.name for p in g.params] == ['arg1["key"]', 'arg1["open"]', 'arg1["w"]']
    assert sorted(g.weights) == ['arg1["key"]', 'arg1["w"]']
    x, bias = f(2, 64), f(32)
    found = rlx.evaluate(g, {"arg0": np.float32(2), "arg2": x, 'arg1["open"]': bias})
    np.testing.assert_allclose(found[0], function(2.0, params | {"open": bias}, x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64])
def test_unsigned_integers_may_be_parameters(dtype: Any) -> None:
    """Both passed parameters and closed-over arrays may be unsigned."""
    with jax.enable_x64(dtype == np.uint64):
        whole = np.arange(2**16 - 200 * 200, 2**16).reshape(200, 200).astype(dtype) * np.iinfo(dtype).max
        table, x = jnp.asarray(whole), f(200, 200)
        given = rlx.from_jax(lambda x, t: (x > 0) * (t >> 3), x, whole, param_argnums=1)
        closed = rlx.from_jax(lambda x: (x > 0) * (table >> 3), x)
        for g in (given, closed):
            assert [np.asarray(w).dtype for w in g.weights.values()] == [dtype]
            found = np.asarray(rlx.evaluate(g, {"arg0": x})[0])
            np.testing.assert_array_equal(found.astype(dtype), (x > 0) * (whole >> 3))


def test_keys_with_white_space_stay_names() -> None:
    x = np.ones(3, np.float32)
    g = rlx.from_jax(lambda d, t, y: d["a b"] * y + d["c"] + t[0, 1], {"a b": x, "c": x}, {(0, 1): x}, x)
    assert [i.name for i in g.inputs] == ['arg0["a_b"]', 'arg0["c"]', "arg1[(0,_1)]", "arg2"]


def test_a_derivative_may_be_stopped_at_complex_numbers() -> None:
    x = np.array([[1 + 2j, 3, -1j]], np.complex64)
    g = rlx.from_jax(jax.nn.softmax, x)
    np.testing.assert_allclose(rlx.evaluate(g, {"arg0": x})[0], jax.nn.softmax(x), rtol=1e-5)
