"""ONNX ops that compare, select or move elements, for every dtype that ONNX's schemas allow for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.ir.dtype import BY_NUMPY_NAME, DType

ROW, INDEX = np.array([0], np.int64), np.array([1, 0], np.int64)
SHAPES: dict[str, tuple[int, ...]] = {"x": (2, 3), "y": (2, 3)}
# Op: operands of the dtype by the names of their shapes, further operands, attributes.
OPS: dict[str, tuple[tuple[str, ...], tuple[np.ndarray, ...], dict[str, Any]]] = {
    **dict.fromkeys(("IsInf", "IsNaN", "Transpose", "Identity", "Flatten", "Squeeze"), (("x",), (), {})),
    **dict.fromkeys(("Equal", "Less", "Greater", "LessOrEqual", "Max", "Min"), (("x", "y"), (), {})),
    "Concat": (("x", "y"), (), {"axis": 0}),
    "Gather": (("x",), (INDEX,), {}),
    "GatherElements": (("x",), (np.zeros((2, 3), np.int64),), {}),
    "GatherND": (("x",), (INDEX.reshape(1, 2),), {}),
    "Reshape": (("x",), (np.array([3, 2], np.int64),), {}),
    "Expand": (("x",), (np.array([2, 2, 3], np.int64),), {}),
    "Slice": (("x",), (ROW, np.array([1], np.int64)), {}),
    "Tile": (("x",), (np.array([2, 1], np.int64),), {}),
    "Unsqueeze": (("x",), (ROW,), {}),
    "Pad": (("x",), (np.array([1, 0, 0, 1], np.int64),), {}),
    "Trilu": (("x",), (), {}),
}


def kind_of(name: str) -> DType | None:
    """Return the dtype of a schema type; None for strings, 6-bit floats and others that RLX lacks."""
    number = getattr(TensorProto, name.upper(), None)
    if number is None or name == "string":
        return None
    array = helper.tensor_dtype_to_np_dtype(number)
    return BY_NUMPY_NAME.get(array.name)


def elements(kind: DType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return random codes of narrow dtypes, small numbers of others."""
    if kind.storage:
        return random.integers(0, 1 << kind.bits, shape).astype(np.uint8).view(kind.numpy)
    return random.integers(0, 2 if kind.is_bool else 9, shape).astype(kind.numpy)


@pytest.mark.parametrize("op", OPS)
def test_every_dtype_that_onnx_allows(op: str) -> None:
    schema = onnx.defs.get_schema(op)
    types = next(c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == schema.inputs[0].type_str)
    kinds = {t: kind_of(t.removeprefix("tensor(").removesuffix(")")) for t in types if t.startswith("tensor(")}
    random, tried = np.random.default_rng(0), 0
    operands, further, attributes = OPS[op]
    for name, kind in kinds.items():
        if kind is None:
            assert name in ("tensor(string)", "tensor(float6e2m3)", "tensor(float6e3m2)"), name
            continue
        feeds = {n: elements(kind, SHAPES[n], random) for n in operands}
        constants = [onnx.numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(further)]
        node = helper.make_node(op, [*feeds, *(c.name for c in constants)], ["out"], **attributes)
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ]
        graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("out")], constants)
        version = schema.since_version
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        (got,) = rlx.evaluate(rlx.from_onnx(model.SerializeToString()), feeds)
        evaluator: Any = onnx.reference.ReferenceEvaluator(model)
        with np.errstate(invalid="ignore"):
            wanted = np.asarray(evaluator.run(None, feeds)[0])
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
            wide = np.complex128 if kind.is_complex else np.float64
            np.testing.assert_array_equal(got.astype(wide), wanted.astype(wide), name)
        tried += 1
    assert tried


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_padding_of_powers_of_two(mode: str) -> None:
    """Padding with a given number, or with elements of the tensor, does not need a zero."""
    kind = rlx.dtype("f8e8m0fnu")
    x = np.arange(120, 136, dtype=np.uint8).view(kind.numpy).reshape(4, 4)
    constants = [onnx.numpy_helper.from_array(np.array([1, 0, 2, 1], np.int64), "pads")]
    constants += [onnx.numpy_helper.from_array(np.array(4, kind.numpy), "value")] * (mode == "constant")
    node = helper.make_node("Pad", ["x", *(c.name for c in constants)], ["out"], mode=mode)
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("out")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    (got,) = rlx.evaluate(rlx.from_onnx(model.SerializeToString()), {"x": x})
    evaluator: Any = onnx.reference.ReferenceEvaluator(model)
    np.testing.assert_array_equal(got.view(np.uint8), np.asarray(evaluator.run(None, {"x": x})[0]).view(np.uint8))
