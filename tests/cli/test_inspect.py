"""`rlx inspect`."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import rlx
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.graph.listing_diff import inspect_diff
from rlx.report.text import bytes_text
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from tests.cli.calling import Command
from tests.models.quantized_files import folder_pair
from tests.models.tiny_bert import encoder
from tests.report.pages import Page
from tests.report.test_graph_svg import boxes
from tests.targets.c.test_c import layer


@pytest.fixture
def encoder_file(tmp_path: Path) -> Path:
    path = tmp_path / "encoder.mlir"
    path.write_text(encoder().module.operation.get_asm(enable_debug_info=True))
    return path


def test_a_report_says_what_there_is(command: Command, hello: Path) -> None:
    assert command.output("inspect", hello) == (
        "@hello [mir]: 1 ops: 1 matmul\n"
        "    input x: f32[1, 4]\n"
        "  1 params, 32 bytes\n"
        "    param w: f32[4, 2]\n"
        "    output y: f32[1, 2] = %0\n"
        "  16 flops, 56 bytes read and written by the ops\n"
        f"  %0 = matmul(x, w) : f32[1, 2]{' ' * 33} // 16 flops, {hello}:8:10\n"
    )


def test_weights_are_listed(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    q, r = np.zeros(3, rlx.f8e4m3fn.numpy), np.zeros(3, rlx.f8e5m2.numpy)
    np.savez(path, w=np.ones((30, 20), np.float32), b=np.zeros(2, rlx.bf16.numpy), names=np.array(["a"]), q=q, r=r)
    assert command.output("inspect", path) == (
        f"{path}: 5 tensors, 2.357 KiB\n"
        "tensor  dtype        shape          size  encoding\n"
        "w       float32      [30, 20]  2.344 KiB  plain\n"
        "b       bfloat16     [2]             4 B  plain\n"
        "names   ?            [1]             4 B  <U1\n"
        "q       ?            [3]             3 B  untyped\n"
        "r       float8_e5m2  [3]             3 B  plain\n"
    )
    assert "no such file" in command.error("inspect", tmp_path / "none.safetensors")


def test_what_a_file_starts_with_decides_whether_it_holds_weights(
    command: Command, tmp_path: Path, hello: Path, hello_artifact: Path
) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    safetensors = len(header).to_bytes(8, "little") + header + bytes(4)
    array = np.ones((2, 3), np.float32)
    folder = tmp_path / "model"
    folder.mkdir()
    archive, plain = io.BytesIO(), io.BytesIO()
    np.savez(archive, w=array)
    np.save(plain, array)
    for name in ("w", "w.mlir", "w.npy", "w.rlxa"):
        for content in (archive.getvalue(), plain.getvalue(), safetensors):
            (tmp_path / name).write_bytes(content)
            assert command.output("inspect", tmp_path / name).startswith(f"{tmp_path / name}: 1 tensors, ")
    (folder / "model.safetensors").write_bytes(safetensors)
    assert command.output("inspect", folder).startswith(f"{folder / 'model.safetensors'}: 1 tensors, ")
    (tmp_path / "graph.npz").write_bytes(hello.read_bytes())
    assert command.output("inspect", tmp_path / "graph.npz").startswith("@hello [mir]")
    (tmp_path / "program.safetensors").write_bytes(hello_artifact.read_bytes())
    assert command.output("inspect", tmp_path / "program.safetensors").startswith("@hello compiled for cpu")


def test_stages(command: Command, encoder_file: Path) -> None:
    lines = command.output("inspect", encoder_file, "--stage=all", "--stats").splitlines()
    kinds = [line.split(":")[0] for line in lines]
    assert kinds == [
        "@sentence_encoder [hir]",
        "hir to mir",
        "@sentence_encoder [mir]",
        "mir to lir",
        "@sentence_encoder [lir]",
    ]
    assert "2 transformer_encoder_block" in lines[0]
    assert "-2 transformer_encoder_block" in lines[1]
    assert "transformer_encoder_block" not in lines[2]
    assert "2 attention" in lines[2]
    assert "attention" not in lines[4]
    for stage in ("hir", "mir", "lir"):
        assert command.output("inspect", encoder_file, f"--stage={stage}").startswith(f"@sentence_encoder [{stage}]")


def test_inspecting_does_not_change_the_graph() -> None:
    graph = encoder()
    before = str(graph)
    compilation = Compilation(graph, target_of("cpu"))
    reports = [inspect_graph(compilation.at(stage)) for stage in ("hir", "mir", "lir")]
    assert str(graph) == before
    assert inspect_diff(reports[0], reports[0]).summary() == "hir to hir: the same ops"


def test_a_stage_that_has_passed(command: Command, hello: Path) -> None:
    assert command.error("inspect", hello, "--stage=hir") == "'hello' is at stage mir, so it has no hir"


def test_an_artifact(command: Command, hello_artifact: Path) -> None:
    out = command.output("inspect", hello_artifact)
    assert out.startswith("@hello compiled for cpu (host), ")
    assert "    input x: f32[1, 4]\n    param w: f32[4, 2]\n    output y: f32[1, 2]\n" in out
    assert "flags: --iree" in out and "  cpu:\n    architecture: " in out
    assert "\n  reads inputs in the caller's memory: yes\n" in out and "borrow" not in out
    assert "\n  requirements: none\n" in out and "True" not in out
    assert max(map(len, out.splitlines())) <= 100
    assert "need MLIR text" in command.error("inspect", hello_artifact, "--stage=mir")


def test_svg(command: Command, encoder_file: Path, tmp_path: Path) -> None:
    command.output("inspect", encoder_file, "--svg", tmp_path / "encoder.svg")
    found = boxes((tmp_path / "encoder.svg").read_text())
    blocks = [box for title, box in found.items() if "transformer_encoder_block(" in title]
    assert len(blocks) == 2
    assert found["input input_ids"][1] < blocks[0][1] < blocks[1][1] < found["output embedding"][1]


def test_memory(command: Command, encoder_file: Path, tmp_path: Path) -> None:
    """The memory locations of a graph, and of a file with its plan, by the names of the listing."""
    out = command.output("inspect", encoder_file, "--stage=lir", "--memory", "--memory-svg", tmp_path / "memory.svg")
    listing, report = out.split("\nmemory of @")
    assert "most is in use:" in report and "what would lower it:" in report and "gap 0.0 %" in report
    name, op = re.findall(r"^  (%\d+) +(\w+) ", report, re.MULTILINE)[-1]
    assert f"{name} = {op}(" in listing
    assert ElementTree.parse(tmp_path / "memory.svg").getroot().tag.endswith("svg")


def test_sizes_are_bound(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("exponentials")
    g.set_outputs([g.exp(g.input("x", ("n", 4)))])
    path = tmp_path / "exponentials.mlir"
    path.write_text(str(g))
    out = command.output("inspect", path, "--stage=lir", "--memory", "--bind=n=3")
    assert "f32[3, 4]" in out and "f32[n, 4]" not in out
    assert "no symbol m" in command("inspect", path, "--bind=m=3").err


def test_memory_of_a_planned_file(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("planned")
    g.set_outputs([g.exp(g.input("x", (16,)))])
    planned = tmp_path / "planned.mlir"
    planned.write_text(str(rlx.passes.run(g, "builtin.module(rlx-plan-memory{alignment=256},rlx-check-lir)")))
    assert "memory of @planned: arena 256 B" in command.output("inspect", planned, "--memory")
    planned.write_text(planned.read_text().replace("offset = 0, over = 0", "offset = 256"))
    assert "lies outside of the arena" in command("inspect", planned, "--memory").err


def test_memory_is_that_of_the_targets_program(command: Command, tmp_path: Path) -> None:
    """The C back end computes a convolution and its scale in one kernel; the plan has its arena and its fullest step."""
    path = tmp_path / "layer.mlir"
    path.write_text(str(layer(channels=8, size=16)[0]))
    compiled = command.output("compile", path, "--target=cortexm", "-o", tmp_path / "layer")
    arena = int(re.findall(r"arena: (\d+) bytes", compiled)[0])
    page = tmp_path / "layer.html"
    out = command.output("inspect", path, "--target=cortexm", "--memory", "--html", page)
    assert f"({arena} B)" in out.partition("memory of @")[2].splitlines()[0]
    assert re.search(r"q_conv2d .* registers", out)
    assert f"arena {bytes_text(arena)}" in page.read_text()
    assert arena < 4 * 8 * 16 * 16  # the i32 sums are not stored


def test_memory_of_an_open_size_is_that_of_the_targets_program(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("open")
    x = g.relu(g.input("x", ("n", 4)))
    g.set_outputs([g.sum(x, 0) * g.sum(g.exp(x), 0)])
    path = tmp_path / "open.mlir"
    path.write_text(str(g))
    of_64 = re.findall(r"arena .* gap", command.output("inspect", path, "--target=c", "--memory", "--bind=n=64"))
    out = command.output("inspect", path, "--target=c", "--memory")
    assert "memory of @open for n = 64: " in out and re.findall(r"arena .* gap", out) == of_64


def test_two_graphs_are_compared(command: Command, hello: Path, tmp_path: Path) -> None:
    """The table has the numbers of both, and the page also their ops, and with --measure their times."""
    g = rlx.Graph("hello")
    g.set_outputs({"y": g.relu(g.input("x", (1, 4)) @ g.param("w", (4, 6)))})
    other, page_file = tmp_path / "relu.mlir", tmp_path / "both.html"
    other.write_text(str(g))
    out = command.output("inspect", hello, other, "--html", page_file)
    assert out.startswith("hello.mlir and relu.mlir: 1 ops went, 2 came\n")
    rows = {line[2:].partition("  ")[0]: re.split(r" {2,}", line[2:].strip())[1:] for line in out.splitlines()[2:]}
    assert rows["ops, lir"] == ["1", "2", "+100.0 %"]
    assert rows["operations of a run"] == ["16", "54", "+237.5 %"]
    assert rows["parameters"] == ["32 B", "96 B", "+200.0 %"]
    page = Page(page_file.read_text())
    page.check()
    assert all(text in page.text for text in ("Changed ops", "relu", "+200.0 %", "hello.mlir", "relu.mlir"))
    assert "measured time" not in page.text
    out = command.output("inspect", hello, other, "--measure", "--input=x=1x4xf32=1", "--html", page_file)
    assert "measured time" in out and "least time by the roofline" in out
    page = Page(page_file.read_text())
    page.check()
    assert "Measured time" in page.text and "time of the first" in page.text
    assert command.output("inspect", hello, hello).splitlines()[0].endswith("0 ops went, 0 came")
    assert "--stats needs a single graph" in command.error("inspect", hello, other, "--stats")
    assert "is also an input, FILE" in command.error("inspect", hello, other, "--html", other)
    command.output("compile", hello, "-o", tmp_path / "hello.rlxa")
    assert "compiled already" in command.error("inspect", hello, tmp_path / "hello.rlxa")


def test_one_graph_is_compared_with_other_options(command: Command, encoder_file: Path, tmp_path: Path) -> None:
    page_file = tmp_path / "both.html"
    out = command.output("inspect", encoder_file, "--second=--policy=fusable -O0", "--html", page_file)
    assert out.startswith("encoder.mlir and encoder.mlir --policy=fusable -O0: ")
    (mir,) = (line for line in out.splitlines() if line.startswith("  ops, mir"))
    fused, plain = map(int, re.findall(r" (\d+) ", mir)[:2])
    assert fused < plain
    page = Page(page_file.read_text())
    page.check()
    assert "options: -O0 policy='fusable'" in page.text and "options: -O2 (of the first)" in page.text
    for wrong in ("--fly", "-O7", "'", "other.mlir"):
        assert "--second: " in command.error("inspect", encoder_file, f"--second={wrong}")
    assert "unknown target: 'air'" in command.error("inspect", encoder_file, "--second=--target=air")


def test_a_comparison_names_the_sizes_of_both(command: Command, tmp_path: Path) -> None:
    """A size that a graph leaves open counts as 64: the page says so, and warns if the other graph has another size."""
    g = rlx.Graph("net")
    g.set_outputs([g.relu(g.input("x", ("batch", 4)) @ g.param("w", (4, 4)))])
    path, page_file = tmp_path / "net.mlir", tmp_path / "both.html"
    path.write_text(str(g))
    sizes = "first, net.mlir: work and memory are for batch = 64, which the graph leaves open"
    out = command.output("inspect", path, "--second=--bind=batch=32", "--html", page_file)
    page = Page(page_file.read_text())
    for text in (out, page.text):
        assert sizes in text and "second, net.mlir --bind=batch=32: all sizes are fixed" in text
        assert "arning: the inputs of both differ" in text and "x f32[64, 4] and f32[32, 4]" in text
    out = command.output("inspect", path, "--second=-O0")
    assert sizes in out and "second, net.mlir -O0: work and memory are for batch = 64" in out and "warning" not in out
    out = command.output("inspect", path, "--second=-O0", "--bind=batch=8")
    assert "open" not in out and "fixed" not in out


def test_html(command: Command, hello: Path, tmp_path: Path) -> None:
    """The page about the compilation is a single file without external resources."""
    listing = command.output("inspect", hello, "--html", tmp_path / "hello.html")
    page = Page((tmp_path / "hello.html").read_text())
    page.check()
    assert listing.rstrip() in page.text and "Measured time" not in page.text
    command.output("inspect", hello, f"--html={tmp_path / 'hello.html'}", "--input", "x=1x4xf32=1")
    assert "Measured time" in Page((tmp_path / "hello.html").read_text()).text
    assert "need --html" in command.error("inspect", hello, "--measure")


def test_quantised_folders_are_listed_with_packed_formats(command: Command, tmp_path: Path) -> None:
    quantised, plain = folder_pair(tmp_path, "mlx_4")
    listed = command.output("inspect", quantised).splitlines()
    row = next(line for line in listed if line.startswith("model.layers.0.mlp.up_proj.weight "))
    assert row.split() == [
        "model.layers.0.mlp.up_proj.weight",
        "float32",
        "[256,",
        "64]",
        "10",
        "KiB",
        "affine4_block32",
    ]
    assert not any("scales" in line for line in listed)
    assert "plain" in command.output("inspect", plain)
    (quantised / "config.json").write_text('{"quantization_config": {"quant_method": "hqq"}}')
    assert "weights of the 'quant_method' 'hqq' are not supported" in command.error("inspect", quantised)
