"""The report on a whole compilation as one HTML page: stages, passes, graphs, fusion, dispatch, memory, and time by op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx.ir.dims.dim import TYPICAL_SIZE
from rlx.ir.graph.listing import GraphReport, OpReport, inspect_graph
from rlx.report import html, roofline_svg
from rlx.report.dispatch import DispatchReport, dispatch_of
from rlx.report.fusion import FusionReport, analyse_fusion
from rlx.report.graph_html import graph_body
from rlx.report.graph_svg import GraphTimes
from rlx.report.history import CompileHistory, analyse_history
from rlx.report.memory import MemoryReport, memory_of_program
from rlx.report.profile import ProfileReport
from rlx.report.provenance import provenance
from rlx.report.roofline import MachineLimits, OpWork, number
from rlx.report.text import bytes_text, markup, seconds_text, short_place
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.targets.compilation import Compilation

# Maximum rows and lines that a page shows.
_ROWS, _LISTED = 100, 1_500
_DRAWN = 4_000  # maximum ops of a stage that is drawn
_POINTS = 500


@dataclass(frozen=True)
class CompileReport:
    """The data of a report on a compilation. `html()` is a page.

    Attributes:
        compilation: The compilation.
        machine: The limits of the machine that runs the program; None if unknown.
        profile: The measurements, if any.
    """

    compilation: Compilation
    machine: MachineLimits | None = None
    profile: ProfileReport | None = None

    @cached_property
    def problem(self) -> str:
        """The reason why the target does not support the graph, else empty."""
        try:
            _ = self.compilation.lir
        except Error as error:
            return error.message
        return ""

    @cached_property
    def stages(self) -> dict[str, GraphReport]:
        """The listings of the available stages: `given`, `mir`, `lir`."""
        compilation = self.compilation
        graphs = {"given": compilation.given, "mir": compilation.mir}
        if not self.problem:
            graphs["lir"] = compilation.lir
        return {name: inspect_graph(graph) for name, graph in graphs.items()}

    @cached_property
    def history(self) -> CompileHistory:
        """The changes of each pass."""
        return analyse_history(self.compilation.given, self.compilation.passes_to_lir)

    @cached_property
    def fusion(self) -> FusionReport:
        """The fusions, and near misses."""
        return analyse_fusion(self.compilation.given, self.compilation.passes_to_mir)

    @cached_property
    def dispatch(self) -> DispatchReport:
        """The way in which each op is lowered."""
        return dispatch_of(self.compilation)

    @cached_property
    def memory(self) -> MemoryReport | None:
        """The places of values in memory; None if there is no LIR."""
        return None if self.problem else memory_of_program(self.compilation)

    @cached_property
    def assumed_sizes(self) -> Mapping[str, int]:
        """The sizes that the report assumes for the symbols of the graph, by name."""
        return dict.fromkeys(sorted(self.compilation.prepared.symbols), TYPICAL_SIZE)

    @property
    def limits(self) -> MachineLimits | None:
        """The limits of the machine, at least those that kernels of this program reached."""
        return self.machine if self.profile is None else self.profile.limits

    @cached_property
    def times(self) -> GraphTimes | None:
        """The measured times of the ops of the LIR; None if nothing was measured."""
        if self.profile is None:
            return None
        ops = self.profile.listing.ops
        seconds = {ops[i].results[0]: time for i, time in self.profile.op_seconds.items() if ops[i].results}
        return GraphTimes(seconds, self.profile.seconds)

    def _times_text(self) -> str:
        """Return how the times in the drawing were computed."""
        assert self.times is not None
        rest = self.times.total - sum(self.times.seconds.values())
        text = "Times are medians per run. A kernel with several ops is divided by the shortest time that each takes alone."
        return text + (f" {seconds_text(rest)} are of kernels without an op." if rest > 1e-9 else "")

    def html(self) -> str:
        """Return the page, which needs no other file."""
        name = self.compilation.given.name_symbol
        target = self.compilation.target
        return html.page(f"@{name} for {target.name} ({target.arch})", self.sections(), provenance(self.compilation))

    def sections(self) -> Iterator[tuple[str, str]]:
        """Yield the heading and the HTML of each part of the page."""
        yield "Overview", self._overview()
        yield "Stages", self._stage_columns()
        yield "Passes", self.history.html_body() + self._pipeline()
        yield "Graph", "".join(self._drawings())
        yield "Fusion", self.fusion.html_body()
        yield "Dispatch", self.dispatch.html_body()
        if self.memory is not None:
            yield "Memory", self.memory.html_body()
        if self.profile is not None:
            yield "Measured time", self.profile.html_body()
        yield "Cost of ops", self._costs()

    # --- overview and stages ----------------------------------------------------------------------------

    def _overview(self) -> str:
        given = self.stages["given"]
        cost = self.last.cost
        flops, moved = OpWork.of(cost, {}).flops, OpWork.of(cost, {}).bytes
        assumed = f" with {TYPICAL_SIZE} for {', '.join(self.assumed_sizes)}" if self.assumed_sizes else ""
        params = [a for a in given.arguments if a.kind == "param"]
        size = sum(number(a.shape.size_bytes, {}) for a in params)
        rows = [
            ("stages", "given as " + ", then ".join(f"{x.stage} {len(x.ops)} ops" for x in self.stages.values())),
            ("parameters", f"{len(params)}, {bytes_text(size)}"),
            ("work of a run", f"{flops:,} operations; the ops read and write {bytes_text(moved)}{assumed}"),
        ]
        reports = [self.history.summary(), self.fusion.summary(), self.dispatch.summary()]
        reports += [self.memory.summary()] if self.memory is not None else []
        reports += [self.profile.summary()] if self.profile is not None else []
        rows += [(text.partition(":")[0], text.partition(":")[2].strip()) for text in reports]
        problem = html.paragraph(f"The target does not take this graph: {self.problem}", "warn") if self.problem else ""
        arguments = [(a.kind, a.name, str(a.shape)) for a in given.arguments if a.kind != "param"]
        arguments += [("output", o.name, str(o.shape)) for o in given.outputs]
        signature = html.table(arguments, ("", "name", "shape"), most=_ROWS)
        weights = html.table([(a.name, str(a.shape)) for a in params], ("parameter", "shape"), most=_ROWS)
        count = f"{len(params)} parameter{'s' if len(params) > 1 else ''}"
        hidden = html.details(count, weights) if params else ""
        return f"{problem}{html.table(rows, ('', ''), wrapped=True)}<h3>Signature</h3>{signature}{hidden}"

    @property
    def last(self) -> GraphReport:
        """The listing of the last available stage."""
        return list(self.stages.values())[-1]

    def _stage_columns(self) -> str:
        return f'<div class="columns">{"".join(_stage(*stage) for stage in self.stages.items())}</div>'

    def _pipeline(self) -> str:
        text = html.text_block(self.compilation.pipeline_text, "pipeline")
        return html.details("All of this, and the lowering that follows, as text for rlx-opt", text)

    def _drawings(self) -> Iterator[str]:
        for name, listing in self.stages.items():
            title = _title(name, listing)
            if len(listing.ops) > _DRAWN:
                yield html.paragraph(f"{title}: not drawn, as there are more than {_DRAWN} ops")
            else:
                times = self.times if name == "lir" else None
                opened = "mir" if self.times is None else "lir"
                yield html.details(title, graph_body(listing, name, times), is_open=name == opened)
        if self.times is not None:
            yield html.paragraph(self._times_text(), "muted")

    # --- costs ----------------------------------------------------------------------------------------------

    def _costs(self) -> str:
        """Return the work of each op, and its minimum time if it ran alone."""
        fixed = self.last.fixed
        ops = [op for op in self.last.ops if op.cost is not None and op.depth == 0]
        works = [(op, OpWork.of(op.cost, {})) for op in ops if not op.results or op.results[0] not in fixed]
        machine = self.limits
        works.sort(key=lambda pair: -(machine.seconds(pair[1]) if machine else pair[1].flops))
        total = sum(machine.seconds(work) for _, work in works) if machine else 0.0
        rows = [self._cost_row(op, work, total) for op, work in works]
        header = ("op", "shape", "flops", "bytes", "flops/byte", "least µs", "share", "bound by", "line")
        parts = [self._costs_of_lines(works, total)]
        parts.append(html.details(f"{len(rows)} ops", html.table(rows, header, right=(2, 3, 4, 5, 6), most=_ROWS)))
        if machine is None:
            parts.insert(0, html.paragraph("Time is not predicted: it is not known what the device can do.", "muted"))
        else:
            text = f"One by one, without fusion, the ops take at least {1e3 * total:.4g} ms: {machine}. Fused ops move less. "
            text += f"{len(ops) - len(works)} ops of weights alone are not counted: most targets compute them once."
            parts.insert(0, html.paragraph(text))
        if machine is not None and self.profile is None:
            points = [_point(op, work, machine) for op, work in works[:_POINTS]]
            parts.insert(1, roofline_svg.figure(machine, points, measured=False))
        return "".join(parts)

    def _costs_of_lines(self, works: Sequence[tuple[OpReport, OpWork]], total: float) -> str:
        """Return the work summed by the user's lines."""
        by_line: dict[str, list[OpWork]] = {}
        for op, work in works:
            by_line.setdefault(short_place(op.location or ""), []).append(work)
        rows: list[tuple[float, tuple[str, ...]]] = []
        for line, members in by_line.items():
            flops, moved = sum(w.flops for w in members), sum(w.bytes for w in members)
            seconds = sum(map(self.limits.seconds, members)) if self.limits else 0.0
            cells = (line or "no line", str(len(members)), f"{flops:,}", f"{moved:,}", *self._least(seconds, total))
            rows.append((seconds or flops, cells))
        rows.sort(key=lambda row: -row[0])
        header = ("line", "ops", "flops", "bytes", "least µs", "share")
        return html.table([cells for _, cells in rows], header, right=(1, 2, 3, 4, 5), most=_ROWS)

    def _least(self, seconds: float, total: float) -> tuple[str, str]:
        """Return the minimum time, in µs, and its share of the total; empty if the limits of the device are unknown."""
        return (f"{1e6 * seconds:.2f}", f"{100 * seconds / (total or 1):.1f} %") if self.limits else ("", "")

    def _cost_row(self, op: OpReport, work: OpWork, total: float) -> tuple[str, ...]:
        seconds, bound = 0.0, ""
        if self.limits is not None:
            seconds = self.limits.seconds(work)
            ridge = self.limits.flops / self.limits.bandwidth(work)
            bound = "operations" if work.intensity > ridge else "bytes" if work.bytes else ""
        return (
            *(op.label, ", ".join(map(str, op.shapes)), f"{work.flops:,}", f"{work.bytes:,}", f"{work.intensity:.2f}"),
            *(*self._least(seconds, total), bound, short_place(op.location or "")),
        )


def _point(op: OpReport, work: OpWork, machine: MachineLimits) -> roofline_svg.Point:
    return roofline_svg.Point(str(op).strip(), op.name, work, machine.seconds(work))


def _title(name: str, listing: GraphReport) -> str:
    """Return the title of a stage."""
    stage = listing.stage.upper()
    return f"{stage}{', as given' if name == 'given' else ''}: {len(listing.ops)} ops"


def _stage(name: str, listing: GraphReport) -> str:
    """Return the ops of a stage, counted, with bars, and its listing."""
    counts = listing.histogram.most_common()
    most = counts[0][1] if counts else 1
    rows = "".join(
        f'<tr><td>{markup(op)}</td><td class="number">{n}</td>'
        f'<td><span class="bar" style="width:{max(1, round(80 * n / most))}px"></span></td></tr>'
        for op, n in counts
    )
    table = (
        html.scroll(f"<table><tbody>{rows}</tbody></table>", f"ops of {name}") if rows else html.paragraph("No ops.")
    )
    text = html.details("Listing", html.text_block(str(listing), f"listing of {name}", _LISTED))
    return f"<div><h3>{markup(_title(name, listing))}</h3>{table}{text}</div>"
