"""The comparison of two compilations: their ops, work, memory and measured time, as text and as an HTML page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from rlx.ir.graph.listing import GraphReport
from rlx.ir.graph.listing_diff import ListingDiff, inspect_diff
from rlx.report import html
from rlx.report.compile_report import CompileReport
from rlx.report.graph_html import graph_body
from rlx.report.history import diff_html
from rlx.report.memory_svg import HALF_PAGE_WIDTH
from rlx.report.profile import ProfileReport
from rlx.report.provenance import provenance, target_text
from rlx.report.roofline import OpWork, number
from rlx.report.text import bytes_text, markup, middle_cut, seconds_text, table
from rlx.support.cached_property import cached_property
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr

_LONGEST, _ROWS, _LISTED = 36, 100, 4
_DRAWN = 4_000  # maximum ops of a graph that is drawn
Amount = TypeVar("Amount", int, float)
Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class ComparisonReport:
    """Two compilations side by side. `str()` is a table, `html()` a page.

    Attributes:
        names: The names of both, such as those of their files.
        first: The first compilation.
        second: The second one, whose changes are reported.
    """

    names: tuple[str, str]
    first: CompileReport
    second: CompileReport

    @property
    def header(self) -> Row:
        """The titles of the columns."""
        first, second = (middle_cut(name, _LONGEST) for name in self.names)
        return ("", first, second, "change")

    @cached_property
    def profiles(self) -> tuple[ProfileReport, ProfileReport] | None:
        """The measurements of both; None if either was not measured."""
        first, second = self.first.profile, self.second.profile
        return (first, second) if first is not None and second is not None else None

    @cached_property
    def diff(self) -> ListingDiff:
        """The ops of the last stages that only one of them has. Source lines do not count."""
        return inspect_diff(_without_lines(self.first.last), _without_lines(self.second.last))

    def rows(self) -> list[Row]:
        """Return the totals of both: ops, work, memory and time, with the changes."""
        rows = [
            _row(f"ops, {stage}", len(self.first.stages[stage].ops), len(self.second.stages[stage].ops), _count)
            for stage in self.first.stages
            if stage in self.second.stages
        ]
        work = [OpWork.of(report.last.cost, {}) for report in self._reports]
        rows.append(_row("operations of a run", work[0].flops, work[1].flops, _count))
        rows.append(_row("bytes that ops read and write", work[0].bytes, work[1].bytes, bytes_text))
        sizes = [
            sum(number(a.shape.size_bytes, {}) for a in r.last.arguments if a.kind == "param") for r in self._reports
        ]
        rows.append(_row("parameters", sizes[0], sizes[1], bytes_text))
        if self.first.memory is not None and self.second.memory is not None:
            a, b = self.first.memory, self.second.memory
            rows.append(_row("memory: arena", a.arena_size, b.arena_size, bytes_text))
            rows.append(_row("memory: most at one step", a.peak_live_bytes, b.peak_live_bytes, bytes_text))
        if self.profiles is not None:
            a, b = self.profiles
            rows.append(_row("kernels", len({k.kernel for k in a.kernels}), len({k.kernel for k in b.kernels}), _count))
            rows.append(_row("measured time", a.seconds, b.seconds, seconds_text))
            rows.append(_row("least time by the roofline", a.least_seconds, b.least_seconds, seconds_text))
        return rows

    def notes(self) -> list[str]:
        """Return the sizes that the work and the memory of each program are for, if a graph leaves some open."""
        sizes = [", ".join(f"{name} = {size}" for name, size in r.assumed_sizes.items()) for r in self._reports]
        if not any(sizes):
            return []
        return [
            f"{which}, {name}: work and memory are for {assumed}, which the graph leaves open"
            if assumed
            else f"{which}, {name}: all sizes are fixed"
            for which, name, assumed in zip(("first", "second"), self.header[1:3], sizes, strict=True)
        ]

    def warnings(self) -> list[str]:
        """Return the inputs whose sizes differ, so that the totals are not of the same work."""
        first, second = (
            {a.name: str(a.shape.bind(r.assumed_sizes)) for a in r.last.arguments if a.kind == "input"}
            for r in self._reports
        )
        different = [
            f"{name} {first[name]} and {second[name]}" for name in first if second.get(name, first[name]) != first[name]
        ]
        if not different:
            return []
        more = f" and {len(different) - _LISTED} more" if len(different) > _LISTED else ""
        hint = "; bind sizes equally, such as with --bind" if any(r.assumed_sizes for r in self._reports) else ""
        return [
            f"the inputs of both differ, so a run is not the same work: {', '.join(different[:_LISTED])}{more}{hint}"
        ]

    @property
    def _reports(self) -> tuple[CompileReport, CompileReport]:
        return self.first, self.second

    def op_rows(self) -> list[tuple[str, ...]]:
        """Return for each kind of op in the last stages: its number in both, and if measured, its time in both."""
        counts = [Counter(op.label for op in report.last.ops) for report in (self.first, self.second)]
        seconds = [
            _sums((profile.listing.ops[i].label, time) for i, time in profile.op_seconds.items())
            for profile in self.profiles or ()
        ]
        inside = [self._inside(report) for report in self._reports]
        rows: list[tuple[float, tuple[str, ...]]] = []
        for label in {**counts[0], **counts[1]}:
            cells = _row(label, counts[0][label], counts[1][label], _count)
            weight = float(max(counts[0][label], counts[1][label]))
            if seconds:
                a, b = (of_label[label] for of_label in seconds)
                times = list(_row("", a, b, seconds_text)[1:])
                hidden = [label in of_label and not time for of_label, time in zip(inside, (a, b), strict=True)]
                times[:2] = ["" if is_hidden else time for is_hidden, time in zip(hidden, times, strict=False)]
                times[2] = "" if any(hidden) else times[2]
                cells, weight = (*cells, *times), max(a, b)
            rows.append((weight, cells))
        return [cells for _, cells in sorted(rows, key=lambda row: -row[0])]

    @staticmethod
    def _inside(report: CompileReport) -> dict[str, str]:
        """The labels of ops in a region without a time of their own, with the label of the op that has the region."""
        profile = report.profile
        if profile is None:
            return {}
        inside: dict[str, str] = {}
        around: list[str] = []
        for i, op in enumerate(profile.listing.ops):
            del around[op.depth :]
            if around and i not in profile.op_seconds:
                inside[op.label] = around[-1]
            around.append(op.label)
        return inside

    def _inside_text(self) -> str:
        """Return the note on ops without a time of their own; empty if there are none."""
        by_owner: dict[str, dict[str, None]] = {}
        for of_label in map(self._inside, self._reports if self.profiles else ()):
            for label, owner in of_label.items():
                by_owner.setdefault(owner, {})[label] = None
        owners = [f"{', '.join(labels)} in {owner}" for owner, labels in by_owner.items()]
        return f"Ops that run inside of another op have no time of their own: {'; '.join(owners)}." if owners else ""

    def kernel_rows(self) -> list[Row]:
        """Return the time of each kernel in both, by its computation; empty without measurements."""
        if self.profiles is None:
            return []
        a, b = (_sums((kernel.title, kernel.seconds) for kernel in profile.kernels) for profile in self.profiles)
        titles = sorted({**a, **b}, key=lambda title: -max(a[title], b[title]))
        return [_row(title, a[title], b[title], seconds_text) for title in titles]

    def summary(self) -> str:
        """Return the comparison on one line."""
        changed = self.diff.counts()
        if self.profiles is None:
            return f"{self.names[0]} and {self.names[1]}: {changed}"
        a, b = self.profiles
        return f"{self.names[0]} and {self.names[1]}: {changed}; {seconds_text(a.seconds)} became {seconds_text(b.seconds)}"

    def __str__(self) -> str:
        lines = [self.summary(), *table(self.rows(), self.header, right=(1, 2, 3), indent="  ")]
        lines += [f"  {note}" for note in self.notes()] + [f"  warning: {text}" for text in self.warnings()]
        return printable_lines(lines)

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    # --- HTML ---------------------------------------------------------------------------------------

    def html(self) -> str:
        """Return the page, which needs no other file."""
        first, second = (middle_cut(name, _LONGEST) for name in self.names)
        facts = [f"first: {self.names[0]}", f"second: {self.names[1]}", *provenance(self.second.compilation)]
        other = target_text(self.first.compilation)
        facts += [f"{other} (of the first)"] if other != target_text(self.second.compilation) else []
        return html.page(f"{first} and {second}", self.sections(), facts)

    def sections(self) -> Iterator[tuple[str, str]]:
        """Yield the heading and the HTML of each part of the page."""
        notes = html.items(self.notes()) if self.notes() else ""
        yield "Overview", self._problems() + html.table(self.rows(), self.header, right=(1, 2, 3)) + notes
        header = (
            *("op", *self.header[1:]),
            *(("time of the first", "of the second", "change") if self.profiles else ()),
        )
        note = self._inside_text()
        ops = html.table(self.op_rows(), header, right=range(1, 7), most=_ROWS)
        yield "Ops", ops + (html.paragraph(note, "muted") if note else "")
        yield "Changed ops", self._changes()
        if self.profiles is not None:
            note = "Kernels are matched by the ops that they compute. Times are medians per run, which differ between runs."
            kernels = html.table(self.kernel_rows(), ("kernel", *self.header[1:]), right=(1, 2, 3), most=_ROWS)
            yield "Measured time", html.paragraph(note, "muted") + kernels
        yield "Graphs", self._side_by_side(_graph)
        yield "Memory", self._side_by_side(_memory)

    def _problems(self) -> str:
        warnings = "".join(html.paragraph(f"Warning: {text}.", "warn") for text in self.warnings())
        return warnings + "".join(
            html.paragraph(f"The target does not take {name}: {report.problem}", "warn")
            for name, report in zip(self.names, (self.first, self.second), strict=True)
            if report.problem
        )

    def _changes(self) -> str:
        if not self.diff.hunks():
            return html.paragraph("Both have the same ops.")
        counts = html.paragraph(f"{self.diff.counts()}: {self.diff.changes()}")
        return counts + diff_html(self.diff, "changed ops")

    def _side_by_side(self, body: Callable[[CompileReport, str], str]) -> str:
        columns = (
            f"<div><h3>{markup(name)}</h3>{body(report, prefix)}</div>"
            for name, report, prefix in zip(
                self.header[1:3], (self.first, self.second), ("first", "second"), strict=True
            )
        )
        return f'<div class="columns halves">{"".join(columns)}</div>'


def _graph(report: CompileReport, prefix: str) -> str:
    if len(report.last.ops) > _DRAWN:
        return html.paragraph(f"Not drawn, as there are more than {_DRAWN} ops.")
    return graph_body(report.last, prefix, report.times)


def _memory(report: CompileReport, prefix: str) -> str:
    return (
        report.memory.html_body(HALF_PAGE_WIDTH) if report.memory is not None else html.paragraph("There is no plan.")
    )


def _without_lines(listing: GraphReport) -> GraphReport:
    return replace(listing, ops=tuple(replace(op, location=None) for op in listing.ops))


def _sums(entries: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Return the sum of the numbers of each name; 0 for other names."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in entries:
        sums[name] += value
    return sums


def _row(name: str, first: Amount, second: Amount, text: Callable[[Amount], str]) -> Row:
    """Return the row of an amount: its name, both values and the change."""
    if first == second:
        change = "the same"
    elif not first or not second:
        change = "new" if second else "gone"
    else:
        share = 100 * (second / first - 1)
        change = f"{share:+.1f} %" if abs(share) < 1000 else f"{second / first:.0f} times"
    return name, text(first) if first else "0", text(second) if second else "0", change


def _count(value: int) -> str:
    return f"{value:,}"
