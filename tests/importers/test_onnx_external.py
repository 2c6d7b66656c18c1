"""External initialisers: read only from the model's folder, lazily, and checked against the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.ir.dtype import DTYPES, DType

W = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


def written(folder: Path, **entries: Any) -> Path:
    """Write a model of a product whose weights are 16 bytes at the start of `weights.bin`, unless `entries` differ."""
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(bytes(16) + W.tobytes() + b"more")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "weights.bin", "offset": "16", "length": str(W.nbytes)} | entries).items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def test_values_are_read_when_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((2, 4), np.float32)
    for i, entries in enumerate(
        ({}, {"length": None}, {"location": "./weights.bin"}, {"location": "sub/../weights.bin"})
    ):
        folder = tmp_path / str(i)
        (folder / "sub").mkdir(parents=True)
        g = rlx.from_onnx(written(folder, **entries))
        np.testing.assert_array_equal(np.asarray(g.weights["w"]), W)
        np.testing.assert_allclose(rlx.evaluate(g, {"x": x})[0], x @ W, rtol=1e-6)
    monkeypatch.chdir(tmp_path / "0")
    np.testing.assert_array_equal(np.asarray(rlx.from_onnx("m.onnx").weights["w"]), W)


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "/etc/hostname", "offset": None},
        {"location": "../outside/weights.bin"},
        {"location": "sub/../../outside/weights.bin"},
        {"location": "link.bin"},
        {"location": "folder-link/weights.bin"},
        {"location": "gone.bin"},
        {"location": ""},
        {"location": "."},
        {"location": "a\x00b"},
        {"location": None},
        {"location": "pipe"},
        {"offset": "21"},
        {"offset": "-1"},
        {"offset": "x"},
        {"offset": str(2**70)},
        {"length": "4"},
        {"length": str(2**40)},
    ],
)
def test_what_is_not_in_the_folder_or_not_in_the_file_is_refused(entries: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path / "outside")
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "outside" / "weights.bin")
    (folder / "folder-link").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    with pytest.raises(rlx.Error):
        np.asarray(rlx.from_onnx(written(folder, **entries)).weights["w"])


def test_bytes_have_no_folder(tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match="give the path"):
        rlx.from_onnx(written(tmp_path).read_bytes())


@pytest.mark.parametrize("d", [d for d in DTYPES if d.packed], ids=str)
def test_packed_elements_are_read(d: DType, tmp_path: Path) -> None:
    """An odd number of packed elements is read, from the model and from an external file."""
    codes = np.arange(15, dtype=np.uint8) % (1 << d.bits)
    values = codes.view(d.numpy).reshape(5, 3)
    inside, outside = (onnx.numpy_helper.from_array(values, name) for name in ("inside", "outside"))
    (tmp_path / "weights.bin").write_bytes(bytes(3) + outside.raw_data)
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "3"}.items():
        outside.external_data.add(key=key, value=value)
    nodes = [helper.make_node("Cast", [n], [f"{n}_f32"], to=TensorProto.FLOAT) for n in ("inside", "outside")]
    outputs = [onnx.ValueInfoProto(name=f"{n}_f32") for n in ("inside", "outside")]
    graph = helper.make_graph(nodes, "g", [], outputs, [inside, outside])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    for found in rlx.evaluate(rlx.from_onnx(path), {}):
        np.testing.assert_array_equal(found, values.astype(np.float32))
    (tmp_path / "weights.bin").write_bytes(bytes(3) + bytes(d.nbytes(15) - 1))
    with pytest.raises(rlx.Error, match=r"weights.bin.*ends before it"):
        rlx.from_onnx(path)
