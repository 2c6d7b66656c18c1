"""Graph drawings, and the colours of all drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import rlx
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.op import registry
from rlx.report import palette
from rlx.report.collapse import overview
from rlx.report.graph_svg import drawing
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from tests.models.tiny_bert import encoder

SVG = "{http://www.w3.org/2000/svg}"


def test_every_op_has_a_colour() -> None:
    """A family belongs to one group, and a gradient to the group of its forward op."""
    families = {spec.family for spec in registry.SPECS.values()} - {"backward"}
    listed = [family for group in palette.GROUPS for family in group.families]
    assert families | {"input", "param", "state", "output"} == set(listed) and len(listed) == len(set(listed))
    assert all(palette.group_of(op) is not None for op in registry.SPECS)
    assert palette.colour_of("rope_backward") == palette.colour_of("rope") != palette.colour_of("layer_norm")
    assert palette.colour_of("func.return") == palette.PAPER
    assert len({group.colour for group in palette.GROUPS}) == len(palette.GROUPS)


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """Return the boxes of a drawing by their tooltips: x, y, width, height."""
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


@pytest.mark.parametrize("stage", ["hir", "mir", "lir"])
def test_boxes_do_not_overlap_and_lie_inside(stage: str) -> None:
    svg = drawing(inspect_graph(Compilation(encoder(), target_of("cpu")).at(stage)))
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
    """Count the lines between boxes."""
    return len(ElementTree.fromstring(svg).findall(f"{SVG}path"))


def test_what_regions_read_leads_to_the_box_that_holds_them() -> None:
    g = rlx.Graph("main")
    x, flag, w = g.input("x", (4,)), g.input("flag", (), "bool"), g.param("w", (4,))
    h = g.tanh(x)
    g.set_outputs([g.if_(flag, lambda: g.if_(flag, lambda: h * w, lambda: h), lambda: h)])
    svg = drawing(inspect_graph(g))
    assert len(boxes(svg)) == 5 and lines(svg) == 4  # x → tanh → if, flag → if, if → output
    assert "w" in "".join(ElementTree.fromstring(svg).itertext()).split()
    with (g := rlx.Graph("main")).checkpoint():  # it has no operands and reads all values from outside
        y = g.tanh(g.input("x", (4,)))
    g.set_outputs([y])
    svg = drawing(inspect_graph(g))
    assert len(boxes(svg)) == 3 and lines(svg) == 2


@pytest.mark.parametrize("most", [100, 4])
def test_every_line_ends_in_a_visible_head_on_a_box(most: int) -> None:
    """Heads are outside the outlines, which are drawn later, and no two are at the same point."""
    svg = drawing(overview(inspect_graph(Compilation(encoder(), target_of("cpu")).at("mir")), most).listing)
    root = ElementTree.fromstring(svg)
    tips = [tuple(map(float, p.attrib["points"].split()[2].split(","))) for p in root.iter(f"{SVG}polygon")]
    outlines = [
        {k: float(r.attrib[k]) for k in ("x", "y", "width", "stroke-width")}
        for r in root.iterfind(f".//{SVG}g/{SVG}rect")
    ]
    assert {r["stroke-width"] for r in outlines} == ({1.0} if most == 100 else {1.0, 2.5})
    assert len(tips) == lines(svg) == len(set(tips)) > 5
    for x, y in tips:
        over = [r for r in outlines if r["x"] < x < r["x"] + r["width"]]
        assert any(abs(r["y"] - r["stroke-width"] / 2 - y) < 0.1 for r in over), (x, y)


def test_graphs_without_inputs_and_without_ops() -> None:
    g = rlx.Graph("weights")
    g.set_outputs([g.exp(g.param("w", (4,)))])
    assert len(boxes(drawing(inspect_graph(g)))) == 2
    g = rlx.Graph("identity")
    x = g.input("x", (4,))
    g.set_outputs([x])
    assert len(boxes(drawing(inspect_graph(g)))) == 2
