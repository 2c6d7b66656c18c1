"""Models of older ONNX versions, and of exporters that violate the standard: `rlx.from_onnx` compared with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from tests.importers.onnx_models import node
from tests.importers.test_onnx_contrib import run_by_onnxruntime

X = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)


def model(nodes: Any, inputs: dict[str, np.ndarray], outputs: Any, opset: int, weights: Any = ()) -> bytes:
    """Return the bytes of a model of arrays."""
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in inputs.items()}
    read = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in inputs.items()]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in dict(weights).items()]
    graph = helper.make_graph(nodes, "g", read, [onnx.ValueInfoProto(name=n) for n in outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def evaluated(nodes: Any, inputs: dict[str, np.ndarray], opset: int, outputs: Any = ("y",)) -> list[np.ndarray]:
    return rlx.evaluate(rlx.from_onnx(model(nodes, inputs, outputs, opset)), inputs)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("axis", "shape"), [(None, (4,)), (None, (3, 4)), (1, (3,)), (0, (2, 3)), (1, (3, 4)), (0, ())]
)
def test_operands_are_aligned_from_an_axis_on(opset: int, axis: int | None, shape: tuple[int, ...]) -> None:
    other = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    aligned = other if axis is None or not shape else other.reshape(*shape, *(1,) * (3 - axis - len(shape)))
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    for op, function in (("Add", np.add), ("Div", np.divide), ("Greater", np.greater)):
        notes: dict[str, Any] = {"consumed_inputs": [0, 0]} if opset == 1 and op != "Greater" else {}
        nodes = [node(op, ["x", "b"], ["y"], broadcast=1, **given, **notes)]
        (got,) = evaluated(nodes, {"x": X, "b": other}, opset)
        np.testing.assert_allclose(got, function(X, aligned), rtol=1e-6)


def test_an_axis_that_does_not_fit_is_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["y"], broadcast=1, axis=2)]
    with pytest.raises(rlx.UnsupportedError, match="Add from axis 2 on, of shapes"):
        rlx.from_onnx(model(nodes, {"x": X, "b": X[0]}, ["y"], 6))


def test_attributes_of_older_versions() -> None:
    slope = np.array([0.1, 0.2, 0.3], np.float32)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 2)), constant_values=5)
    cases: list[tuple[int, Any, Any]] = [
        (1, node("Reshape", ["x"], ["y"], shape=[4, 6], consumed_inputs=[0]), X.reshape(4, 6)),
        (1, node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 0, 0, 2], value=5.0), padded),
        (1, node("Cast", ["x"], ["y"], to="INT32"), X.astype(np.int32)),
        (1, node("Concat", ["x", "x"], ["y"]), np.concatenate([X, X], 1)),
        (6, node("PRelu", ["x", "slope"], ["y"]), np.where(X < 0, X * slope[:, None], X)),
        (6, node("Dropout", ["x"], ["y"], is_test=1, ratio=0.3), X),
        (7, node("Dropout", ["x"], ["y"], ratio=0.3), X),
    ]  # fmt: skip
    for opset, made, wanted in cases:
        inputs = {"x": X, "slope": slope} if "slope" in made.input else {"x": X}
        (got,) = evaluated([made], inputs, opset)
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_mask_has_the_dtype_of_its_version() -> None:
    for opset, dtype in ((7, np.float32), (10, np.bool_), (13, np.bool_)):
        mask = evaluated([node("Dropout", ["x"], ["y", "mask"])], {"x": X}, opset, ("y", "mask"))[1]
        assert mask.dtype == dtype and mask.all()


def test_statistics_that_nobody_reads_make_no_training() -> None:
    rows = {n: np.random.default_rng(4).random(3).astype(np.float32) + 0.5 for n in ("s", "b", "m", "v")}
    operands = ["x", "s", "b", "m", "v"]
    norm = [node("BatchNormalization", operands, ["y", "mean", "variance", "a", "b2"])]
    (got,) = evaluated(norm, {"x": X, **rows}, 9)
    s, b, m, v = (r[:, None] for r in rows.values())
    np.testing.assert_allclose(got, (X - m) / np.sqrt(v + 1e-5) * s + b, rtol=1e-5, atol=1e-6)
    with pytest.raises(rlx.UnsupportedError, match="in training mode"):
        evaluated(norm, {"x": X, **rows}, 9, ("y", "mean"))
    each = {n: np.random.default_rng(5).random((3, 4)).astype(np.float32) + 0.5 for n in rows}
    (got,) = evaluated([node("BatchNormalization", operands, ["y"], spatial=0)], {"x": X, **each}, 7)
    s, b, m, v = each.values()
    np.testing.assert_allclose(got, (X - m) / np.sqrt(v + 1e-5) * s + b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_all_axes_from_one_on_counted_as_one(op: str) -> None:
    for opset in (1, 11, 13):
        for axis in (None, 0, 1, 2, -1, -2, -3):
            if opset == 1 and axis is not None and axis < 0:
                continue
            given: dict[str, Any] = {} if axis is None else {"axis": axis}
            nodes = [node(op, ["x"], ["y"], **given)]
            (wanted,) = run_by_onnxruntime(model(nodes, {"x": X}, ["y"], opset), {"x": X})
            np.testing.assert_allclose(evaluated(nodes, {"x": X}, opset)[0], wanted, rtol=1e-5, atol=1e-6)


def test_experimental_ops() -> None:
    image = np.random.default_rng(6).normal(size=(1, 3, 5, 6)).astype(np.float32)
    for made in (
        node("Affine", ["x"], ["y"], alpha=2.0, beta=0.5),
        node("ScaledTanh", ["x"], ["y"], alpha=1.5, beta=0.5),
        node("ParametricSoftplus", ["x"], ["y"], alpha=1.5, beta=0.5),
        node("Scale", ["x"], ["y"], scale=2.5),
        node("ImageScaler", ["x"], ["y"], bias=[1.0, 2.0, 3.0], scale=0.5),
        node("Crop", ["x"], ["y"], border=[1, 2, 3, 1]),
        node("Crop", ["x"], ["y"], border=[1, 2, 0, 0], scale=[2, 3]),
    ):
        (wanted,) = run_by_onnxruntime(model([made], {"x": image}, ["y"], 7), {"x": image})
        np.testing.assert_allclose(evaluated([made], {"x": image}, 7)[0], wanted, rtol=1e-5, atol=1e-6)


def test_nodes_may_stand_in_any_order() -> None:
    nodes = [node("Add", ["b", "a"], ["y"]), node("Exp", ["a"], ["b"]), node("Neg", ["x"], ["a"])]
    (got,) = evaluated(nodes, {"x": X}, 17)
    np.testing.assert_allclose(got, np.exp(-X) - X, rtol=1e-5)
    inner = helper.make_graph([node("Mul", ["a", "t"], ["r"])], "then", [], [onnx.ValueInfoProto(name="r")])
    other = helper.make_graph([node("Identity", ["x"], ["r"])], "else", [], [onnx.ValueInfoProto(name="r")])
    branch = node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    early = [branch, node("Greater", ["n", "zero"], ["c"]), node("Neg", ["x"], ["a"]), node("Exp", ["x"], ["t"])]
    early += [node("ReduceSum", ["x"], ["n"], keepdims=0), node("Sub", ["n", "n"], ["zero"])]
    for values in (np.abs(X), -np.abs(X)):
        (got,) = evaluated(early, {"x": values}, 17)
        np.testing.assert_allclose(got, -values * np.exp(values) if values.sum() > 0 else values, rtol=1e-6)
    with pytest.raises(rlx.ParseError, match="nothing before it gives"):
        evaluated([node("Add", ["x", "b"], ["a"]), node("Exp", ["a"], ["b"])], {"x": X}, 17, ("a",))


def test_no_axes_to_squeeze_are_all() -> None:
    for axes in ([], None, [1]):
        weights = {} if axes is None else {"axes": np.array(axes, np.int64)}
        made = [node("Squeeze", ["x", *weights], ["y"])]
        data = model(made, {"x": X[:, None, :, :1]}, ["y"], 13, weights)
        (wanted,) = run_by_onnxruntime(data, {"x": X[:, None, :, :1]})
        np.testing.assert_array_equal(rlx.evaluate(rlx.from_onnx(data), {"x": X[:, None, :, :1]})[0], wanted)


def test_axes_may_be_named_twice() -> None:
    x = X[:, None, :, :1]
    for op, axes, wanted in (("Squeeze", [1, 3, -1, 1], X[:, :, 0]), ("ReduceSum", [2, -2], x.sum(2, keepdims=True))):
        data = model([node(op, ["x", "axes"], ["y"])], {"x": x}, ["y"], 13, {"axes": np.array(axes)})
        np.testing.assert_allclose(rlx.evaluate(rlx.from_onnx(data), {"x": x})[0], wanted, rtol=1e-6)


def test_bytes_that_are_empty_beside_elements() -> None:
    made = onnx.load_from_string(model([node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], 13, {"w": X[0, 0]}))
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend(X[0, 0].tolist())
    tensor.raw_data = b""
    (got,) = rlx.evaluate(rlx.from_onnx(made.SerializeToString()), {"x": X})
    np.testing.assert_allclose(got, X + X[0, 0])


def test_where_a_number_is_not_zero() -> None:
    for value, wanted in ((3.0, [[0]]), (0.0, np.zeros((1, 0)))):
        data = model([node("NonZero", ["c"], ["y"])], {}, ["y"], 13, {"c": np.array(value, np.float32)})
        np.testing.assert_array_equal(rlx.evaluate(rlx.from_onnx(data), {})[0], wanted)


def test_the_number_of_a_step_may_have_an_axis() -> None:
    read = [
        helper.make_tensor_value_info(n, kind, [1]) for n, kind in (("i", TensorProto.INT64), ("c", TensorProto.BOOL))
    ]
    body = helper.make_graph(
        [node("Cast", ["i"], ["row"], to=1), node("Identity", ["c"], ["go"])],
        "body",
        read,
        [onnx.ValueInfoProto(name=n) for n in ("go", "row")],
    )
    for count in (3, 40):
        weights = {"n": np.array([count]), "first": np.array([True])}
        loop = [node("Loop", ["n", "first"], ["y"], body=body)]
        (got,) = rlx.evaluate(rlx.from_onnx(model(loop, {}, ["y"], 13, weights)), {})
        np.testing.assert_array_equal(got, np.arange(count, dtype=np.float32)[:, None])


def test_padding_that_is_not_named_is_that_of_the_attribute() -> None:
    image, kernel = np.ones((2, 1, 1, 1), np.float32), np.ones((2, 1, 3, 3), np.float32)
    convolution = node("Conv", ["x", "w"], ["y"], auto_pad="", kernel_shape=[3, 3], pads=[1, 1, 1, 2], strides=[3, 1])
    assert evaluated([convolution], {"x": image, "w": kernel}, 9)[0].shape == (2, 2, 1, 2)
    pool = node("MaxPool", ["x"], ["y"], auto_pad="", kernel_shape=[2, 2], pads=[1, 1, 0, 0])
    assert evaluated([pool], {"x": np.ones((1, 1, 3, 3), np.float32)}, 9)[0].shape == (1, 1, 3, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_is_computed_of_integers_is_integers(dtype: Any) -> None:
    values = np.random.default_rng(7).integers(-5, 6, (2, 3, 4)).astype(dtype)
    for op, wanted in (
        ("ReduceMean", np.trunc(values.mean((1, 2)))),
        ("ReduceL2", np.trunc(np.sqrt((values**2).sum((1, 2))))),
        ("ReduceSumSquare", (values**2).sum((1, 2))),
    ):
        (got,) = evaluated([node(op, ["x"], ["y"], axes=[1, 2], keepdims=0)], {"x": values}, 11)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, wanted)
    for op in ("Erf", "Shrink"):
        attributes: dict[str, Any] = {"lambd": 2.0, "bias": 1.0} if op == "Shrink" else {}
        (got,) = evaluated([node(op, ["x"], ["y"], **attributes)], {"x": values}, 13)
        shrunk = np.where(values < -2, values + 1, np.where(values > 2, values - 1, 0))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, shrunk if op == "Shrink" else np.trunc(np.vectorize(math.erf)(values)))


def test_coordinates_of_one_version_alone() -> None:
    image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    attributes: dict[str, Any] = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest"}
    made = [node("Resize", ["x", "", "", "sizes"], ["y"], nearest_mode="floor", **attributes)]
    data = model(made, {"x": image}, ["y"], 11, {"sizes": np.array([1, 1, 4, 6])})
    data = onnx.load_from_string(data)
    data.graph.node[0].input[1], data.graph.node[0].input[2] = "roi", "scales"
    data.graph.initializer.extend(onnx.numpy_helper.from_array(np.zeros(0, np.float32), n) for n in ("roi", "scales"))
    (wanted,) = run_by_onnxruntime(data.SerializeToString(), {"x": image})
    np.testing.assert_array_equal(rlx.evaluate(rlx.from_onnx(data.SerializeToString()), {"x": image})[0], wanted)
