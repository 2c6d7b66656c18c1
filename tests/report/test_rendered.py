"""Reports as Chromium renders them, on wide and narrow screens, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.report.comparison import ComparisonReport
from rlx.report.compile_report import CompileReport
from rlx.report.html import standalone
from rlx.report.profile import ProfileReport
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from tests.browser import chromium
from tests.models.tiny_bert import encoder
from tests.report.pages import Page
from tests.report.rendered import SCHEMES, WIDTHS, notebook, problems
from tests.report.test_compile_report import MACHINE, chain, hostile, profile_of


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def wide() -> Any:
    """Return a graph with long names, many inputs of one op, and values of different sizes."""
    g: Any = rlx.Graph("a_graph_with_a_name_that_is_longer_than_most_names_of_graphs_are")
    xs = [g.input(f"embedding_of_the_tokens_of_the_sentence_number_{i}", (8, 4 << i)) for i in range(6)]
    w = g.param("model.encoder.layer.0.attention.self.query_key_value.weight", (252, 16))
    h = g.concat(xs, 1) @ w
    g.set_outputs({f"probabilities_of_the_classes_{i}": g.softmax(h * float(i + 1)) for i in range(4)})
    return g


GRAPHS = {
    "encoder": encoder,
    "wide": wide,
    "layers": lambda: chain(12, named=True, alike=True),
    "hostile": hostile,
}


@cache
def report(name: str) -> CompileReport:
    """Return the report on a graph, with invented times."""
    compilation = Compilation(GRAPHS[name](), target_of("cpu"))
    return CompileReport(compilation, MACHINE, profile_of(CompileReport(compilation, MACHINE)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", GRAPHS)
def test_pages(name: str, width: int, scheme: str, browser: Any) -> None:
    assert problems(browser, report(name).html(), width=width, scheme=scheme) == []


def test_a_narrow_screen_has_all_columns_of_passes_and_dispatch(browser: Any) -> None:
    """A long text in a column outside of the screen would make its row high and leave the visible cells blank."""
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.set_content(report("encoder").html())
    hidden = """() => [...document.querySelectorAll("h2")].filter(h => ["Passes", "Dispatch"].includes(h.textContent))
      .map(h => { let e = h.nextElementSibling; while (!e.matches(".scroll")) e = e.nextElementSibling;
                  return e.scrollWidth - e.clientWidth; })"""
    assert page.evaluate(hidden) == [0, 0]
    page.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_comparisons(width: int, scheme: str, browser: Any) -> None:
    names = ("the_encoder_before_a_change_with_a_long_name.mlir", "<b>hostile</b>.mlir")
    page = ComparisonReport(names, report("wide"), report("hostile")).html()
    Page(page).check()
    assert problems(browser, page, width=width, scheme=scheme) == []


def test_names_are_escaped_in_one_place() -> None:
    """Pages and drawings use `markup`, which also removes characters that XML forbids."""
    package = Path(rlx.__file__).parent
    users = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"from html import .*escape|html\.escape\(|saxutils", path.read_text())
    ]
    assert users == ["support/printable.py"]


def test_the_checks_find_what_is_wrong(browser: Any) -> None:
    page = report("encoder").html()
    wrong = {
        "wider": page.replace("<h1>", '<h1 style="width: 3000px">'),
        "text is cut": page.replace('text-anchor="middle"', 'text-anchor="start" dx="2000"'),
        "overlaps": page.replace('<text x="12" y="40"', '<text x="12" y="22"'),
        "cut": page.replace("max-width: 100%; height: auto", "width: 5000px !important"),
        "markup": page.replace("<h2", "<img><h2"),
    }
    for what, changed in wrong.items():
        assert changed != page
        assert any(what in problem for problem in problems(browser, changed, width=1280, scheme="light")), what
    light = page.replace("prefers-color-scheme: dark", "max-width: 1px")
    assert any("cannot be read" in p or "white" in p for p in problems(browser, light, width=1280, scheme="dark"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", SCHEMES)
def test_notebooks(theme: str, width: int, browser: Any) -> None:
    """The theme of the notebook decides, not that of the system."""
    outputs = [thing._repr_html_() for thing in shown()]
    page = notebook(*outputs, light=theme == "light")
    for scheme in SCHEMES:
        assert problems(browser, page, width=width, scheme=scheme) == []


def shown() -> Iterator[Any]:
    result = rlx.Pipeline(target="cpu").compile(encoder())
    times = report("encoder").profile
    assert isinstance(times, ProfileReport)
    yield from (result.given, result, result.history, result.fusion, result.dispatch, result.memory, times)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_files_of_drawings(scheme: str, browser: Any) -> None:
    memory = report("wide").memory
    assert memory is not None
    svg = standalone(memory.svg())
    page = f'<!doctype html><body class="rlx" style="margin: 0">{svg}</body>'
    assert problems(browser, page, width=1700, scheme=scheme) == []


def test_drawings_zoom_and_move(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_content(report("layers").html())
    frame = page.locator(".frame").locator("visible=true").first
    drawing, tools = frame.locator("svg"), frame.locator("xpath=preceding-sibling::*[1]")
    before = drawing.bounding_box()["width"]
    for _ in range(8):
        tools.get_by_role("button", name="zoom in").click()
    assert drawing.bounding_box()["width"] > 3 * before
    box = frame.bounding_box()
    assert box["width"] <= 1280 and box["height"] <= 900
    at = frame.evaluate("e => [e.scrollLeft, e.scrollTop]")
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    page.mouse.up()
    assert frame.evaluate("e => [e.scrollLeft, e.scrollTop]") == [at[0] + 100, at[1] + 40]
    tools.get_by_role("button", name="whole drawing").click()
    assert drawing.bounding_box()["width"] == pytest.approx(before, abs=1)
    page.close()


def test_tables_scroll_on_narrow_screens(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.set_content(report("encoder").html())
    page.evaluate("() => document.querySelectorAll('details').forEach(e => e.open = true)")
    cut = page.evaluate(
        """() => [...document.querySelectorAll("table")].filter(t => {
          const s = t.closest(".scroll"); return !s || (t.offsetWidth > s.clientWidth && !["auto", "scroll"].includes(
            getComputedStyle(s).overflowX)); }).length"""
    )
    wider = page.evaluate(
        "() => [...document.querySelectorAll('table')].filter(t => t.offsetWidth > t.closest('.scroll').clientWidth).length"
    )
    assert cut == 0 and wider > 2
    page.close()


@pytest.mark.parametrize("case", range(6))
def test_no_measurement_is_above_the_roof(case: int, seed: int) -> None:
    """For drawn times, however short, no point is above the roof, and the sum is not less than the least time."""
    rng = np.random.default_rng([case, seed if isinstance(seed, int) else 0])
    compilation = Compilation(encoder(), target_of("cpu"))
    times = profile_of(CompileReport(compilation, MACHINE))
    events = tuple(
        type(e)(e.kernel, e.ops, e.layout, e.run, e.start, float(10 ** rng.uniform(-12, -3)))
        for e in times.measurement.events
    )
    measurement = type(times.measurement)("local-sync", 1, 1, 1.0, events)
    machine = type(MACHINE)(MACHINE.flops, MACHINE.bytes, 1, 3e10, int(rng.integers(0, 1 << 16)))
    profile = ProfileReport(times.name, times.target, measurement, times.listing, machine)
    assert profile.least_seconds <= profile.seconds * (1 + 1e-9)
    assert profile.limits.flops <= 1.5 * machine.flops and profile.limits.cached_bytes <= 1.5 * machine.cached_bytes
    for kernel, point in zip(profile.kernels, profile.points(), strict=False):
        assert profile.limits.seconds(point.work) <= point.seconds * (1 + 1e-9)
        assert point.seconds == kernel.seconds or kernel.seconds < profile.limits.seconds(kernel.work)
    assert all(float(row[5].split()[0]) <= 100 for row in profile.rows() if row[5])
    assert sum(profile.op_seconds.values()) == pytest.approx(sum(k.seconds for k in profile.kernels if k.ops))
