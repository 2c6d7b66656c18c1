"""The history report: the changes of each pass on the way to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.graph.listing import GraphReport, inspect_graph
from rlx.ir.graph.listing_diff import ListingDiff
from rlx.passes import run
from rlx.passes.history import History, PassRecord
from rlx.report import html
from rlx.report.text import markup, table
from rlx.support.errors import Error
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr

_HEADER = ("pass", "ms", "ops", "change")
_SHOWN_LINES = 300
_TAGS = {"+": ("<ins>", "</ins>"), "-": ("<del>", "</del>"), "…": ("<i>", "</i>"), " ": ("", "")}


@dataclass(frozen=True)
class CompileHistory:
    """The passes that ran, with their changes. `str()` is a table; `records[i].diff()` has the changes of a pass, op by op.

    Attributes:
        given: The listing of the given graph.
        records: The passes, in order.
        problem: The error that ended the pipeline, else empty.
    """

    given: GraphReport
    records: tuple[PassRecord, ...]
    problem: str = ""

    @property
    def last(self) -> GraphReport:
        """The listing after the last pass."""
        return self.records[-1].after if self.records else self.given

    @property
    def seconds(self) -> float:
        """The time of all passes, without verifiers."""
        return sum(record.seconds for record in self.records)

    def summary(self) -> str:
        """Return the report on one line."""
        changed = sum(record.changed for record in self.records)
        return (
            f"passes: {len(self.records)} in {1e3 * self.seconds:.4g} ms, of which {changed} changed something; "
            f"{len(self.given.ops)} ops became {len(self.last.ops)}"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return for each pass its text, milliseconds, the number of ops after it, and the changes in op counts."""
        return [
            (
                *(record.text, f"{1e3 * record.seconds:.2f}", str(len(record.after.ops))),
                record.diff().changes() if record.changed else "",
            )
            for record in self.records
        ]

    def html_body(self) -> str:
        """Return the report as HTML, without its summary. Changes are collapsed, and shortened if they are long."""
        rows = html.table(self.rows(), _HEADER, right=(1, 2), wrapped=True)
        problem = html.paragraph(self.problem, "warn") if self.problem else ""
        return rows + problem + "".join(_change(record) for record in self.records if record.changed)

    def _repr_html_(self) -> str:
        return html.fragment(self.summary(), self.html_body())

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def __str__(self) -> str:
        rows = [(text if len(text) <= 60 else text[:59] + "…", *rest) for text, *rest in self.rows()]
        lines = table(rows, _HEADER, right=(1, 2), indent="  ") if rows else []
        problem = f"  {self.problem}".split("\n") if self.problem else []
        return printable_lines([self.summary(), *lines, *problem])


def _change(record: PassRecord) -> str:
    """Return the changes of a pass, as HTML."""
    diff = record.diff()
    count = diff.counts() if diff.hunks() else "attributes of the module"
    summary = f"{record.name}: {count}"
    return html.details(summary, diff_html(diff, summary))


def diff_html(diff: ListingDiff, what: str) -> str:
    """Return the changed ops with some ops around them, as HTML; empty if no op changed.

    Args:
        diff: The changes. Many lines are shortened.
        what: The description of the element.
    """
    lines = diff.hunks()
    more = f"\n… and {len(lines) - _SHOWN_LINES} more lines" if len(lines) > _SHOWN_LINES else ""
    text = "\n".join(f"{_TAGS[line.sign][0]}{markup(str(line))}{_TAGS[line.sign][1]}" for line in lines[:_SHOWN_LINES])
    return html.scroll(f"<pre>{text}{more}</pre>", what) if lines else ""


def analyse_history(graph: Graph, passes: Any) -> CompileHistory:
    """Run passes on a copy of a graph, and report the changes of each. The report ends at a pass that fails, with the reason.

    Args:
        graph: A graph; it is not changed.
        passes: A pipeline, such as `Compilation.passes_to_lir`.
    """
    observer = History(graph.name_symbol)
    problem = ""
    try:
        run(graph, passes, instruments=[observer])
    except Error as error:
        problem = error.message
    return CompileHistory(inspect_graph(graph), tuple(observer.records), problem)
