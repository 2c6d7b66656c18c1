"""The user's names, lines and scales in the files of a design."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as command
from rlx.targets.fpga import process
from rlx.weights.safetensors import write as write_safetensors
from tests.drawing import drawn, graph_seed
from tests.packages import needs_package
from tests.targets.fpga.integer_graphs import random_graph
from tests.targets.fpga.models import MODELS
from tests.targets.fpga.simulated import design_of
from tests.targets.fpga.test_backend import recurrent
from tests.targets.fpga.test_projects import written

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]


class Digits(rlx.nn.Module):
    """A convolution with a norm and an activation, and a product."""

    def __init__(self) -> None:
        self.stem = rlx.nn.Conv(1, 4, (3, 3), padding=1)
        self.norm = rlx.nn.BatchNorm(4)
        self.head = rlx.nn.Sequential(rlx.nn.Flatten(), rlx.nn.Linear(64, 10))

    def forward(self, x: Any) -> Any:
        h = self.norm(self.stem(x))  # line of the convolution
        return self.head(rlx.ops.relu(h))


def lines_of(text: str) -> list[int]:
    """Return the numbers of the lines of this file that contain a text."""
    return [i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line]


def floats() -> tuple[Any, dict[str, np.ndarray]]:
    model = Digits()
    g: Any = rlx.Graph("digits")
    g.set_outputs({"scores": model(g.input("image", (1, 1, 4, 4)))})
    return g, model.init(0)


def integers() -> Any:
    g, params = floats()
    batches = [{"image": np.random.default_rng(1).normal(size=(1, 1, 4, 4)).astype(np.float32)}]
    return rlx.integer_only(g, rlx.observe_ranges(g, batches, params=params), params=params)


def test_layers_have_the_names_and_lines_of_the_model(tmp_path: Path) -> None:
    """A norm and an activation after a layer are part of it, and do not change its name."""
    graph = integers()
    content = written(graph, tmp_path)
    layers = ["stem_conv", "stem_bias", "stem_requantise", "head_1_dense", "head_1_bias", "head_1_requantise"]
    for layer in layers:
        assert f"module digits__{layer}(" in content[f"digits__{layer}.sv"].decode()
    text, top, readme = (content[name].decode() for name in ("digits__stem_conv.sv", "digits.sv", "digits.md"))
    place = f"{__file__}:{lines_of('# line of the convolution')[0]}"
    assert f"from {place}\n" in text and "// Scope in the model: stem\n" in text
    assert f"// conv 3x3, 1 x 1 at once, from {place}\n  digits__stem_conv stem_conv (" in top
    assert "| head/1 |" in readme and f"| stem | {place}" in readme.replace("\\_", "_")


@needs_package("onnx", "onnx")
def test_layers_have_the_names_of_onnx_nodes(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).normal(size=(4, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="/stem/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="/stem/Relu"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 4, 4]) for n, c in (("x", 1), ("y", 4))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx")
    g = rlx.from_onnx(tmp_path / "net.onnx")
    ranges = rlx.observe_ranges(g, [{"x": np.ones((1, 1, 4, 4), np.float32)}])
    (tmp_path / "rtl").mkdir()
    content = written(rlx.integer_only(g, ranges), tmp_path / "rtl")
    assert "net__stem_Conv_conv.sv" in content and "net__stem_Conv_requantise.sv" in content
    assert "// Scope in the model: stem/Conv\n" in content["net__stem_Conv_conv.sv"].decode()


def test_ports_have_shapes_and_scales(tmp_path: Path) -> None:
    graph = integers()
    content = written(graph, tmp_path, "--axi=stream")
    known = rlx.quantizations(graph)
    number = f"(value - {known['image'].zero_point}) * {known['image'].scale:.9g}"
    assert f"| `image` | image | in | i8 1x1x4x4 | 8 | {number} | row by row |" in content["digits.md"].decode()
    for name in ("digits.sv", "digits_axi.sv"):
        assert f"Input 'image': i8 1x1x4x4, row by row; {number}\n" in content[name].decode()
    # The number in the comment is the scale, to the last bit of f32.
    assert np.float32(f"{known['image'].scale:.9g}") == np.float32(known["image"].scale)


def test_files_of_the_command_keep_names_and_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    g, params = floats()
    (tmp_path / "net.mlir").write_text(g.text(locations=True))
    write_safetensors(tmp_path / "w.safetensors", params)
    np.savez(tmp_path / "data.npz", image=np.ones((2, 1, 1, 4, 4), np.float32))
    out = str(tmp_path / "integers.mlir")
    words = ["quantize", str(tmp_path / "net.mlir"), "--integer-only", f"--params={tmp_path}/w.safetensors"]
    assert command.main([*words, f"--data={tmp_path}/data.npz", "-o", out]) == 0
    assert command.main(["compile", out, "--target=fpga", "-o", str(tmp_path / "rtl")]) == 0
    capfd.readouterr()
    text = (tmp_path / "rtl" / "digits__stem_conv.sv").read_text()
    assert f"{Path(__file__).name}:{lines_of('# line of the convolution')[0]}\n" in text


@drawn("number", range(30), of_each=3)
@pytest.mark.parametrize("preset", ["latency", "size"])
def test_wires_have_names(preset: str, number: int, seed: int) -> None:
    """CIRCT calls wires `_GEN_12` where it finds no name."""
    graphs = [*(f for f in MODELS.values()), recurrent]
    rng = np.random.default_rng(graph_seed(seed, 8000 + number))
    graph = graphs[number]() if number < len(graphs) else random_graph(rng)
    text = process.verilog(design_of(graph, preset=preset, part="xc7").hardware())
    assert not re.findall(r".*\b_GEN\w* = .*", text)
    assert "endmodule" in text
