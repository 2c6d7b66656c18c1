"""Whole models from ONNX: with open sizes, quantised by ONNX Runtime, and their gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.importers.onnx_models import cnn, model, node, transformer
from tests.importers.test_onnx_contrib import run_by_onnxruntime

RANDOM = np.random.default_rng(7)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def _images(batch: int, size: int = 8) -> dict[str, Any]:
    return {"x": np.random.default_rng(size).normal(size=(batch, 3, size, size)).astype(np.float32)}


def _tokens(batch: int, length: int) -> dict[str, Any]:
    return {"ids": np.random.default_rng(length).integers(0, 11, (batch, length))}


def test_a_transformer_of_open_sizes() -> None:
    data = transformer("batch", "seq")
    g = rlx.from_onnx(data)
    assert str(g.inputs[0].shape) == "i64[batch, seq]" and str(g.outputs[0].shape) == "f32[batch, seq, 8]"
    compiled = rlx.Session("cpu").compile(g)
    for inputs in (_tokens(1, 1), _tokens(2, 5), _tokens(3, 16)):
        (wanted,) = run_by_onnxruntime(data, inputs)
        for got in (rlx.evaluate(g, inputs), compiled.run(inputs)):
            np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(rlx.Error, match="does not fit"):  # the table of positions has 16 rows
        rlx.evaluate(rlx.from_onnx(_sliced()), {"x": np.zeros((17, 2), np.float32)})


def _sliced() -> bytes:
    nodes = [
        node("Shape", ["x"], ["s"], end=1),
        node("Slice", ["table", "zero", "s"], ["t"]),
        node("Add", ["x", "t"], ["y"]),
    ]
    weights = {"table": np.ones((16, 2), np.float32), "zero": ints([0])}
    return model(nodes, {"x": ["n", 2]}, ["y"], weights)


def test_images_of_open_sizes() -> None:
    data = cnn("batch", "2*rows")
    g = rlx.from_onnx(data, sizes={"2*rows": "2*rows"})
    for inputs in (_images(1), _images(3, 6)):
        np.testing.assert_allclose(
            rlx.evaluate(g, inputs)[0], run_by_onnxruntime(data, inputs)[0], rtol=1e-5, atol=1e-5
        )


_OPEN: list[tuple[str, list[Any], list[Any], dict[str, Any]]] = [
    (
        "Resize by a scale",
        [node("Resize", ["x", "", "scale"], ["y"], mode="nearest", nearest_mode="floor")],
        ["n", 2, "h", "w"],
        {"scale": floats([1, 1, 2, 1.5])},
    ),
    (
        "Resize to sizes",
        [
            node("Shape", ["x"], ["s"]),
            node("Mul", ["s", "two"], ["t"]),
            node("Resize", ["x", "", "", "t"], ["y"], mode="linear"),
        ],
        ["n", 2, "h", "w"],
        {"two": ints([1, 1, 2, 3])},
    ),
    (
        "cubic",
        [node("Resize", ["x", "", "scale"], ["y"], mode="cubic", coordinate_transformation_mode="align_corners")],
        ["n", 2, "h", "w"],
        {"scale": floats([1, 1, 2, 2])},
    ),
    (
        "from the end",
        [node("Slice", ["x", "a", "b", "axes"], ["y"])],
        ["n", "h", 2],
        {"a": ints([-2]), "b": ints([2**63 - 1]), "axes": ints([1])},
    ),
    (
        "up to",
        [node("Slice", ["x", "a", "b", "axes", "step"], ["y"])],
        ["n", "h", 2],
        {"a": ints([1]), "b": ints([100]), "axes": ints([1]), "step": ints([2])},
    ),
    (
        "reversed",
        [node("Slice", ["x", "a", "b", "axes", "a"], ["y"])],
        ["n", "h", 2],
        {"a": ints([-1]), "b": ints([-(2**63)]), "axes": ints([1])},
    ),
    (
        "expanded by a mask of -1",
        [
            node("Shape", ["x"], ["s"]),
            node("Equal", ["s", "minus"], ["e"]),
            node("Where", ["e", "ones", "s"], ["t"]),
            node("Expand", ["one", "t"], ["f"]),
            node("Add", ["x", "f"], ["y"]),
        ],
        ["n", "h"],
        {"minus": ints([-1, -1]), "ones": ints([1, 1]), "one": np.ones((1, 1), np.float32)},
    ),
    (
        "sizes as numbers",
        [
            node("Shape", ["x"], ["s"]),
            node("ReduceProd", ["s"], ["p"]),
            node("Cast", ["p"], ["f"], to=1),
            node("Div", ["x", "f"], ["y"]),
        ],
        ["n", "h"],
        {},
    ),
    (
        "halves",
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "one"], ["h"]),
            node("Div", ["h", "two"], ["k"]),
            node("Slice", ["x", "zero", "k", "one"], ["y"]),
        ],
        ["n", "h"],
        {"one": ints([1]), "two": ints([2]), "zero": ints([0])},
    ),
    ("pads", [node("Pad", ["x", "pads"], ["y"], mode="reflect")], ["n", 2, "h"], {"pads": ints([0, 0, 1, 0, 0, 2])}),
    (
        "pools",
        [node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
        ["n", 2, "h", "w"],
        {},
    ),
    (
        "same padding",
        [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")],
        ["n", 2, "h", "w"],
        {},
    ),
    (
        "the largest",
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["k"]), node("TopK", ["x", "k"], ["y", "i"])],
        ["n", "h"],
        {"one": ints([1])},
    ),
    ("the last of the largest", [node("ArgMax", ["x"], ["y"], axis=1, select_last_index=1)], ["n", "h"], {}),
    ("negative indices", [node("Gather", ["x", "i"], ["y"], axis=1)], ["n", "h"], {"i": ints([-1, 0])}),
    *(
        (
            f"sums over no axes, {noop}",
            [
                node("Shape", ["x"], ["s"]),
                node("ReduceSum", ["s", "none"], ["y"], keepdims=0, noop_with_empty_axes=noop),
            ],
            ["n", "h"],
            {"none": ints([])},
        )
        for noop in (0, 1)
    ),
    *(
        (
            f"remainders, {fmod}",
            [node("Shape", ["x"], ["s"]), node("Sub", ["s", "k"], ["d"]), node("Mod", ["d", "m"], ["y"], fmod=fmod)],
            ["n", "h"],
            {"k": ints([k, k]), "m": ints([3, 3])},
        )
        for fmod in (0, 1)
        for k in (0, 2, 9)
    ),
    ("flat", [node("Flatten", ["x"], ["y"], axis=2)], ["n", 2, "h", "w"], {}),
    ("equal parts", [node("Split", ["x"], ["y", "z"], axis=1)], ["n", "2*h"], {}),
]


def test_ops_of_open_sizes() -> None:
    for name, nodes, dims, weights in _OPEN:
        data = model(nodes, {"x": dims}, [nodes[-1].output[0]], weights)
        g = rlx.from_onnx(data, sizes={"2*h": "2*h"} if "2*h" in dims else None)
        for sizes in ({"n": 1, "h": 4, "w": 3, "2*h": 2}, {"n": 3, "h": 5, "w": 6, "2*h": 8}):
            shape: Any = [sizes.get(d, d) for d in dims]
            x = RANDOM.normal(size=shape).astype(np.float32)
            (wanted,) = run_by_onnxruntime(data, {"x": x})
            (got,) = rlx.evaluate(g, {"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_what_needs_a_size_says_so() -> None:
    data = model([node("Reshape", ["x", "s"], ["y"])], {"x": ["batch", "seq"]}, ["y"], {"s": ints([2, 3])})
    with pytest.raises(rlx.Error, match=r"'batch', 'seq'(.|\n)*sizes="):
        rlx.from_onnx(data)
    assert rlx.from_onnx(data, sizes={"batch": 3, "seq": 2}).outputs[0].shape.static == (2, 3)
    for sizes in ({"rows": 2}, {"batch": 1.5}, {"batch": -1}, {"batch": "1+"}):
        with pytest.raises(rlx.Error):
            rlx.from_onnx(data, sizes=sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", ["?", "", "-", "rows"])
def test_a_size_that_the_model_does_not_have_is_refused(size: str) -> None:
    data = model([node("Relu", ["x"], ["y"])], {"x": ["?", None, "seq"]}, ["y"], {})
    with pytest.raises(rlx.Error, match=r"has no open size(.|\n)*it has 'x_dim0', 'x_dim1', 'seq'"):
        rlx.from_onnx(data, sizes={size: 2})
    g = rlx.from_onnx(data, sizes={"x_dim0": 2, "x_dim1": 3, "seq": 4})
    assert g.outputs[0].shape.static == (2, 3, 4)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_quantised_by_onnxruntime(form: str, tmp_path: Path) -> None:
    quantization: Any = pytest.importorskip("onnxruntime.quantization")
    made = {"cnn": (cnn(2), _images(2)), "transformer": (transformer(2, 5), _tokens(2, 5))}
    for name, (data, inputs) in made.items():
        plain, path = tmp_path / f"{name}.onnx", tmp_path / f"{name}-{form}.onnx"
        plain.write_bytes(data)

        class Reader(quantization.CalibrationDataReader):
            def __init__(self, given: Any):
                self.given = iter([given])

            def get_next(self) -> Any:
                return next(self.given, None)

        kind = getattr(quantization.QuantFormat, form)
        some: dict[str, Any] = {
            "op_types_to_quantize": ["MatMul", "Conv", "Gemm", "Relu", "MaxPool", "GlobalAveragePool"]
        }
        # Weights of 7 bits: on CPUs without VNNI, ONNX Runtime adds two products in 16 bits, which saturate.
        some |= {"per_channel": form == "QDQ", "reduce_range": True}
        quantization.quantize_static(plain, path, Reader(inputs), quant_format=kind, **some)
        (wanted,) = run_by_onnxruntime(str(path), inputs)
        g = rlx.from_onnx(path)
        step = np.ptp(wanted) / 255
        (got,) = rlx.evaluate(g, inputs)
        assert np.abs(got - wanted).max() <= 2 * step  # a sum between two integers
        if form == "QOperator" and name == "cnn":
            np.testing.assert_allclose(rlx.Session("cpu").compile(g).run(inputs)[0], got, atol=2 * step)


def test_gradients_of_imported_models() -> None:
    for data, inputs, names in (
        (cnn(2), _images(2), ["w0", "w2"]),
        (transformer(2, 4), _tokens(2, 4), ["wq", "table"]),
    ):
        g = rlx.from_onnx(data)
        output = g.output_tensors[0]
        g.set_outputs([g.sum(g.mul(output, output))])  # type: ignore[attr-defined]
        exact: dict[str, Any] = {n: np.asarray(w).astype(np.float64) for n, w in g.weights.items()}
        gradients = rlx.evaluate(rlx.grad(g, wrt=names), inputs)
        for name, gradient in zip(names, gradients, strict=True):
            direction = np.random.default_rng(3).normal(size=gradient.shape)
            values = []
            for step in (3e-4, -3e-4):
                moved = {n: np.asarray(w) for n, w in g.weights.items()}
                moved[name] = (exact[name] + step * direction).astype(np.float32)
                values.append(float(rlx.evaluate(g, {**inputs, **moved})[0]))
            np.testing.assert_allclose(
                (gradient * direction).sum(), (values[0] - values[1]) / 6e-4, rtol=1e-2, atol=1e-2
            )
