"""Weights computed once: the outlined function and its reader together give the results of the graph."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op.signature import bodies, prepares
from rlx.runtime.program import Program
from tests.drawing import drawn, graph_seed
from tests.growth import check_linear


def _random_layers(seed: int, *, layers: int = 3) -> rlx.Graph:
    """Return products with weights computed from parameters in many ways, some of them used elsewhere too."""
    choose = random.Random(seed)
    g: Any = rlx.Graph("main")
    x = g.input("x", (2, 4))
    weights: list[Any] = []

    def weight() -> Any:
        if weights and choose.random() < 0.3:
            return choose.choice(weights)
        return g.param(f"w{len(g.params)}", (4, 4))

    makers = [
        lambda: g.transpose(weight()),
        lambda: g.concat([g.narrow(weight(), 1, 0, 2), g.narrow(weight(), 1, 1, 2)], 1),
        lambda: g.cast(g.cast(weight(), "f16"), "f32"),
        lambda: g.cast(g.param(f"w{len(g.params)}", (4, 4), "i8"), "f32") * 0.1,
        lambda: weight() @ weight() + weight(),
        lambda: g.expand(g.reshape(g.sum(weight(), 0), (1, 4)), (4, 4)) * g.constant(np.full((4, 1), 0.5, np.float32)),
        lambda: weight() / (1.0 + g.sqrt(g.sum(weight() * weight(), 0, keep_dims=True))),
        weight,
    ]
    for _ in range(layers):
        weights.append(choose.choice(makers)())
        x = g.tanh(x @ weights[-1]) + g.sum(choose.choice(weights))
    g.set_outputs([x, choose.choice(weights)])
    return g


def _values(graph: rlx.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {a.name: rng.uniform(-2, 2, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}


@drawn("number", range(40), of_each=3)
@pytest.mark.parametrize("growth", [1, 2, 8])
def test_both_functions_give_what_the_graph_gave(number: int, growth: int, seed: int) -> None:
    graph = _random_layers(graph_seed(seed, number))
    values = _values(graph)
    expected = rlx.evaluate(graph, values)
    result = rlx.passes.run(graph, f"rlx-outline-weights{{growth={growth}}}")
    for function in filter(prepares, bodies(result.module)):
        weights = rlx.Graph.from_module(result.module, function.name.value)
        given = rlx.evaluate(weights, {a.name: values[a.name] for a in weights.arguments})
        values |= dict(zip([o.name for o in weights.outputs], given, strict=True))
        assert str(rlx.passes.run(result, f"rlx-outline-weights{{growth={growth}}}")) == str(result)
    got = rlx.evaluate(result, {a.name: values[a.name] for a in result.arguments})
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_it_is_linear_in_the_number_of_ops() -> None:
    def work(count: int) -> Any:
        graph = _random_layers(1, layers=count)
        return lambda: rlx.passes.run(graph, "rlx-outline-weights", verify_each=False)

    check_linear(work)


def _joined(rows: Any) -> rlx.Graph:
    g: Any = rlx.Graph("joined")
    x = g.input("x", (rows, 4))
    a, b = g.param("a", (4, 2)), g.param("b", (4, 2))
    total = g.state("total", (4,))
    g.update(total, total + g.sum(b))
    y = x @ g.concat([a, b], 1) + total
    g.set_outputs([g.softmax(y @ (a @ g.transpose(b))), g.tanh(b)])
    return g


@drawn("device", ["cpu", "xla"])
@pytest.mark.parametrize("rows", [3, "rows"])
def test_programs_compute_weights_when_they_are_loaded(device: str, rows: Any, tmp_path: Any) -> None:
    """Also after other parameters are set, with symbols, and from a file."""
    if device == "xla":
        pytest.importorskip("jax")
    graph = _joined(rows)
    compiled = rlx.Session(device, threads=1).compile(graph, cache=False)
    compiled.save(tmp_path / "joined.rlxa")
    for program in (compiled, rlx.load(tmp_path / "joined.rlxa", threads=1)):
        for scale in (1.0, -0.5):
            values = {n: v * np.float32(scale) for n, v in _values(_joined(3)).items()}
            program.set_params({n: values[n] for n in "ab"})
            program.reset_state()
            for got, expected in zip(
                program.run({"x": values["x"]}),
                rlx.evaluate(graph, values | {"total": np.zeros(4, np.float32)}),
                strict=True,
            ):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(program.state("total"), np.full(4, values["b"].sum()), rtol=1e-5)


def test_a_program_of_xla_does_not_compute_weights_in_a_call() -> None:
    """The called program takes the joined weights and their product, and `b` for its other reader."""
    pytest.importorskip("jax")
    compiled = rlx.Session("xla").compile(_joined(3), cache=False)
    assert compiled.artifact.info["arguments"] == ["x", "total"]
    assert compiled.artifact.info["prepared"] == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [{"arguments": ["total", "x"]}, {"arguments": ["x"]}, {"arguments": ["x", "total", "a"]}, {"prepared": ["x"]}],
    ids=str,
)
def test_a_program_of_xla_that_is_not_described_is_refused(change: dict[str, list[str]]) -> None:
    pytest.importorskip("jax")
    artifact = rlx.Session("xla").compile(_joined(3), cache=False).artifact
    values = _values(_joined(3)) | {"b": np.zeros((4, 2), np.float32)}
    other = Program(replace(artifact, info=artifact.info | change))
    other.set_params({n: values[n] for n in "ab"})
    with pytest.raises(rlx.ExecutionError, match="another one than the artifact describes"):
        other.load()


def test_the_name_of_what_a_function_prepares_is_text() -> None:
    with pytest.raises(rlx.Error, match=r"'rlx[.]prepares' is a string"):
        rlx.parse("func.func @f() attributes {rlx.prepares = 3 : i32} {\n  return\n}")


def test_values_that_depend_on_open_sizes_stay() -> None:
    g: Any = rlx.Graph("main")
    table, x = g.param("table", (10, 4)), g.input("x", ("past", 4))
    past = x.shape.dims[0]
    rows = g.embedding(table, g.arange(past, past + 1) + 1)  # static, but not the same in every run
    g.set_outputs([g.sum(x, 0, keep_dims=True) + rows + g.narrow(table, 0, past, 1)])
    values = {"table": np.arange(40, dtype=np.float32).reshape(10, 4), "x": np.ones((3, 4), np.float32)}
    program = rlx.Session().compile(g, params={"table": values["table"]})
    for length in (3, 5):
        given = {"x": np.ones((length, 4), np.float32)}
        expected = length + values["table"][length + 1] + values["table"][length]
        np.testing.assert_array_equal(program.run(given)[0][0], expected)
