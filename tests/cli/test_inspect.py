"""`rlx inspect`, its reports and its drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.svg import drawing
from rlx.models.bert import BertConfig, sentence_encoder
from rlx.runtime.inspect import at_stage, inspect_diff, inspect_graph
from tests.cli.calling import Command
from tests.models.tiny_bert import CONFIG

SVG = "{http://www.w3.org/2000/svg}"


def encoder(batch: Any = 2, length: Any = 8) -> rlx.Graph:
    fields = {name: value for name, value in CONFIG.items() if name in BertConfig.__dataclass_fields__}
    return sentence_encoder(BertConfig(**fields), batch, length)


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
    np.savez(path, w=np.ones((30, 20), np.float32), b=np.zeros(2, rlx.bf16.numpy), names=np.array(["a"]))
    assert command.output("inspect", path) == (
        f"{path}: 3 tensors, 2.352 KiB\n"
        "tensor  dtype     shape          size  encoding\n"
        "w       float32   [30, 20]  2.344 KiB  plain\n"
        "b       bfloat16  [2]             4 B  plain\n"
        "names   ?         [1]             4 B  <U1\n"
    )
    assert "no such file" in command.error("inspect", tmp_path / "none.safetensors")


def test_an_op_names_the_users_line_scope_and_attributes() -> None:
    g = rlx.Graph("main")
    x = g.input("x", (2, 3))
    with g.named("outer"), g.named("inner"):
        y = g.softmax(x, axis=0)
    g.set_outputs([y + 1.0])
    softmax, constant, add = inspect_graph(g).ops
    assert (softmax.name, softmax.scope, softmax.attributes["axis"]) == ("softmax", "outer/inner", 0)
    assert softmax.location is not None
    assert softmax.location.startswith(f"{__file__}:")
    assert constant.attributes["value"] == np.float32(1)
    assert (add.label, add.operands, add.results) == ("add", (*softmax.results, *constant.results), ("%2",))


def test_cost_is_the_sum_over_the_ops() -> None:
    g = rlx.Graph("main")
    x, w = g.input("x", ("n", 4)), g.param("w", (4, 2))
    g.set_outputs([g.matmul(g.relu(x), w)])
    report = inspect_graph(g)
    assert str(report.cost.flops) == str(sum(op.cost.flops for op in report.ops if op.cost))
    assert report.cost.flops.evaluate({"n": 3}) >= 2 * 3 * 4 * 2  # type: ignore[union-attr]
    assert "n" in str(report)


def test_states_and_their_updates() -> None:
    g = rlx.Graph("counter")
    count = g.state("count", (2,), init=3)
    g.set_outputs({"y": count * 2.0})
    g.update(count, count + 1.0)
    text = str(inspect_graph(g))
    assert "    state count: f32[2]" in text
    assert [line for line in text.splitlines() if "output" in line] == ["    output y: f32[2] = %1"]


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
    reports = [inspect_graph(at_stage(graph, stage)) for stage in ("hir", "mir", "lir")]
    assert str(graph) == before
    assert inspect_diff(reports[0], reports[0]) == "hir to hir: the same ops"


def test_a_stage_that_has_passed(command: Command, hello: Path) -> None:
    assert command.error("inspect", hello, "--stage=hir") == "'hello' is at stage mir, so it has no hir"


def test_an_artifact(command: Command, hello_artifact: Path) -> None:
    out = command.output("inspect", hello_artifact)
    assert out.startswith("@hello compiled for cpu (host), ")
    assert "    input x: f32[1, 4]\n    param w: f32[4, 2]\n    output y: f32[1, 2]\n" in out
    assert "flags: --iree" in out
    assert "need MLIR text" in command.error("inspect", hello_artifact, "--stage=mir")


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """The rectangles of a drawing, by what hovering over them says: x, y, width, height."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, rectangle = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert rectangle is not None
        assert title.text not in found
        x, y, width, height = (float(rectangle.attrib[a]) for a in ("x", "y", "width", "height"))
        found[title.text] = x, y, width, height
    return found


def test_svg(command: Command, encoder_file: Path, tmp_path: Path) -> None:
    command.output("inspect", encoder_file, "--svg", tmp_path / "encoder.svg")
    found = boxes((tmp_path / "encoder.svg").read_text())
    blocks = [box for title, box in found.items() if "transformer_encoder_block(" in title]
    assert len(blocks) == 2
    assert found["input ids"][1] < blocks[0][1] < blocks[1][1] < found["output embedding"][1]


@pytest.mark.parametrize("stage", ["hir", "mir", "lir"])
def test_boxes_do_not_overlap_and_lie_inside(stage: str) -> None:
    svg = drawing(inspect_graph(at_stage(encoder(), stage)))
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    found = list(boxes(svg).values())
    assert len(found) > 10
    for i, (x, y, w, h) in enumerate(found):
        assert x >= 0 <= y
        assert x + w <= width
        assert y + h <= height
        for x2, y2, w2, h2 in found[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_what_depends_on_no_input_is_written_where_it_is_read() -> None:
    g = rlx.Graph("main")
    x, w = g.input("x", (4,)), g.param("w & <b>", (4,))
    g.set_outputs({"y": x + g.exp(w) * 2.0, "z": g.exp(w)})
    svg = drawing(inspect_graph(g))
    assert len(boxes(svg)) == 4
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "mul(exp(w & <b>), 2.0)" in text
    assert "exp(w & <b>)" in text


def lines(svg: str) -> int:
    """How many lines lead from box to box."""
    return len(ElementTree.fromstring(svg).findall(f"{SVG}path"))


def test_what_regions_read_leads_to_the_box_that_holds_them() -> None:
    g = rlx.Graph("main")
    x, flag, w = g.input("x", (4,)), g.input("flag", (), "bool"), g.param("w", (4,))
    h = g.tanh(x)
    g.set_outputs([g.if_(flag, lambda: g.if_(flag, lambda: h * w, lambda: h), lambda: h)])
    svg = drawing(inspect_graph(g))
    assert len(boxes(svg)) == 5 and lines(svg) == 4  # x → tanh → if, flag → if, if → output
    assert "w" in "".join(ElementTree.fromstring(svg).itertext()).split()
    with (g := rlx.Graph("main")).checkpoint():  # takes nothing, and reads all from outside
        y = g.tanh(g.input("x", (4,)))
    g.set_outputs([y])
    svg = drawing(inspect_graph(g))
    assert len(boxes(svg)) == 3 and lines(svg) == 2


def test_graphs_without_inputs_and_without_ops() -> None:
    g = rlx.Graph("weights")
    g.set_outputs([g.exp(g.param("w", (4,)))])
    assert len(boxes(drawing(inspect_graph(g)))) == 2
    g = rlx.Graph("identity")
    x = g.input("x", (4,))
    g.set_outputs([x])
    assert len(boxes(drawing(inspect_graph(g)))) == 2
