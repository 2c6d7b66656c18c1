"""The commands accept ONNX models, with their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rlx.cli.values import save_array
from tests.cli.calling import Command

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
W = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a model of one layer with an open batch size, and its weights in an external file."""
    save_array(str(tmp_path / "x.npy"), X)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", k]) for n, k in (("x", 4), ("y", 3))]
    graph = helper.make_graph(nodes, "layer", tensors[:1], tensors[1:], [onnx.numpy_helper.from_array(W, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    return tmp_path / "m.onnx"


def test_a_model_is_inspected_compiled_and_run(command: Command, path: Path) -> None:
    expected, result = np.maximum(X @ W, 0), path.parent / "y.npy"
    given, saved = f"--input=x=@{path.parent / 'x.npy'}", f"--save={result}"
    assert "1 matmul" in command.output("inspect", path)
    for compiled, options in ((path.parent / "m.rlxa", []), (path.parent / "n.rlxa", ["--bind=batch=2"])):
        command.output("compile", path, "--target=cpu", *options, "-o", compiled)
        command.output("run", compiled, given, saved)
        np.testing.assert_allclose(np.load(result), expected, rtol=1e-6)
    for options in (["--evaluate"], ["--evaluate", "--bind=batch=2"], []):
        command.output("run", path, *options, given, saved)
        np.testing.assert_allclose(np.load(result), expected, rtol=1e-6)


def test_a_model_is_quantized(command: Command, path: Path) -> None:
    np.savez(path.parent / "data.npz", x=np.stack([X, -X, X / 2]))
    out, weights = path.parent / "q.mlir", path.parent / "q.safetensors"
    arguments = [f"--data={path.parent / 'data.npz'}", "--bind=batch=2", f"--output-params={weights}"]
    command.output("quantize", path, *arguments, "-o", out)
    result = path.parent / "y.npy"
    given = [f"--input=x=@{path.parent / 'x.npy'}", f"--params={weights}", f"--save={result}"]
    command.output("run", out, *given, "--evaluate")
    assert 0 < np.abs(np.load(result) - np.maximum(X @ W, 0)).max() < 0.1


def test_weights_are_those_of_the_file_whatever_its_name(command: Command, path: Path) -> None:
    np.savez(path.parent / "data.npz", x=np.stack([X, -X]))
    other, out = path.with_name("model.bin"), path.parent / "q.mlir"
    other.write_bytes(path.read_bytes())
    written = [f"--output-params={path.parent / 'q.safetensors'}", "--bind=batch=2"]
    command.output("quantize", other, f"--data={path.parent / 'data.npz'}", *written, "-o", out)
    command.output(
        "compile", other, "--target=numpy", f"--params-file={path.parent / 'w.irpa'}", "-o", out.with_suffix(".rlxa")
    )
    plain = path.with_name("plain.mlir")
    plain.write_text("func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    for call in (
        ("compile", plain, "--target=cpu", f"--params-file={path.parent / 'v.irpa'}"),
        ("quantize", plain, "--activations=none", written[0]),
    ):
        assert "needs the weights" in command.error(*call, "-o", path.parent / "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bind=rows=2"], "no open size 'rows'"),
        (["--bind=batch"], "expected each SYMBOL=SIZE once"),
        (["--bind=batch=1", "--bind=batch=2"], "expected each SYMBOL=SIZE once"),
        (["--function=f"], "an ONNX model has one graph"),
    ],
)
def test_what_is_wrong_is_said(command: Command, path: Path, arguments: list[str], message: str) -> None:
    call = command("inspect", path, *arguments) if "--function=f" not in arguments else command("run", path, *arguments)
    assert call.code == 1 and message in call.err


def test_what_is_no_model_is_an_error(command: Command, tmp_path: Path) -> None:
    for data in (b"", b"\x08", b"func.func", bytes(range(256))):
        (tmp_path / "m.onnx").write_bytes(data)
        call = command("inspect", tmp_path / "m.onnx")
        assert call.code == 1 and "is no ONNX model" in call.err
