"""`rlx import`: the summary of files of every format, and of files that cannot be imported."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.cli.calling import HELLO, Command
from tests.importers.test_onnx_remedies import branches, halves
from tests.models.references import reference, weights, write_model


def summary(command: Command, *words: Any, code: int = 0) -> dict[str, Any]:
    """Return the JSON object that the command prints."""
    result = command(*("import", *words, "--json"))
    assert result.code == code, result.err
    return json.loads(result.out)


def folder_of(path: Path, name: str, **config: Any) -> Path:
    content = reference(name)
    return write_model(path / name, content["config"] | config, weights(content["tensors"]))


def test_onnx(command: Command, tmp_path: Path) -> None:
    path = halves(tmp_path / "net.onnx")
    found = summary(command, path, code=1)
    assert (found["format"], found["is_imported"], found["open_sizes"]) == ("ONNX", False, ["batch", "h", "w"])
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["batch", 3, "h", "w"]}]
    flags = shlex.split(found["hint"].split("commands take ")[1])
    found = summary(command, path, *flags)
    assert (found["is_imported"], found["open_sizes"], found["problem"]) == (True, ["batch"], None)
    assert found["outputs"] == [{"name": "y", "dtype": "f32", "shape": ["batch", 3, "32*n", "32*m"]}]
    assert found["ops"]["add"] >= 1
    assert found["call"] == f"rlx.from_onnx({path!r}, sizes={{'h': '32*n', 'w': '32*m'}})"
    text = command.output("import", path, *flags)
    assert f"{path}: ONNX, imported" in text
    assert "open sizes  batch (--bind=batch=SIZE)" in text


def test_onnx_with_possible_constants(command: Command, tmp_path: Path) -> None:
    path = branches(tmp_path / "net.onnx")
    assert summary(command, path, code=1)["constants"] == {"rate": "i64"}
    found = summary(command, path, "--bind=rate=16000", "--bind=samples=320")
    assert (found["constants"], found["open_sizes"]) == ({}, [])
    assert found["call"].endswith("sizes={'samples': 320}, constants={'rate': 16000})")


def test_folders(command: Command, tmp_path: Path) -> None:
    names = {"0": "neg", "1": "neutral", "2": "pos"}
    folder = folder_of(tmp_path, "bert_sequence", id2label=names)
    for path in (folder, folder / "model.safetensors"):
        found = summary(command, path)
        assert found["details"]["head"] == "ForSequenceClassification"
        assert found["details"]["labels"] == "neg, neutral, pos"
        assert found["outputs"] == [{"name": "logits", "dtype": "f32", "shape": ["batch", 3]}]
        assert found["weights"] == {"f32": 41}
    dynamic = summary(command, folder_of(tmp_path, "llama_dynamic"))
    assert (dynamic["is_imported"], dynamic["open_sizes"]) == (True, [])
    other = summary(command, folder_of(tmp_path, "llama", model_type="opt"), code=1)
    assert "of type 'opt'; known are" in other["problem"]
    assert 'fallback="torch"' in other["hint"]
    base = summary(command, folder_of(tmp_path, "mpnet", architectures=["MPNetForMaskedLM"]))
    assert "the weights have no head" in base["details"]["warning"]


def test_unused_tensors_are_listed(command: Command, tmp_path: Path) -> None:
    content = reference("bert")
    tensors = {**weights(content["tensors"]), "extra.weight": np.zeros(2, np.float32)}
    folder = write_model(tmp_path / "model", content["config"], tensors)
    assert summary(command, folder)["unused"] == ["extra.weight"]
    assert "unused tensors   1: extra.weight" in command.output("import", folder)


def test_modules(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "hello.mlir"
    path.write_text(HELLO)
    found = summary(command, path)
    assert (found["format"], found["details"]["function"], found["ops"]) == ("MLIR", "hello", {"matmul": 1})
    compiled = tmp_path / "hello.rlxa"
    command.output("compile", path, "--target=cpu", "-o", compiled)
    assert summary(command, compiled)["format"] == "compiled programs of RLX"
    path.write_text("func.func @f() {")
    assert summary(command, path, code=1)["problem"]


def test_stablehlo(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "add.mlir"
    path.write_text(
        "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %0 = stablehlo.add %x, %x : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}\n"
    )
    assert summary(command, path)["inputs"] == [{"name": "arg0", "dtype": "f32", "shape": [2]}]


def test_exported_programs(command: Command, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),)), path)
    found = summary(command, path)
    assert (found["format"], found["outputs"][0]["shape"]) == ("PyTorch exported program", [4, 2])
    path.write_bytes(b"PK\x03\x04 nothing")
    assert "torch.export.load cannot read" in summary(command, path, code=1)["problem"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "hint"),
    [
        ("net.tflite", b"\x1c\x00\x00\x00TFL3" + bytes(20), "TensorFlow Lite", "tf2onnx.convert --tflite"),
        ("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(20), "Keras", 'format="onnx"'),
        ("net.pt", b"\x80\x02}q\x00.", "PyTorch pickle", "rlx.from_torch"),
        ("net.onnx", b"\x08\x07 no model", "ONNX", None),
        ("net.gguf", b"GGUF" + bytes(20), "GGUF", None),
        ("empty", b"", "unknown format", "ONNX (.onnx)"),
        ("net.py", b"import rlx\n\nmodule = rlx.Graph('func.func')\n", "unknown format", "programs of torch.export"),
        ("page.html", b"<!DOCTYPE html>\n<p>module</p>\n", "unknown format", "GGUF"),
        ("notes.txt", b"A module of text.\n", "unknown format", "safetensors"),
        ("data", bytes(range(1, 255)), "unknown format", "StableHLO"),
        ("text", b"// a comment\n#map = 3\nfunc.func @f() {", "MLIR", None),
        ("net.mlir", b"import rlx", "MLIR", None),
    ],
)
def test_files_that_are_not_imported(
    name: str, content: bytes, kind: str, hint: str | None, command: Command, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    found = summary(command, tmp_path / name, code=1)
    assert (found["format"], found["is_imported"]) == (kind, False)
    assert found["problem"]
    assert kind == "MLIR" or "custom op" not in found["problem"]
    assert hint is None or hint in found["hint"]


def test_folders_that_are_not_models(command: Command, tmp_path: Path) -> None:
    assert "no config.json" in summary(command, tmp_path, code=1)["problem"]
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert summary(command, tmp_path, code=1)["format"] == "TensorFlow SavedModel"
    save_file({"w": np.zeros((2, 3), np.float16)}, tmp_path / "w.safetensors")
    found = summary(command, tmp_path / "w.safetensors", code=1)
    assert (found["weights"], found["weight_bytes"]) == ({"f16": 1}, 12)
    assert "rlx.models.load(folder)" in found["hint"]


def test_a_missing_file(command: Command, tmp_path: Path) -> None:
    assert "no such file" in command.error("import", tmp_path / "nothing.onnx")
