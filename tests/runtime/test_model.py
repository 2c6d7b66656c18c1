"""`@rlx.model`: tracing, calling, static arguments, containers, methods, copies, annotations."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx


@rlx.model
def mlp(x: rlx.Input("batch", 6), w: rlx.Param(6, 4), *, temperature: float = 1.0):
    """A layer."""
    return rlx.ops.softmax((x @ w) / temperature, axis=-1)


@pytest.fixture
def arrays() -> Any:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(s).astype(np.float32) for s in ((3, 6), (6, 4))]


def _expected(x: np.ndarray, w: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scores = np.exp(x @ w / temperature)
    return scores / scores.sum(-1, keepdims=True)


def test_graph_is_a_graph() -> None:
    assert [a.name for a in mlp.graph.arguments] == ["x", "w"]
    assert mlp.graph.arguments[0].shape == ("batch", 6)
    assert mlp.__doc__ == "A layer."
    mlp.graph.verify()


def test_calls_and_sees_changed_weights(arrays: Any) -> None:
    x, w = arrays
    np.testing.assert_allclose(mlp(x, w=w), _expected(x, w), rtol=1e-5)
    np.testing.assert_allclose(mlp(x[:1], w), _expected(x[:1], w), rtol=1e-5)
    w *= 2  # in place: the same object with other contents
    np.testing.assert_allclose(mlp(x, w), _expected(x, w), rtol=1e-5)


def test_static_arguments_make_another_trace(arrays: Any) -> None:
    x, w = arrays
    np.testing.assert_allclose(mlp(x, w, temperature=3.0), _expected(x, w, 3.0), rtol=1e-5)
    with pytest.raises(rlx.Error, match="'temperature' must be hashable, got ndarray"):
        mlp(x, w, temperature=np.ones(3))


def test_models_nest(arrays: Any) -> None:
    g = rlx.Graph("outer")
    x, w = g.input("x", (3, 6)), g.param("w", (6, 4))
    g.set_outputs([mlp(x, w) * 2.0])
    np.testing.assert_allclose(
        rlx.evaluate(g, dict(zip("xw", arrays, strict=True)))[0], 2 * _expected(*arrays), rtol=1e-5
    )


def test_mistakes_are_explained(arrays: Any) -> None:
    x, w = arrays
    with pytest.raises(rlx.Error, match="missing a required argument: 'w'"):
        mlp(x)
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[batch, 6\]"):
        mlp(x[:, :5], w)

    @rlx.model
    def nothing(x):
        return x

    with pytest.raises(rlx.Error, match="no tensor argument"):
        nothing(x)

    @rlx.model
    def branches(x: rlx.Input(2)):
        return x if x > 0 else -x

    with pytest.raises(rlx.Error, match="Python cannot branch on it"):
        branches(np.ones(2, np.float32))

    @rlx.model
    def number(x: rlx.Input(2)):
        return 3

    with pytest.raises(rlx.Error, match="must return tensors"):
        number(np.ones(2, np.float32))


@dataclass
class Hidden:
    value: Any
    count: Any = 3


class Pair(NamedTuple):
    first: Any
    second: Any


RESULTS: list[tuple[Callable[[Any], Any], list[str]]] = [
    (lambda x: x, ["output0"]),
    (lambda x: [x, (x,)], ["output0", "output1[0]"]),
    (lambda x: {"y": x, "more": {"a": x, "b": [x, 2.0, None]}}, ["y", 'more["a"]', 'more["b"][0]', 'more["b"][1]']),
    (lambda x: Pair(x, Hidden(x)), ["first", "second.value", "second.count"]),
    (lambda x: {"y": {"a": x}, 'y["a"]': x}, ['out["y"]["a"]', 'out["y[\\"a\\"]"]']),
]


@pytest.mark.parametrize(("function", "names"), RESULTS)
def test_results_keep_their_containers(function: Callable[[Any], Any], names: list[str]) -> None:
    def tripled(x: rlx.Input("n")):
        return function(x * 3)

    traced = rlx.model(tripled)
    assert [o.name for o in traced.graph.outputs] == names
    x = np.arange(2, dtype=np.float32)
    compiled, expected = traced(x), rlx.jit(tripled)(x)
    with rlx.eager():
        eager = traced(x)
    assert repr(compiled) == repr(expected) == repr(eager)


class Scaler:
    def __init__(self, factor: float):
        self.factor = factor

    @rlx.model
    def scaled(self, x: rlx.Input("n"), w: rlx.Param()):
        return x * w * self.factor


def test_methods_are_models() -> None:
    x = np.ones(2, np.float32)
    double, triple = Scaler(2.0), Scaler(3.0)
    assert double.scaled(x, 0.5).tolist() == [1, 1] and triple.scaled(x, 0.5).tolist() == [1.5, 1.5]
    assert Scaler.scaled(double, x, 0.5).tolist() == [1, 1]
    assert Scaler.scaled.num_traces == 2
    with pytest.raises(rlx.Error, match="model 'scaled' needs a value for self"):
        _ = Scaler.scaled.graph
    assert Scaler.scaled.graph_for(double, x, 0.5).inputs[0].shape == ("n",)


def unnamed(x: rlx.Input(2)):
    return x * 2


@pytest.mark.parametrize("copied", [lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy])
def test_copies(copied: Callable[[Any], Any]) -> None:
    assert copied(mlp) is mlp
    other = copied(rlx.model(unnamed))
    assert other.graph.text() == rlx.model(unnamed).graph.text()


def test_tensors_at_their_defaults_are_left_out() -> None:
    @rlx.model
    def layer(x: rlx.Input("n"), bias: rlx.Param() = None, *more: float, scale: float = 1.0, **options: float):
        return (x if bias is None else x + bias) * (scale + sum(more))

    x = np.ones(2, np.float32)
    assert layer(x).tolist() == [1, 1] and layer(x, 2.0).tolist() == [3, 3]
    assert layer(x, 2.0, 3.0, scale=0.0).tolist() == [9, 9]
    assert [a.name for a in layer.graph.arguments] == ["x", "bias"]
    assert layer.compiled(scale=2.0).inputs[0].name == "x" and layer.num_traces == 4
    partial = rlx.model(functools.partial(layer._function, scale=5.0))
    assert partial(x).tolist() == [5, 5]


def test_tensors_of_a_graph_are_checked(arrays: Any) -> None:
    @rlx.model
    def joined(x: rlx.Input("n", "m"), y: rlx.Input("2*n", "m"), scale: rlx.Input(dtype="f64")):
        return rlx.ops.concat([x, y], axis=0) * scale

    def shapes(x: Any, y: Any, scale: Any = 0.5, dtype: Any = "f32") -> Any:
        g = rlx.Graph("outer")
        result = joined(g.input("x", x), g.input("y", y, dtype), scale)
        return result.shape

    assert shapes((2, 3), (4, 3)) == (6, 3)
    assert shapes(("k", 3), ("2*k", 3)) == ("3*k", 3) and shapes(("2*k", 1), ("4*k", 1)) == ("6*k", 1)
    for x, y, scale, dtype, message in (
        ((2, 3), (5, 3), 0.5, "f32", "input 'y' dimension 0"),
        ((2, 3), (4, 4), 0.5, "f32", "'m' is 3 by input 'x' dimension 1|dimension 1"),
        (("k", 3), ("k", 3), 0.5, "f32", r"input 'y' must be f32\[2\*k, 3\], got f32\[k, 3\]"),
        ((2, "k"), (4, 3), 0.5, "f32", r"input 'x' must be f32\[2, 3\], got f32\[2, k\]"),
        ((2,), (4, 3), 0.5, "f32", r"input 'x' must be f32\[n, m\], got f32\[2\]"),
        ((2, 3), (4, 3), 0.5, "f16", r"input 'y' must be f32\[2\*n, m\], got f16\[4, 3\]"),
        ((2, 3), (4, 3), np.ones(2), "f32", r"input 'scale' must be f64\[\], got float64\[2\]"),
    ):
        with pytest.raises(rlx.Error, match=f"test_model.py:\\d+: model 'joined': .*({message})"):
            shapes(x, y, scale, dtype)

    outer = rlx.jit(lambda x, scale: joined(x, np.ones((2, 2), np.float32), scale))
    assert outer(np.ones((1, 2), np.float32), 0.1).tolist() == np.full((3, 2), 0.1).tolist()


def _annotated(text: str, function: Callable[..., Any] = lambda x: x) -> Any:
    @functools.wraps(function)
    def annotated(x):
        return function(x)

    del annotated.__wrapped__
    annotated.__annotations__ = {"x": text}
    return rlx.model(annotated)


def _result(x: rlx.Input(2)) -> rlx.Input(2):
    return x


def _variadic(*xs: rlx.Input(2)):
    return xs


def _named(x: rlx.Input(2), **xs: rlx.Param(2)):
    return x


def _bare(x: rlx.Input):  # type: ignore[valid-type]  # pyright: ignore[reportGeneralTypeIssues]
    return x


TWO = np.ones(2, np.float32)
DECLARATIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: rlx.model(_result)(TWO), "its result cannot be annotated with rlx.Input"),
    (lambda: rlx.model(_variadic)(TWO), r"model '_variadic': '\*xs' cannot be annotated"),
    (lambda: rlx.model(_named)(TWO), r"'\*\*xs' cannot be annotated"),
    (lambda: rlx.model(_bare).graph, r"the annotation of 'x' lacks a shape\n  hint: x: rlx.Input\('batch', 784\)"),
    (lambda: _annotated("rlx.Input(size)").graph, r"test_model.py:\d+: .*cannot be evaluated: NameError: .*'size'"),
    (lambda: _annotated("rlx.Input(")(TWO), "cannot be evaluated: SyntaxError"),
    (lambda: _annotated("rlx.Inptu(2)")(TWO), "cannot be evaluated: AttributeError"),
    (lambda: _annotated("rlx.Input(-1)")(TWO), "cannot be evaluated: .*-1"),
    (lambda: mlp.compiled(temprature=2.0), "unexpected keyword argument 'temprature'\n  hint: .*temperature"),
    (lambda: mlp.compiled(x=TWO), "'x' is a tensor, no static argument"),
    (lambda: mlp(TWO, TWO, temprature=2.0), "model 'mlp': got an unexpected keyword argument 'temprature'"),
    (lambda: _annotated("rlx.Input(2)", lambda x: {"y": x, "text": "abc"})(TWO), r"returned an object of str as text"),
    (lambda: _annotated("rlx.Input(2)", lambda x: [])(TWO), "must return tensors .*got list"),
]


@pytest.mark.parametrize(("call", "message"), DECLARATIONS)
def test_wrong_declarations_are_explained(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()


def test_weights_are_set_only_when_they_change(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = arrays
    mlp(x, w)
    program, calls = mlp.compiled_for(x, w), []
    monkeypatch.setattr(program, "set_params", lambda *args, **options: calls.append(args))
    mlp(x + 1, w.copy())
    assert not calls
    mlp(x, w + 1)
    assert len(calls) == 1
    mlp.clear_cache()
