"""The memory report: the plan as text and as a drawing."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import rlx
from rlx.report.memory import analyse_memory
from tests.plan.test_memory_plan import encoder


def test_text_names_values_and_lines() -> None:
    g = rlx.Graph("listed")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 4))
    y = g.matmul(x, w)
    g.set_outputs({"y": g.reshape(g.relu(y), (8,))})
    text = str(analyse_memory(g))
    summary, header, *rows = text.splitlines()
    assert summary.startswith("memory of @listed: arena 128 B")
    assert header.split() == ["value", "op", "shape", "offset", "bytes", "steps", "memory", "source"]
    assert len(rows) == 5
    assert "test_memory_report.py:" in next(row for row in rows if "matmul" in row)
    assert "in place %0" in text and "view %1" in text and "output y" in text and "external" in text


def test_sizes_of_symbols_and_an_empty_plan() -> None:
    g = rlx.Graph("symbolic")
    g.set_outputs([g.relu(g.input("x", ("batch", 4)))])
    assert "for batch = 10" in str(analyse_memory(g, sizes={"batch": 10}))
    ElementTree.fromstring(analyse_memory(g, sizes={"batch": 0}).svg())


def test_drawings() -> None:
    g = encoder()
    lowered = rlx.passes.run(g, "builtin.module(rlx-lower-blocks,rlx-decompose)")
    plan = analyse_memory(lowered)
    drawing = ElementTree.fromstring(plan.svg())
    namespace = "{http://www.w3.org/2000/svg}"
    groups = drawing.findall(f"{namespace}g")
    shown = [v for v in plan.values if v.offset is not None and v.relation != "view"]
    assert len(groups) == len(shown)
    titles = [group.findtext(f"{namespace}title") or "" for group in groups]
    assert all(title.startswith(f"{v.name} = {v.label}: ") for v, title in zip(shown, titles, strict=True))
    width, height = (float(drawing.get(side) or 0) for side in ("width", "height"))
    for rectangle in drawing.iter(f"{namespace}rect"):
        x, y, w, h = (float(rectangle.get(k) or 0) for k in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
