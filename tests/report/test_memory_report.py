"""The memory report: the plan as text and as a drawing."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import rlx
from rlx.report.memory import analyse_memory
from tests.plan.models import model
from tests.plan.test_memory_plan import encoder
from tests.plan.test_schedule import wide


def test_text_names_values_and_lines() -> None:
    g = rlx.Graph("listed")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 4))
    y = g.matmul(x, w)
    g.set_outputs({"y": g.reshape(g.relu(y), (8,))})
    text = str(analyse_memory(g))
    assert text.startswith("memory of @listed: arena 128 B")
    header, *rows = text.splitlines()[-6:]
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
    shown = [v for v in plan.values if v.offset is not None and v.relation not in ("view", "row")]
    assert len(groups) == len(shown)
    titles = [group.findtext(f"{namespace}title") or "" for group in groups]
    assert all(title.startswith(f"{v.name} = {v.label}: ") for v, title in zip(shown, titles, strict=True))
    width, height = (float(drawing.get(side) or 0) for side in ("width", "height"))
    for rectangle in drawing.iter(f"{namespace}rect"):
        x, y, w, h = (float(rectangle.get(k) or 0) for k in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height


def test_the_fullest_step_and_what_would_lower_it() -> None:
    report = analyse_memory(wide(6))
    text = str(report)
    step = report.steps.index("sum")
    assert f"at step {report.peak_step}, {report.steps[report.peak_step]} (test_schedule.py:" in text
    assert report.peak_step <= step and [v.label for v in report.at_the_peak()[:6]] == ["matmul"] * 6
    assert " 16 %  " in text and "another order of the ops: rlx-schedule-memory takes 9.125 KiB, 81 % less" in text
    ordered = analyse_memory(rlx.passes.run(wide(6), "builtin.module(rlx-schedule-memory)"))
    assert not any("another order" in line for line in ordered.advice())


def test_what_a_gradient_keeps_and_inputs_that_need_a_place() -> None:
    g = rlx.Graph("deep")
    x = g.input("x", (32, 32))
    y = x
    for i in range(12):
        y = g.exp(g.tanh(y @ g.param(f"w{i}", (32, 32))))
    g.set_outputs([g.mean(y)])
    gradient = rlx.passes.run(rlx.grad(g), "builtin.module(rlx-decompose,rlx-simplify,canonicalize,cse)")
    advice = "\n".join(analyse_memory(gradient).advice())
    assert "is kept for later, the most by" in advice and "g.checkpoint()" in advice
    assert "inputs take 4 KiB of it" in advice
    skip = rlx.Graph("skip")  # keeps values too, but is not a gradient
    values = [skip.input("x", (32, 32))]
    for _ in range(12):
        values.append(skip.exp(values[-1]))
    skip.set_outputs([sum(values[::-1][1:], values[-1])])
    assert "g.checkpoint()" not in "\n".join(analyse_memory(skip).advice())
    assert "inputs take" not in str(analyse_memory(gradient, allocate_inputs=False))


def test_a_drawing_of_many_values() -> None:
    """Bands of used bytes are below the arena line, only wide steps have names, and thin boxes have no outline."""
    report = analyse_memory(model("unet", differentiated=True))
    drawing = ElementTree.fromstring(report.svg())
    namespace = "{http://www.w3.org/2000/svg}"
    named = [t for t in drawing.iter(f"{namespace}text") if "rotate" in (t.get("transform") or "")]
    places = sorted(float((t.get("transform") or "").split("(")[1].split()[0]) for t in named)
    assert 15 <= len(named) <= 40 and all(b - a >= 39 for a, b in pairwise(places))
    assert len(drawing.findall(f"{namespace}polygon")) >= 3
    dot = drawing.find(f"{namespace}circle")
    assert dot is not None and f"most at step {report.peak_step}" in "".join(drawing.itertext())
    boxes = [r for g in drawing.findall(f"{namespace}g") for r in g.findall(f"{namespace}rect")]
    thin = [b for b in boxes if float(b.get("height") or 0) < 3]
    assert thin and all(b.get("stroke") == "none" for b in thin)
