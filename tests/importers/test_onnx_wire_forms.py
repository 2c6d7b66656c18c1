"""Reading of ONNX tensors: as bytes or numbers, of every dtype, and of wrong lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.ir.dtype import DType
from rlx.ir.packing import pack
from tests.importers.onnx_dtypes import NUMBERS

COUNT = 5  # packed elements of 2 and of 4 bits leave unused bits in the last byte


VALUES = np.array([1, 0, 1, 1, 0])


def numbers_of(array: np.ndarray, kind: DType) -> list[Any]:
    """Return elements in the form of their type's field, by the comments in onnx.proto."""
    if kind.packed:
        return pack(array).tolist()
    if kind.is_complex:
        return array.view(kind.part.numpy).tolist()
    if kind.is_float and kind.bits < 32:
        return array.view(np.uint16 if kind.bits == 16 else np.uint8).tolist()
    return array.astype(np.uint8).tolist() if kind.is_bool else array.tolist()


def tensors(kind: DType) -> dict[str, TensorProto]:
    """Return a tensor in both forms."""
    array = np.where(VALUES == 1, 1, 2 if kind.name == "f8e8m0fnu" else 0).astype(kind.numpy)
    field = helper.tensor_dtype_to_field(NUMBERS[kind])
    made = {name: TensorProto(name="w", data_type=NUMBERS[kind], dims=[COUNT]) for name in ("raw_data", field)}
    made["raw_data"].raw_data = pack(array).tobytes()
    getattr(made[field], field).extend(numbers_of(array, kind))
    return made


def models(tensor: TensorProto) -> list[bytes]:
    """Return a model with the tensor as an initialiser, and one with a constant."""
    output = [helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))]
    nodes = helper.make_node("Identity", ["w"], ["y"]), helper.make_node("Constant", [], ["y"], value=tensor)
    graphs = [helper.make_graph([n], "g", [], output, t) for n, t in zip(nodes, ([tensor], []), strict=True)]
    imports = [helper.make_opsetid("", 25)]
    return [helper.make_model(graph, opset_imports=imports).SerializeToString() for graph in graphs]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_each_form_is_read(kind: DType) -> None:
    wanted = onnx.numpy_helper.to_array(tensors(kind)["raw_data"])
    for tensor in tensors(kind).values():
        for data in models(tensor):
            g = rlx.from_onnx(data)
            (got,) = rlx.evaluate(g, dict(g.weights))
            assert got.dtype == wanted.dtype
            assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_a_wrong_length_is_refused(kind: DType) -> None:
    for form, right in tensors(kind).items():
        stored = getattr(right, form)
        for length in (0, 1, len(stored) - 1, len(stored) + 1, 3 * len(stored)):
            tensor = TensorProto()
            tensor.CopyFrom(right)
            tensor.ClearField(form)
            cut = (list(stored) * 3)[:length]
            if form == "raw_data":
                tensor.raw_data = bytes(cut)
            else:
                getattr(tensor, form).extend(cut)
            for data, name in zip(models(tensor), ("initialiser 'w'", "'value' of <bytes>:y"), strict=True):
                with pytest.raises(rlx.ParseError) as caught:
                    rlx.from_onnx(data)
                message = str(caught.value)
                assert name in message
                assert f"of shape [{COUNT}] has {length} " in message
                if length:  # without bytes the elements may be numbers
                    assert f"and {len(stored)} are expected" in message


@pytest.mark.parametrize("name", ["STRING", "FLOAT6E2M3", "FLOAT6E3M2"])
def test_a_type_that_rlx_lacks_is_named(name: str) -> None:
    number = getattr(TensorProto, name, None)
    if number is None:
        pytest.skip(f"this version of ONNX has no {name}")
    output = [helper.make_tensor_value_info("y", number, [1])]
    cases = {
        "input 'x'": ([helper.make_node("Identity", ["x"], ["y"])], number),
        "'to' of <bytes>:y": ([helper.make_node("Cast", ["x"], ["y"], to=number)], TensorProto.FLOAT),
    }
    for place, (nodes, given) in cases.items():
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", given, [1])], output)
        with pytest.raises(rlx.UnsupportedError) as caught:
            rlx.from_onnx(helper.make_model(graph).SerializeToString())
        assert f"{place} has a type that cannot be imported, {name}" in str(caught.value)
        assert "strings into integers" in str(caught.value) or name != "STRING"
