"""The page about a compilation, and notebook views: their structure, their numbers, and names that are markup."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import pytest

import rlx
from rlx.ir.graph.listing import GraphReport, inspect_graph
from rlx.report import palette
from rlx.report.collapse import GROUP, MOST, Overview, overview
from rlx.report.comparison import ComparisonReport
from rlx.report.compile_report import CompileReport
from rlx.report.graph_svg import GraphTimes, drawing
from rlx.report.profile import ProfileReport
from rlx.report.roofline import MachineLimits
from rlx.targets.compilation import Compilation
from rlx.targets.host import usable_cpus
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import KernelEvent, Measurement
from rlx.targets.registry import target_of
from tests.models.tiny_bert import encoder
from tests.report.pages import Page

MACHINE = MachineLimits(1e11, 1e10)
HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J\u202e\x00 \ud800".replace(
    "\x00", ""
)


def chain(layers: int, *, named: bool, alike: bool = False) -> Any:
    """Return a graph of layers. Only layers that are alike are folded in drawings."""
    g: Any = rlx.Graph("chain")
    h = x = g.input("x", (4, 4))
    for i in range(layers):
        with g.named(f"layer{i}") if named else contextlib.nullcontext():
            active = g.leaky_relu(h @ g.transpose(g.param(f"w{i}", (4, 4)), (1, 0)), 0.5 if alike else 1 / (i + 2))
            h = g.tanh(active - x) + g.exp(h)
    g.set_outputs({"y": h})
    return g


def hostile() -> Any:
    name = HOSTILE.encode("utf-8", "ignore").decode()
    g: Any = rlx.Graph(name)
    x = g.input(f"x{name}", ("n", 4))
    with g.named(name):
        g.set_outputs({f"y{name}": g.softmax(g.relu(x @ g.param(f"w{name}", (4, 4)) + 1.0))})
    return g


def profile_of(report: CompileReport) -> ProfileReport:
    """Return invented times, with a kernel per op."""
    listing = inspect_graph(report.compilation.lir)
    events = [KernelEvent(f"k{HOSTILE}", (i,), False, 0, float(i), 1e-6 * (i + 1)) for i in range(len(listing.ops))]
    measured = Measurement("local-sync", 1, 1, 1.0, tuple(events))
    return ProfileReport(report.compilation.given.name, "cpu", measured, listing, MACHINE)


def test_ops_inside_of_a_region_have_no_time_of_their_own() -> None:
    """A kernel computes the whole region. Its ops have blank times in a comparison, with a note."""

    def scaled(b: Any, x: Any) -> Any:
        return b.gelu(x) * 2.0

    reports = []
    for is_region in (False, True):
        g: Any = rlx.Graph("scaled")
        x = g.input("x", (64, 64)) @ g.param("w", (64, 80))
        g.set_outputs([g.elementwise_region(lambda x, g=g: scaled(g, x), x) if is_region else scaled(g, x)])
        compilation = Compilation(g, target_of("cpu"), CompileOptions(opt=0) if not is_region else None)
        profile = profile_of(CompileReport(compilation, MACHINE))
        ops = profile.listing.ops
        events = tuple(e for e in profile.measurement.events if not ops[e.ops[0]].depth and ops[e.ops[0]].operands)
        profile = replace(profile, measurement=replace(profile.measurement, events=events))
        reports.append(CompileReport(compilation, MACHINE, profile))
    plain, region = reports
    rows = {row[0]: row[4:] for row in ComparisonReport(("plain", "region"), plain, region).op_rows()}
    assert (
        "elementwise_region" in rows and rows["elementwise_region"][0] == "0" and "µs" in rows["elementwise_region"][1]
    )
    assert "µs" in rows["mul"][0] and rows["mul"][1:] == ("", "")
    assert rows["matmul"][2] == "the same"
    page = Page(ComparisonReport(("plain", "region"), plain, region).html()).text
    assert "Ops that run inside of another op have no time of their own: " in page and " in elementwise_region." in page
    assert "no time of their own" not in ComparisonReport(("plain", "plain"), plain, plain).html()


def test_the_numbers_of_the_page_are_those_of_the_reports() -> None:
    result = rlx.Pipeline().compile(encoder())
    report = CompileReport(result, MACHINE)
    page = Page(report.html())
    page.check()
    assert page.tags["h2"] == 8 and page.tags["main"] == page.tags["nav"] == 1
    for listing in map(inspect_graph, (result.hir, result.mir, result.lir)):
        assert f"{listing.stage} {len(listing.ops)} ops" in page.text
        assert all(str(op).strip() in page.text for op in listing.ops)
    for of_result in (result.fusion, result.dispatch, result.memory):
        assert of_result.summary().partition(": ")[2] in page.text
    for record in report.history.records:
        assert record.text in page.text
        if record.changed and record.diff().hunks():
            assert f"{record.name}: {record.diff().removed} ops went, {record.diff().added} came" in page.text
    cost = inspect_graph(result.lir).cost
    assert f"{cost.flops:,} operations" in page.text
    assert "Measured time" not in page.text and str(MACHINE) in page.text


def test_a_page_with_times() -> None:
    report = CompileReport(Compilation(chain(3, named=True), target_of("cpu")), MACHINE)
    profile = profile_of(report)
    page = Page(CompileReport(report.compilation, MACHINE, profile).html())
    page.check()
    assert "Measured time" in page.text and profile.summary().partition(": ")[2] in page.text
    assert all(row[0] in page.text for row in profile.rows()[:40])


def test_a_page_tells_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version, date, machine and options are below the title. The date may be fixed, for pages that are compared."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    options = CompileOptions(opt=3, policy="fusable", fast_math=True)
    compilation = Compilation(encoder(), target_of("cpu", "x86-64-v3"), options)
    text = Page(CompileReport(compilation, MACHINE).html()).text
    assert f"RLX {rlx.__version__}, 1970-01-02 00:00 UTC" in text
    assert "target: cpu (x86-64-v3); options: -O3 policy='fusable' fast_math=True" in text
    assert f"{usable_cpus()} CPU" in text and platform.machine() in text
    monkeypatch.setenv("RLX_CPU_LEVEL", "aarch64")
    assert "RLX_CPU_LEVEL=aarch64" in Page(CompileReport(compilation, MACHINE).html()).text
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert f"{datetime.now(UTC):%Y-}" in Page(CompileReport(compilation, MACHINE).html()).text


def test_costs_are_summed_by_line() -> None:
    """The table has a row for each of the user's lines, with the numbers of the ops in the table of ops."""
    g: Any = rlx.Graph("g")
    x = g.input("x", (4, 8))
    y = g.relu(x @ g.param("w", (8, 8)) + x)
    g.set_outputs([g.softmax(y @ g.param("v", (8, 3)))])
    report = CompileReport(Compilation(g, target_of("cpu")), MACHINE)
    (costs,) = [body for heading, body in report.sections() if heading == "Cost of ops"]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", costs)]
    lines, ops = ([row for row in cells if len(row) == count] for count in (6, 9))
    for line in lines:
        members = [row for row in ops if row[8] == line[0] or (line[0] == "no line" and not row[8])]
        assert len(members) == int(line[1]) > 0
        assert sum(int(row[2].replace(",", "")) for row in members) == int(line[2].replace(",", ""))
    assert sum(int(line[1]) for line in lines) == len(ops) > len(lines) > 1


def test_every_colour_of_drawings_has_a_dark_one() -> None:
    report = CompileReport(Compilation(encoder(), target_of("cpu")), MACHINE)
    drawings = "".join(body for heading, body in report.sections() if heading in ("Graph", "Memory", "Cost of ops"))
    assert set(re.findall(r'(?:fill|stroke)="(#\w+)"', drawings)) <= set(palette.DARK)
    assert {group.colour for group in palette.GROUPS} <= set(palette.DARK)


def test_a_page_about_a_graph_that_the_target_does_not_take() -> None:
    g: Any = rlx.Graph("g")
    g.set_outputs([g.tanh(g.input("x", (2,), rlx.f64))])
    page = Page(CompileReport(Compilation(g, target_of("vulkan"))).html())
    page.check()
    assert "does not take this graph" in page.text and "Memory" not in page.text and "not predicted" in page.text


def test_names_are_text_everywhere() -> None:
    result = rlx.Pipeline().compile(hostile())
    report = CompileReport(result, MACHINE)
    pages = [CompileReport(result, MACHINE, profile_of(report)).html()]
    pages += [part._repr_html_() for part in shown(result, report)]
    for html in pages:
        page = Page(html)
        page.check()
    assert "alert(1)" in Page(pages[0]).text
    for svg in (drawing(inspect_graph(result.lir)), result.memory.svg()):
        root = ElementTree.fromstring(svg)  # refuses characters that XML does not have
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            *("svg", "g", "title", "rect", "text", "path", "line", "polygon", "polyline", "circle"),
        }


def shown(result: Any, report: CompileReport) -> Iterator[Any]:
    """Yield all objects with a notebook view."""
    compiled = rlx.Session().compile(result.given)
    yield from (result.given, result, compiled, report.history, result.fusion, result.dispatch, result.memory)
    yield profile_of(report)


def leaves(view: Overview) -> Iterator[str]:
    """Yield the drawn ops by their results."""
    fixed = view.listing.fixed
    for op in view.listing.ops:
        if op.name == GROUP:
            yield from leaves(view.groups[op.attributes["number"]])
        elif not op.results or op.results[0] not in fixed:
            yield op.results[0]


def boxes(listing: GraphReport) -> int:
    fixed = listing.fixed
    return sum(not op.results or op.results[0] not in fixed for op in listing.ops if not op.depth)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("layers", [4, 90, 400])
def test_large_graphs_are_drawn_in_groups(layers: int, named: bool) -> None:
    listing = inspect_graph(chain(layers, named=named))
    view = overview(listing)
    fixed = listing.fixed
    every = [op.results[0] for op in listing.ops if op.results[0] not in fixed]
    assert sorted(leaves(view)) == sorted(every), "each op once"
    views = [view, *(group for _, group in view.all())]
    assert max(boxes(v.listing) for v in views) <= MOST + 1
    numbers = [number for number, _ in view.all()]
    assert len(set(numbers)) == len(numbers)
    if layers == 4:
        assert not view.groups and view.listing == listing
    elif layers == 90:
        for v in views[:4]:
            addresses = {number: f"#a-{number}" for number in v.groups}
            links = [
                e.get("href") for e in ElementTree.fromstring(drawing(v.listing, addresses)).iter() if e.get("href")
            ]
            assert sorted(map(str, links)) == sorted(addresses.values())
    if named and layers == 90:
        names = {group.name for _, group in view.all()}
        assert {"layer0", "layer89"} <= names


@pytest.mark.parametrize("named", [True, False])
def test_layers_that_are_alike_are_one_box(named: bool) -> None:
    """Its drawing is that of the first layer, and its work and time are those of all layers."""
    listing = inspect_graph(chain(12, named=named, alike=True))
    seconds = {op.results[0]: 1e-6 for op in listing.ops}
    view = overview(listing, seconds=seconds)
    (layer,) = view.groups.values()
    labels = [op.label for op in layer.listing.ops if op.results[0] not in listing.fixed]
    assert labels == ["matmul", "ge", "mul", "where", "sub", "tanh", "exp", "add"]
    assert (layer.times, layer.count) == (12, len(labels))
    (box,) = (op for op in view.listing.ops if op.name == GROUP)
    alone = [op for op in listing.ops if op.results[0] not in listing.fixed]
    assert box.cost is not None and box.cost.flops == sum(op.cost.flops for op in alone if op.cost is not None)
    assert box.attributes["seconds"] == pytest.approx(1e-6 * len(alone))
    svg = drawing(view.listing, {}, GraphTimes(seconds, 1e-6 * len(listing.ops)))
    text = " ".join(ElementTree.fromstring(svg).itertext())
    assert (
        "12 × " in text
        and ("layer0 … layer11" in text) == named
        and f"{100 * len(alone) / len(listing.ops):.1f} %" in text
    )
    page = Page(CompileReport(Compilation(chain(12, named=named, alike=True), target_of("cpu")), MACHINE).html())
    page.check()
    assert "the first of 12 layers" in page.text


def test_a_group_reads_and_gives_what_its_ops_do() -> None:
    listing = inspect_graph(chain(90, named=True))
    for _, group in overview(listing).all():
        made = {name for op in group.listing.ops for name in op.results}
        inputs = {a.name for a in group.listing.arguments}
        assert all(n in made | inputs for op in group.listing.ops for n in op.operands)
        assert set(group.listing.returned) <= made
