"""Prompt and notebook views of graphs, reports, sessions and programs: a short line, or HTML and a drawing."""

from __future__ import annotations

import io
import time
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.report.progress import waiting

LAYERS = 40


@pytest.fixture(scope="module")
def graph() -> rlx.Graph:
    g = rlx.Graph("deep")
    h = g.input("x", ("batch", 4))
    for i in range(LAYERS):
        h = g.relu(h @ g.param(f"w{i}", (4, 4)))
    g.set_outputs({"y": h})
    return g


def test_a_graph_says_what_it_is_in_a_line_and_prints_whole(graph: rlx.Graph) -> None:
    assert repr(graph).startswith("<Graph deep(x: f32[batch, 4], w0: f32[4, 4]")
    assert "… 34 more) -> y: f32[batch, 4]>" in repr(graph) and len(repr(graph)) < 300
    assert str(rlx.parse(str(graph))) == str(graph) == graph.text()


def test_reports_say_their_summary(graph: rlx.Graph) -> None:
    result = rlx.Pipeline(target="cpu").compile(graph)
    listing = rlx.inspect_graph(graph)
    reports: list[Any] = [result, result.fusion, result.dispatch, result.memory, result.history, listing]
    for report in reports:
        text = repr(report)
        summary = str(report).splitlines()[0]
        assert text.startswith(f"<{type(report).__name__}") and summary[:100] in text
        assert len(text) < 300 and "\n" not in text


@pytest.mark.parametrize("shown", ["graph", "listing", "module", "memory"])
def test_drawings_are_svg(shown: str, graph: rlx.Graph) -> None:
    things: dict[str, Any] = {
        "graph": lambda: graph,
        "listing": lambda: rlx.inspect_graph(graph),
        "module": lambda: rlx.GraphModule.from_graph(graph),
        "memory": lambda: rlx.Pipeline(target="cpu").compile(graph).memory,
    }
    thing = things[shown]()
    drawing = ElementTree.fromstring(thing._repr_svg_())
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg" and len(list(drawing.iter())) > 10
    assert "<svg" in thing._repr_html_()


def test_a_graph_that_is_too_large_has_a_listing_only() -> None:
    g = rlx.Graph("large")
    h = g.input("x", (2,))
    for _ in range(1_001):
        h = g.relu(h)
    g.set_outputs([h])
    shown: Any = g
    assert shown._repr_svg_() is None and "<svg" not in shown._repr_html_() and len(shown._repr_html_()) < 60_000


def test_sessions_programs_and_functions_say_what_they_are() -> None:
    assert repr(rlx.Session(threads=1)) == "<Session for cpu (host), 1 thread>"
    g = rlx.Graph("scorer")
    x, w = g.input("x", ("n", 4)), g.param("w", (4, 2))
    g.set_outputs({"y": x @ w})
    program = rlx.Session().compile(g)
    assert repr(program).startswith(
        "<Program scorer(x: f32[n, 4]; 1 parameter, 0 set) -> y: f32[n, 2] for cpu (host), "
    )
    program.set_param("w", np.ones((4, 2), np.float32))
    assert "1 parameter, all set" in repr(program) and repr(program).endswith("iB>")

    @rlx.jit
    def double(x: Any, times: int = 2) -> Any:
        return x * times

    assert repr(double).endswith(" for cpu, 0 signatures traced>")
    double.graph_for(rlx.Shape((3,)))
    assert repr(double).endswith(" for cpu, 1 signature traced>")

    @rlx.model
    def layer(x: rlx.Input("batch", 4), w: rlx.Param(4, 2), scale=1.0):
        return x @ w * scale

    assert repr(layer) == (
        "<rlx.model layer(x: input f32[batch, 4], w: param f32[4, 2], scale=1.0) for the default device>"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_waiting_is_said_on_a_terminal_after_a_second_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.report.progress._SECONDS", 0.02)
    terminal, pipe = Terminal(), io.StringIO()
    with waiting("compiling big for cpu", stream=terminal), waiting("another", stream=terminal):
        until = time.monotonic() + 10
        while "compiling" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert terminal.getvalue().startswith("\r\x1b[Kcompiling big for cpu (0 s)")
    assert terminal.getvalue().endswith("\r\x1b[K") and "\n" not in terminal.getvalue()
    assert "another" not in terminal.getvalue()
    with waiting("compiling big for cpu", stream=pipe):
        time.sleep(0.06)
    assert pipe.getvalue() == ""


def test_what_takes_no_second_is_not_said() -> None:
    terminal = Terminal()
    with waiting("compiling small for cpu", stream=terminal):
        pass
    assert terminal.getvalue() == ""
