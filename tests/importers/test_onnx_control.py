"""Loops, with ONNX Runtime as the reference: known and unknown conditions, nested graphs, and loops without steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import rlx
from tests.importers.onnx_models import model, node
from tests.importers.test_onnx_contrib import check, run_by_onnxruntime

CONSTANTS: dict[str, Any] = {
    "zero": np.array(0, np.int64),
    "one": np.float32(1),
    "ten": np.array(10, np.int64),
    "four": np.float32(4),
    "yes": np.array(True),
    "no": np.array(False),
}


def graph(nodes: list[Any], results: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> Any:
    """Return a graph in a node. Its floats have any shape, all other values are scalars."""
    read, given = (
        [helper.make_tensor_value_info(n, t, None if t == TensorProto.FLOAT else ()) for n, t in d.items()]
        for d in (inputs or {}, results)
    )
    return helper.make_graph(nodes, "inner", read, given)


def body(nodes: list[Any], *stacked: str) -> Any:
    """Return the body of a loop that carries `v`, and whose condition is `again`."""
    inputs = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT}
    results = {"again": TensorProto.BOOL, "w": TensorProto.FLOAT, **dict.fromkeys(stacked, TensorProto.FLOAT)}
    return graph([node("Add", ["v", "one"], ["w"]), *nodes], results, inputs)


def below(depth: int, name: str) -> Any:
    """Whether the largest element is below a limit, computed in nested graphs of this depth."""
    if not depth:
        return node("Less", ["top", "four"], [name])
    inner = {kind: f"{name}_{kind}" for kind in ("then", "else")}
    branches = {f"{k}_branch": graph([below(depth - 1, n)], {n: TensorProto.BOOL}) for k, n in inner.items()}
    return node("If", ["yes"], [name], **branches)


CONDITIONS: dict[str, list[Any]] = {
    "a size": [node("Size", ["x"], ["size"]), node("Less", ["size", "ten"], ["again"])],
    "a shape": [
        node("Shape", ["w"], ["shape"]),
        node("ReduceMax", ["shape"], ["most"], keepdims=0),
        node("Less", ["most", "ten"], ["again"]),
    ],
    "weights": [node("Mul", ["one", "four"], ["p"]), node("Less", ["one", "p"], ["again"])],
    "the condition before": [node("Identity", ["c"], ["again"])],
    **{f"graphs, {depth} deep": [below(depth, "again")] for depth in range(4)},
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_loop_goes_on_as_long_as_its_condition_holds(condition: str) -> None:
    largest = node("ReduceMax", ["w"], ["top"], keepdims=0)
    loop = node("Loop", ["ids_most", "yes", "x"], ["y"], body=body([largest, *CONDITIONS[condition]]))
    for most, rows in (([], "n"), (None, "n"), (None, 3)):
        inputs = {"x": [rows]} if most is None else {"ids_most": most, "x": [rows]}
        constants = {**CONSTANTS, "ids_most": np.array(5, np.int64)} if most is None else CONSTANTS
        data = model([loop], inputs, ["y"], constants)
        g = rlx.from_onnx(data)
        for size in (3, 12) if rows == "n" else (3,):
            for count in (0, 1, 5) if most is not None else (5,):
                given: dict[str, Any] = {"x": np.arange(size, dtype=np.float32) / 10}
                if most is not None:
                    given["ids_most"] = np.array(count, np.int64)
                check(rlx.evaluate(g, given), run_by_onnxruntime(data, given))


def test_loops_within_loops_are_not_built_ever_more_often() -> None:
    """Their condition turns out to be unknown in the first step. After that, they must not be unrolled again."""

    def of(depth: int) -> Any:
        again, w, v = (f"{n}_{depth}" for n in ("again", "w", "v"))
        inner = node("Loop", ["twice", "yes", v], [w], body=of(depth - 1)) if depth else node("Add", [v, "one"], [w])
        nodes = [inner, node("Size", ["x"], [f"s_{depth}"]), node("Less", [f"s_{depth}", "ten"], [again])]
        inputs = {f"i_{depth}": TensorProto.INT64, f"c_{depth}": TensorProto.BOOL, v: TensorProto.FLOAT}
        return graph(nodes, {again: TensorProto.BOOL, w: TensorProto.FLOAT}, inputs)

    lengths: list[int] = []
    constants, given = {**CONSTANTS, "twice": np.array(2, np.int64)}, {"x": np.zeros(3, np.float32)}
    for depth in (4, 8):
        data = model([node("Loop", ["twice", "yes", "x"], ["y"], body=of(depth))], {"x": ["n"]}, ["y"], constants)
        g = rlx.from_onnx(data)
        lengths.append(len(str(g)))
        check(rlx.evaluate(g, given), run_by_onnxruntime(data, given))
    assert lengths[1] < 6 * lengths[0]


@pytest.mark.parametrize(("most", "condition"), [("zero", "yes"), ("five", "no"), ("", "no")])
def test_a_loop_of_no_steps_stacks_no_rows(most: str, condition: str) -> None:
    nodes = [
        node("Identity", ["c"], ["again"]),
        node("ReduceSum", ["w", "axis"], ["sums"], keepdims=0),
        node("Transpose", ["w"], ["turned"]),
        node("Identity", ["w"], ["rows"]),
    ]
    constants = {**CONSTANTS, "axis": np.array([1]), "five": np.array(5, np.int64), "once": np.array(1, np.int64)}
    results, x = ["y", "sums_of", "turned_of", "rows_of"], np.ones((2, 3), np.float32)

    def of(*operands: str, rows: Any = 2) -> bytes:
        loop = node("Loop", [*operands, "x"], results, body=body(nodes, "sums", "turned", "rows"))
        return model([loop], {"x": [rows, 3]}, results, constants)

    # ONNX Runtime returns 0 for sizes that it has not inferred. Compare with the shapes of one step.
    _, *stacked = run_by_onnxruntime(of("once", "yes"), {"x": x})
    for rows in (2, "n"):
        carried, *got = rlx.evaluate(rlx.from_onnx(of(most, condition, rows=rows)), {"x": x})
        np.testing.assert_array_equal(carried, x)
        assert [(a.dtype, a.shape) for a in got] == [(a.dtype, (0, *a.shape[1:])) for a in stacked]


def test_ops_of_loops_and_branches_have_the_place_of_their_node() -> None:
    loop = node("Loop", ["ids_most", "yes", "x"], ["a"], name="steps", body=body([below(0, "again")]))
    loop.attribute[0].g.node.insert(1, node("ReduceMax", ["w"], ["top"], keepdims=0))
    branches = {
        f"{k}_branch": graph([node(op, ["a"], ["r"])], {"r": TensorProto.FLOAT})
        for k, op in (("then", "Relu"), ("else", "Abs"))
    }
    choice = node("If", ["c"], ["y"], name="choice", **branches)
    compared = node("Equal", ["ids_most", "zero"], ["c"])
    g = rlx.from_onnx(model([loop, compared, choice], {"ids_most": [], "x": [3]}, ["y"], CONSTANTS))
    places = {op.operation.name: str(op.operation.location) for op in g.function.entry_block.operations}
    assert "<bytes>:steps" in places["rlx.while"]
    assert "<bytes>:choice" in places["rlx.if"]


STEPS = 501
# The nodes for the condition `again` of a long loop, by its number of steps.
LONG: dict[str, tuple[int, list[Any]]] = {
    "always": (STEPS, [node("Identity", ["c"], ["again"])]),
    "a constant": (STEPS, [node("Cast", ["ten"], ["again"], to=TensorProto.BOOL)]),
    "the number of the step": (
        40,
        [node("Add", ["i", "ten"], ["next"]), node("Less", ["next", "limit"], ["again"])],
    ),
    "two conditions": (
        40,
        [
            node("Add", ["i", "ten"], ["next"]),
            node("Less", ["next", "limit"], ["below"]),
            node("And", ["below", "c"], ["again"]),
        ],
    ),
}


def long_loop(nodes: list[Any], results: list[str], shape: list[Any], *, go_on: str = "yes", **more: Any) -> bytes:
    """Return a model with a loop of at most 501 steps, that carries `v` from `x`, of these sizes."""
    constants = {**CONSTANTS, "most": np.array(STEPS, np.int64), "limit": np.array(49, np.int64), **more}
    loop = node("Loop", ["most", go_on, "x"], results, body=body(nodes, *(f"row{i}" for i in range(len(results) - 1))))
    return model([loop], {"x": shape}, results, constants)


@pytest.mark.parametrize("condition", LONG)
def test_a_long_loop_is_a_scan(condition: str) -> None:
    """The graph does not grow with the number of steps. The condition alone is evaluated for each step."""
    steps, nodes = LONG[condition]
    data = long_loop([*nodes, node("Cos", ["w"], ["row0"])], ["y", "rows"], [2, 3])
    g = rlx.from_onnx(data)
    assert str(g).count("rlx.scan") == 1 and len(str(g).splitlines()) < 30
    given = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    found = rlx.evaluate(g, given)
    assert found[1].shape == (steps, 2, 3)
    check(found, run_by_onnxruntime(data, given))


def test_a_long_loop_whose_carries_grow_is_unrolled() -> None:
    nodes = [
        node("Identity", ["c"], ["again"]),
        node("Cos", ["v"], ["turned"]),
    ]
    inputs = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT}
    grown = graph(
        [*nodes, node("Slice", ["turned", "first", "second"], ["row"]), node("Concat", ["v", "row"], ["w"], axis=0)],
        {"again": TensorProto.BOOL, "w": TensorProto.FLOAT},
        inputs,
    )
    constants = {**CONSTANTS, "most": np.array(40, np.int64), "first": np.array([0]), "second": np.array([1])}
    data = model([node("Loop", ["most", "yes", "x"], ["y"], body=grown)], {"x": [1, 2]}, ["y"], constants)
    given = {"x": np.array([[0.5, -2]], np.float32)}
    g = rlx.from_onnx(data)
    assert g.outputs[0].shape == (41, 2)
    check(rlx.evaluate(g, given), run_by_onnxruntime(data, given))


def test_the_last_value_of_a_counter_is_known_after_a_long_loop() -> None:
    """It may be a size."""
    inputs = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT, "k": TensorProto.INT64}
    counted = graph(
        [
            node("Add", ["v", "one"], ["w"]),
            node("Add", ["k", "two"], ["more"]),
            node("Less", ["more", "limit"], ["again"]),
        ],
        {"again": TensorProto.BOOL, "w": TensorProto.FLOAT, "more": TensorProto.INT64},
        inputs,
    )
    constants = {**CONSTANTS, "two": np.array(2), "limit": np.array(80), "axes": np.array([0])}
    nodes = [
        node("Loop", ["most", "yes", "x", "zero"], ["y", "last"], body=counted),
        node("Unsqueeze", ["last", "axes"], ["size"]),
        node("Expand", ["y", "size"], ["z"]),
    ]
    data = model(nodes, {"x": [1]}, ["z"], {**constants, "most": np.array(STEPS)})
    given = {"x": np.array([0.5], np.float32)}
    g = rlx.from_onnx(data)
    assert g.outputs[0].shape == (80,) and "rlx.scan" in str(g)
    check(rlx.evaluate(g, given), run_by_onnxruntime(data, given))


def test_a_long_loop_that_does_not_begin() -> None:
    nodes = [node("Identity", ["c"], ["again"])]
    given = {"x": np.ones((2, 3), np.float32)}
    for shape in ([2, 3], ["n", 3]):
        data = long_loop(nodes, ["y"], shape, go_on="no")
        check(rlx.evaluate(rlx.from_onnx(data), given), run_by_onnxruntime(data, given))
