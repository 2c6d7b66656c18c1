"""`@rlx.jit`: signatures, containers, numbers, derivatives, misuse; compiled results compared with NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.pytree import flatten

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((5, 4)).astype(np.float32)
PARAMS = {"w": RANDOM.standard_normal((4, 3)).astype(np.float32), "b": [np.ones(3, np.float32), None]}


@dataclass
class Result:
    hidden: Any
    total: Any


@rlx.jit(static="kind", threads=1)
def layer(params, x, scale=2.0, kind="tanh"):
    """A layer."""
    hidden = rlx.ops.activation(kind, x @ params["w"] + params["b"][0]) * scale
    return {"result": Result(hidden, hidden.sum()), "x": (x, 3, None), "positions": rlx.ops.iota((2,))}


def expected(x: np.ndarray, scale: float = 2.0) -> np.ndarray:
    return np.tanh(x @ PARAMS["w"] + 1) * np.float32(scale)


def test_gives_arrays_in_the_containers_of_the_function() -> None:
    got = layer(PARAMS, X)
    assert isinstance(got["result"], Result) and type(got["x"]) is tuple and got["x"][2] is None
    np.testing.assert_allclose(got["result"].hidden, expected(X), rtol=1e-5)
    np.testing.assert_allclose(got["result"].total, expected(X).sum(), rtol=1e-5)
    assert got["x"][1] == 3 and got["positions"].tolist() == [0, 1]
    np.testing.assert_array_equal(got["x"][0], X)
    assert layer.__doc__ == "A layer." and layer.__name__ == "layer"


def test_is_traced_once_for_each_signature() -> None:
    layer.clear_cache()
    graphs = [
        layer.graph_for(PARAMS, X),
        layer.graph_for(PARAMS, X + 1),
        layer.graph_for(PARAMS, X, kind="tanh"),
        layer.graph_for(PARAMS, X, 0.5),
        layer.graph_for(PARAMS, X, scale=7.5),
        layer.graph_for(PARAMS, X, 3),
        layer.graph_for(PARAMS, X[:2]),
        layer.graph_for(PARAMS, rlx.Shape(("batch", 4))),
        layer.graph_for(PARAMS, X, kind="relu"),
    ]
    assert graphs[0] is graphs[1] and graphs[3] is graphs[4]
    assert layer.num_traces == len({id(g) for g in graphs}) == 7
    assert [a.name for a in graphs[3].inputs] == ['params["w"]', 'params["b"][0]', "x", "scale"]
    assert graphs[7].outputs[0].shape == ("batch", 3)
    assert graphs[7].outputs[0].name == 'out["result"].hidden'


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_numbers_take_the_dtype_beside_them(dtype: str) -> None:
    x = np.array([1, 2, 3], rlx.dtype(dtype).numpy)

    @rlx.jit
    def scaled(x, a, n, alone):
        return x * a + n, a * alone, n + 1, rlx.ops.where(x > 1, a, x), x * True

    graph = scaled.graph_for(x, 0.1, 3, 0.5)
    assert [o.shape.dtype.name for o in graph.outputs] == [dtype, "f32", "i32", dtype, dtype]
    values = {"x": x, "a": np.float64(0.1), "n": np.int64(3), "alone": np.float64(0.5)}
    got = rlx.evaluate(graph, {n: np.asarray(v) for n, v in values.items()})
    np.testing.assert_array_equal(got[0], x * x.dtype.type(0.1) + x.dtype.type(3))
    assert scaled.graph_for(x, 0.1, 2**40, 0.5).outputs[2].shape.dtype is rlx.i64


class Evaluated:
    """A program that is evaluated, to save the time of compilers."""

    def __init__(self, graph: rlx.Graph):
        self.inputs, self.graph = graph.inputs, graph

    def run(self, inputs: dict[str, Any]) -> list[np.ndarray]:
        return rlx.evaluate(self.graph, inputs)


WITH_NUMBER: list[Callable[..., Any]] = [
    lambda x, n: x + n,
    lambda x, n: n * x,
    lambda x, n: x == n,
    lambda x, n: rlx.ops.where(x == x, n, x),
    lambda x, n: rlx.ops.concat([x, rlx.ops.add(x, n)], axis=0),
]
SAMPLE_NUMBERS = [True, 0, 7, -1, 127, 128, 255, 256, 70000, 2**31, 2**40, 0.0, 0.1, -3.5, 1e6, 1e39, 0.1 + 0.1j]


@pytest.mark.parametrize(
    "dtype", ["bool", "i8", "u8", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"]
)
def test_a_number_means_the_same_whether_it_is_traced_or_not(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlx.Session, "compile", lambda _, graph, **options: Evaluated(graph))
    x = np.array([1, 0], rlx.dtype(dtype).numpy)

    def outcome(call: Callable[..., Any], number: Any) -> str:
        try:
            result = call(x, number)
        except rlx.Error as problem:
            assert "fit" in problem.message or "lies outside" in problem.message
            return "refused"
        return f"{result.dtype} {result.tobytes().hex()}"

    for function in WITH_NUMBER:
        static, traced = rlx.jit(function, static="n"), rlx.jit(function)
        for number in SAMPLE_NUMBERS:
            expected = outcome(static, number)
            assert outcome(traced, number) == expected, f"{number} is traced"
            nested = rlx.jit(functools.partial(lambda inner, x, n: inner(x, n), traced))
            assert outcome(nested, number) == expected, f"{number} is traced by an outer function"
            with rlx.eager():
                assert outcome(traced, number) == expected, f"{number} is eager"


def test_numbers_of_derivatives_have_to_fit() -> None:
    scaled = rlx.jit(lambda x, n: (x * n).sum()).grad()
    x = np.ones(2, np.float16)
    assert scaled(x, 2.0).tolist() == [2, 2]
    g = rlx.Graph("outer")
    for call in (lambda: scaled(x, 1e6), lambda: scaled(g.input("x", (2,), "f16"), 1e6)):
        with pytest.raises(rlx.Error, match=r"argument 'n': .*does not fit f16"):
            call()
    with rlx.eager(), pytest.raises(rlx.Error, match=r"argument 'n': .*does not fit f16"):
        scaled(x, 1e6)


def test_numbers_are_passed_in_each_call() -> None:
    for scale in (0.5, 0.25):
        np.testing.assert_allclose(layer(PARAMS, X, scale)["result"].hidden, expected(X, scale), rtol=1e-5)


def test_calls_nest() -> None:
    @rlx.jit
    def twice(params, x):
        first = layer(params, x, kind="relu")["result"].hidden
        return first + layer({"w": PARAMS["w"], "b": [1.0]}, x)["result"].hidden

    g = rlx.Graph("outer")
    x = g.input("x", ("batch", 4))
    g.set_outputs([twice(PARAMS, x)])  # arrays are constants of the graph
    want = 2 * np.maximum(X @ PARAMS["w"] + 1, 0) + expected(X)
    np.testing.assert_allclose(rlx.evaluate(g, {"x": X})[0], want, rtol=1e-5)
    assert "layer" in g.text(locations=True)


def test_derivatives_against_jax() -> None:
    import jax
    import jax.numpy as jnp

    @rlx.jit(threads=1)
    def loss(params, x, scale):
        hidden = layer(params, x, scale)["result"].hidden
        return rlx.ops.mean(hidden**2), {"hidden": hidden}

    def of_jax(params, x, scale):
        return jnp.mean((jnp.tanh(x @ params["w"] + params["b"][0]) * scale) ** 2)

    (value, aux), gradients = loss.value_and_grad(("params", "scale"))(PARAMS, X, 0.5)
    want, slopes = jax.value_and_grad(of_jax, argnums=(0, 2))(PARAMS, X, 0.5)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    np.testing.assert_allclose(aux["hidden"], expected(X, 0.5), rtol=1e-5)
    assert gradients[0]["b"][1] is None
    np.testing.assert_allclose(gradients[0]["w"], slopes[0]["w"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradients[0]["b"][0], slopes[0]["b"][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradients[1], slopes[1], rtol=1e-4)

    g = rlx.Graph("outer")  # call the derivative from a graph
    slope = loss.grad("x")(PARAMS, g.input("x", (5, 4)), 0.5)
    g.set_outputs([slope])
    np.testing.assert_allclose(
        rlx.evaluate(g, {"x": X})[0], jax.grad(of_jax, argnums=1)(PARAMS, X, 0.5), rtol=1e-4, atol=1e-6
    )


def test_static_arguments_that_compute_differently_are_traced_apart() -> None:
    angle = rlx.jit(lambda y, x: rlx.ops.atan2(y, x[0]), static="x")
    for zero in (0.0, -0.0, 0):
        assert angle(np.float32(0), (zero,)) == np.arctan2(np.float32(0), zero)
    assert angle.num_traces == 3
    assert angle(np.float32(0), (-0.0,)) > 3 and angle.num_traces == 3


def test_derivatives_of_derivatives_against_jax() -> None:
    import jax

    cubic = rlx.jit(lambda x, y: x**3 * y**2)
    x, y = np.float32(3), np.float32(0.5)
    assert cubic.grad()(x, y) == 3 * 9 / 4
    assert cubic.grad().grad()(x, y) == 6 * 3 / 4
    assert cubic.grad().grad().grad()(x, y) == 6 / 4
    assert cubic.grad("x").grad("y")(x, y) == 2 * 27 / 2
    with rlx.eager():
        assert cubic.grad().grad()(x, y) == 6 * 3 / 4

    def of_jax(x, y):
        return jax.grad(lambda x, y: x**3 * y**2)(x, y), x * y

    # The value is the first leaf of ((value, slope), slopes), and the slope that of (slope, product).
    (value, slope), slopes = cubic.value_and_grad().value_and_grad(("x", "y"))(x, y)
    np.testing.assert_allclose([value, slope], [27 / 4, 27 / 4])
    np.testing.assert_allclose(slopes, [27 / 4, 27], rtol=1e-6)
    outer = rlx.jit(lambda x, y: (cubic.grad()(x, y), x * y))
    got, want = outer.value_and_grad(("y",))(x, y), jax.value_and_grad(of_jax, argnums=(1,), has_aux=True)(x, y)
    np.testing.assert_allclose(flatten(got)[0], jax.tree.leaves(want), rtol=1e-6)


@rlx.jit
def branches(x, n=1, *more, **named):
    return x if x.sum() > 0 else -x


@rlx.jit
def wrong(x, what="param"):
    return {"text": "abc"} if what is None else x.builder.param("w", (2,))


class Scaler:
    @rlx.jit(static="self")
    def scaled(self, x):
        return x * 2


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: branches(X), r"test_jit.py:\d+: .*Python cannot branch on it\n.*rlx.ops.where.*if_.*static argument.*rlx.eager"),
    (lambda: rlx.jit(lambda x, n: [x] * range(n)[0])(X, 3), r"test_jit.py:\d+: .*has no value .* no Python number\n.*static"),
    (lambda: rlx.jit(lambda x: [1, 2][x.max()])(X), r"test_jit.py:\d+: .*so it is no Python number"),
    (lambda: rlx.jit(lambda x: x.sum().item())(X), r"test_jit.py:\d+: .*so it is no Python number"),
    (lambda: branches(), "jit function 'branches': missing a required argument: 'x'"),
    (lambda: branches(X, "a"), r"argument 'n' is neither an array nor a number, but an object of str\n.*static=\"n\""),
    (lambda: branches(X, 1, [{"a": print}]), r"argument 'more\[0\]\[0\]\[\"a\"\]' is neither"),
    (lambda: branches(X, mode="a"), r"argument 'named\[\"mode\"\]' is neither"),
    (lambda: branches(np.array([None])), "argument 'x': .*object"),
    (lambda: branches(2**70), "argument 'x': the integer needs more than 64 bits"),
    (lambda: wrong(X), r"test_jit.py:\d+: param 'w' cannot be declared in a function under rlx.jit"),
    (lambda: wrong(X, None), r"test_jit.py:\d+: jit function 'wrong' returned an object of str as out\[\"text\"\]"),
    (lambda: layer(PARAMS, X, kind=[]), "static argument 'kind' must be hashable, got list"),
    (lambda: rlx.jit(3),  # type: ignore[arg-type]
     "rlx.jit takes a function of tensors, got 3"),
    (lambda: rlx.jit(lambda x: x, static="y"), "static= takes names of arguments, got 'y'; the function has x"),
    (lambda: rlx.jit(lambda x: x, static=0),  # type: ignore[arg-type]
     "static= takes names of arguments, got 0"),
    (lambda: rlx.jit(lambda x: x, device="gpuu"), "gpuu"),
    (lambda: rlx.grad(layer, ["x"]), r"expected a Graph .*got Jit\n  hint: f.grad\(…\)"),
    (lambda: rlx.jit(rlx.nn.Linear(4, 2))(X), "module Linear.*cannot be declared.*\n.*module.apply"),
    (lambda: layer.grad(0), "wrt must be a name or a list of names, got 0"),
    (lambda: layer.grad("z"), "wrt names .*'z'.*; it takes params, x, scale"),
    (lambda: layer.grad()(PARAMS, X), r"test_jit.py:\d+: .* must return a loss first, .*got f32\[5, 3\]"),
    (lambda: rlx.jit(lambda x, n: (x.sum(), n)).grad("n")(X, 3), "wrt: argument 'n' is a Python int"),
    (lambda: rlx.jit(lambda x: (x * x).sum()).grad().grad()(X), "the gradient of jit function .* must return a loss first"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_explained(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()


def test_without_tensors_nothing_is_compiled_and_methods_are_functions() -> None:
    assert rlx.jit(lambda x: None)(X) is None
    assert rlx.jit(functools.partial(lambda x, n: x, n=2)).graph_for(X).name == "<lambda>"
    scaler = Scaler()
    assert Scaler.scaled.graph_for(scaler, X).outputs[0].shape == (5, 4)
