"""`rlx.from_onnx`: ONNX's own test cases on the evaluator and compiled, and the errors for unsupported models."""

from __future__ import annotations

import contextlib
import resource
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from tests.drawing import drawn
from tests.importers.onnx_nodes import cases, check, imported
from tools import onnx_coverage
from tools.generated import ROOT

# The number of ONNX's cases that are imported, all with correct results. Raise it if it grows.
IMPORTED = 1839
SHARES, COMPILED = 24, 6


def test_what_is_imported_is_right_and_all_else_is_refused() -> None:
    """No ONNX case gives a raw exception or a wrong number."""
    count, refused = 0, dict[str, str]()
    for case in cases():
        try:
            g = imported(case)
        except rlx.Error as problem:
            refused[case.name] = problem.message
            continue
        names = {i.name for i in g.inputs}
        try:
            check(case, rlx.evaluate(g, {n: v for n, v in case.inputs.items() if n in names}))
        except Exception as problem:
            problem.add_note(f"ONNX's case {case.name}")
            raise
        count += 1
    assert count >= IMPORTED
    stored = (ROOT / onnx_coverage.PAGE).read_text()
    if f"compared with ONNX {onnx.__version__}." in stored:  # other versions of ONNX have other cases
        assert stored == onnx_coverage.page(refused, len(cases())), "run `make docs`"


@drawn("share", range(SHARES))
def test_compiled(share: int) -> None:
    """The first imported models of a share, compiled for the CPU."""
    chosen: list[tuple[Any, Any]] = []
    for case in cases()[share::SHARES]:
        try:
            chosen.append((case, imported(case)))
        except rlx.Error:
            continue
    session = rlx.Session("cpu")
    for case, g in chosen[:COMPILED]:
        names = {i.name for i in g.inputs}
        check(case, session.compile(g).run({n: v for n, v in case.inputs.items() if n in names}))


def model(nodes: Any, inputs: Any, outputs: Any, initialisers: Any = (), opset: int = 21) -> bytes:
    """Return the bytes of a model of f32 tensors."""
    read, given = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in named.items()]
        for named in (inputs, outputs)
    )
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in dict(initialisers).items()]
    graph = helper.make_graph(nodes, "g", read, given, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()


W = np.arange(12, dtype=np.float32).reshape(4, 3)
LAYER = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]


def test_initialisers_are_parameters_and_open_sizes_are_symbols() -> None:
    data = model(LAYER, {"x": ["batch", 4]}, {"y": ["batch", 3]}, {"w": W})
    x = np.ones((2, 4), np.float32)
    for g in (rlx.from_onnx(data), rlx.from_onnx(data, sizes={"batch": 2})):
        assert [i.name for i in g.inputs] == ["x"] and [o.name for o in g.outputs] == ["y"]
        assert list(g.weights) == ["w"]
        np.testing.assert_allclose(rlx.evaluate(g, {"x": x})[0], np.maximum(x @ W, 0))
        np.testing.assert_allclose(rlx.Session("cpu").compile(g).run({"x": x})[0], np.maximum(x @ W, 0))


def test_a_size_without_a_name_gets_one_that_the_model_does_not_have() -> None:
    add = helper.make_node("Add", ["z", "x"], ["y"])
    g = rlx.from_onnx(model([add], {"z": [None, 1], "x": [1, "z_dim0"]}, {"y": [None, None]}))
    assert [str(i.shape) for i in g.inputs] == ["f32[z_dim0_2, 1]", "f32[1, z_dim0]"]
    z, x = np.ones((3, 1), np.float32), np.ones((1, 4), np.float32)
    assert rlx.evaluate(g, {"z": z, "x": x})[0].shape == (3, 4)


def test_an_initialiser_is_given_once() -> None:
    message = onnx.ModelProto.FromString(model(LAYER, {"x": ["batch", 4]}, {"y": ["batch", 3]}, {"w": W}))
    message.graph.initializer.append(message.graph.initializer[0])
    with pytest.raises(rlx.ParseError, match="two initialisers are called 'w'"):
        rlx.from_onnx(message.SerializeToString())


def test_ops_without_a_rule_are_listed_together() -> None:
    nodes = [helper.make_node("Foo", ["x"], ["a"], name="first"), helper.make_node("Foo", ["a"], ["y"])]
    with pytest.raises(rlx.UnsupportedError, match=r"<bytes>:first: Foo, 2 in all"):
        rlx.from_onnx(model(nodes, {"x": [2]}, {"y": [2]}))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([helper.make_node("Relu", ["gone"], ["y"])], "is 'gone', which nothing before it gives"),
        ([helper.make_node("Relu", ["x", "x"], ["y"])], "Relu"),
        ([helper.make_node("Transpose", ["x"], ["y"], perm=[5])], "Transpose"),
        ([helper.make_node("Softmax", ["x"], ["y"], axis="no")], "Softmax"),
        ([helper.make_node("Concat", ["x"], ["y"], axis=7)], "Concat"),
        ([helper.make_node("Relu", ["x"], ["other"])], "output 'y'"),
        ([helper.make_node("Reshape", ["x", "x"], ["y"])], "shape"),
        (
            [helper.make_node(op, ["x"], ["y"]) for op in ("Relu", "Tanh")],
            "Tanh gives 'y', which has been given before",
        ),
        ([helper.make_node("Relu", ["x"], ["x"])], "Relu gives 'x', which has been given before"),
        ([helper.make_node("Split", ["x"], ["y", "y"], num_outputs=2)], "Split gives 'y', which has been given before"),
    ],
)
def test_what_is_not_onnx_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(rlx.Error) as caught:
        rlx.from_onnx(model(nodes, {"x": [2]}, {"y": [2]}))
    assert message in str(caught.value)


def test_constants_are_held_to_their_inputs() -> None:
    data = model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": [2, "n"]}, {"y": None})
    for value in ([[1, 2], [3, 4]], np.ones((2, 3), np.float32)):
        (got,) = rlx.evaluate(rlx.from_onnx(data, constants={"x": value}), {})
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, 2 * np.asarray(value))
    for wrong in (
        np.ones(2, np.float32),
        np.ones((3, 2), np.float32),
        np.ones((2, 2)),
        np.ones((2, 2), np.int32),
        [1, 2],
    ):
        with pytest.raises(rlx.ShapeError, match=r"constants: expected \[2, n\] of float32 for input 'x'"):
            rlx.from_onnx(data, constants={"x": wrong})
    whole = helper.make_tensor_value_info("x", TensorProto.INT64, [2])
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [whole], [onnx.ValueInfoProto(name="y")])
    of_integers = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    for written in ([1, 2.5], [1, 1e30], [1, 2**70]):
        with pytest.raises(rlx.Error, match=r"constants: input 'x' is i64: .* does not fit i64"):
            rlx.from_onnx(of_integers, constants={"x": written})
    with pytest.raises(rlx.ShapeError, match=r"expected \[2, 4\]"):
        rlx.from_onnx(data, sizes={"n": 4}, constants={"x": np.ones((2, 3), np.float32)})


def test_sizes_and_constants_are_by_name() -> None:
    data = model(LAYER, {"x": ["batch", 4]}, {"y": None}, {"w": W})
    for given in ([1], "x", 3, [("batch", 1)]):
        for name in ("sizes", "constants"):
            arguments: dict[str, Any] = {name: given}
            with pytest.raises(rlx.Error, match=f"{name}: expected values by name"):
                rlx.from_onnx(data, **arguments)


def test_an_axis_without_elements_is_not_resized_to_some() -> None:
    for policy in ("stretch", "not_larger"):
        node = helper.make_node("Resize", ["x", "", "", "n"], ["y"], keep_aspect_ratio_policy=policy)
        data = model([node], {"x": [1, 0]}, {"y": None}, {"n": np.array([1, 4])})
        with pytest.raises(rlx.ShapeError, match="without elements"):
            rlx.from_onnx(data)
    for coordinates in ("half_pixel", "half_pixel_symmetric", "align_corners"):
        for size, wanted in ((0, 0), (3, 0)):
            node = helper.make_node("Resize", ["x", "", "", "n"], ["y"], coordinate_transformation_mode=coordinates)
            data = model([node], {"x": [1, size]}, {"y": None}, {"n": np.array([1, wanted])})
            assert rlx.from_onnx(data).outputs[0].shape.static == (1, 0)


def test_damaged_files_give_errors() -> None:
    """A model that is truncated or has a changed byte is imported or refused with an error."""
    data = model(LAYER, {"x": [2, 4]}, {"y": [2, 3]}, {"w": W})
    random = np.random.default_rng(3)
    broken = [data[:n] for n in range(len(data))]
    for _ in range(600):
        changed = bytearray(data)
        changed[random.integers(len(data))] = random.integers(256)
        broken.append(bytes(changed))
    refused = 0
    for case in broken:
        try:
            rlx.from_onnx(case)
        except rlx.Error:
            refused += 1
    assert refused > len(data) // 2


HUGE = np.array([10**12], np.int64)


@pytest.mark.parametrize(
    ("node", "initialisers"),
    [
        (helper.make_node("Split", ["x"], ["y"], num_outputs=10**12), {}),
        (helper.make_node("LRN", ["x"], ["y"], size=10**12), {}),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[10**9, 10**9]), {}),
        (helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[0, 0, 10**12, 10**12]), {}),
        (helper.make_node("Pad", ["x", "n"], ["y"], mode="reflect"), {"n": np.repeat(HUGE, 8)}),
        (helper.make_node("Resize", ["x", "", "", "n"], ["y"], mode="linear"), {"n": np.repeat(HUGE, 4)}),
        (
            helper.make_node("Resize", ["x", "", "s"], ["y"], antialias=1, mode="linear"),
            {"s": np.full(4, 1e-9, np.float32)},
        ),
        (helper.make_node("Range", ["z", "n", "o"], ["y"]), {"z": HUGE[0] * 0, "n": HUGE[0], "o": HUGE[0] * 0 + 1}),
        (helper.make_node("Tile", ["n", "n"], ["y"]), {"n": HUGE}),
        (helper.make_node("Expand", ["n", "n"], ["y"]), {"n": HUGE}),
        (helper.make_node("ConstantOfShape", ["n"], ["y"]), {"n": HUGE}),
        (helper.make_node("EyeLike", ["y"], ["z"], k=10**12), {}),
        (helper.make_node("GRU", ["x", "x", "x"], ["y"], hidden_size=10**12), {}),
        (
            helper.make_node(
                "TfIdfVectorizer",
                ["x"],
                ["y"],
                max_gram_length=1,
                max_skip_count=0,
                min_gram_length=1,
                mode="TF",
                ngram_counts=[0],
                ngram_indexes=[10**12],
                pool_int64s=[1],
            ),
            {},
        ),
    ],
)
def test_no_size_takes_memory_while_a_model_is_imported(node: Any, initialisers: Any) -> None:
    """The node is refused, or its result is computed at run time."""
    data = model([node], {"x": [1, 1, 4, 4]}, {"y": None}, initialisers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(rlx.Error):
        rlx.from_onnx(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # in kilobytes


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.bool_])
def test_constants_that_double_are_computed_up_to_a_size(kind: Any) -> None:
    nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
    g = rlx.from_onnx(model(nodes, {}, {"v40": [2**40]}, {"v0": np.ones(1, kind)}))
    assert g.outputs[0].shape.dims == (2**40,)
    assert len(str(g)) < 2**24


def test_an_output_that_is_listed_twice_is_given_twice() -> None:
    """The results equal those of ONNX Runtime, and each output has its own name."""
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    data = model(nodes, {"x": [2]}, {"y": [2]})
    message = onnx.load_from_string(data)
    message.graph.output.extend([message.graph.output[0], helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])])
    g = rlx.from_onnx(message.SerializeToString())
    assert [o.name for o in g.outputs] == ["y", "y.1", "x"]
    x = np.array([1, -2], np.float32)
    for found in (rlx.evaluate(g, {"x": x}), rlx.Session().compile(g).run({"x": x})):
        assert [a.tolist() for a in found] == [[-1, 2], [-1, 2], [1, -2]]
    gradient = rlx.vjp(g, wrt=["x"])
    cotangents = {f"cotangent_{o.name}": np.ones(2, np.float32) for o in g.outputs}
    assert rlx.evaluate(gradient, {"x": x, **cotangents})[-1].tolist() == [-1, -1]
