"""The fusion report: fusions on the way to MIR, near misses, and how to enable them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview, registry
from rlx.passes import run
from rlx.passes.fusion.base import FusionRecord, Miss, matches, misses, record_fusions
from rlx.passes.fusion.fuse import FUSIONS
from rlx.passes.rewrite import collect
from rlx.report import html
from rlx.report.text import counts_text, short_place
from rlx.support.errors import Error
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr

_SHOWN_PLACES, _SHOWN_ROWS = 3, 100
DEFAULT_PASSES = "rlx-lower-blocks,rlx-fuse"


@dataclass(frozen=True)
class FusionReport:
    """The fusions and near misses of a pipeline. `str()` is the report.

    Attributes:
        before: The numbers of ops in the given graph, by name.
        after: The numbers of ops after the pipeline.
        fused: The number of applications of each fusion, by its title: `rlx-fuse-<title>`, or `recognize-<title>`.
        places: The user's lines of each, in order, without duplicates.
        off: The number of matches of each fusion that the pipeline does not run because it does not pay off on the
            target.
        missed: Near misses, in program order.
        declined: Weighed fusions that were not made: title, the user's line, and the estimated effect.
    """

    before: Counter[str]
    after: Counter[str]
    fused: Counter[str]
    places: dict[str, tuple[str, ...]]
    off: Counter[str]
    missed: tuple[Miss, ...]
    declined: tuple[tuple[str, str, str], ...] = ()

    def assert_clean(self) -> None:
        """Check that there are no near misses.

        Raises:
            Error: There are near misses; the message lists all of them, with hints.
        """
        if self.missed:
            lines = "\n".join(f"  {text}" for text in self._missed_texts())
            what = "fusion was" if len(self.missed) == 1 else "fusions were"
            raise Error(f"{len(self.missed)} {what} missed:\n{lines}")

    def summary(self) -> str:
        """Return the report on one line."""
        has_blocks = any(registry.SPECS[name].stage == "hir" for name in self.before if name in registry.SPECS)
        total = f"{self.before.total()} {'ops and blocks' if has_blocks else 'ops'} became {self.after.total()}"
        return f"fusion: {total}; fused: {counts_text(self.fused)}; missed: {len(self.missed)}"

    def _missed_texts(self) -> list[str]:
        """Return each miss as a line. Repeated texts for one location become one line."""
        counts = Counter(map(_miss_text, self.missed))
        return [f"{f'{count} times ' if count > 1 else ''}{text}" for text, count in counts.items()]

    def _off_rows(self) -> list[tuple[str, ...]]:
        """Return a row for each disabled fusion, or for each of its estimates: times, fusion, estimate, lines."""
        estimated = _merged([((title, said), place) for title, place, said in self.declined])
        known = {title for title, _, _ in self.declined}
        return [*estimated, *((str(n), title, "", "") for title, n in self.off.most_common() if title not in known)]

    def html_body(self) -> str:
        """Return the report as HTML, without its summary."""
        made = [(str(n), title, _places(self.places[title])) for title, n in self.fused.most_common()]
        missed = _merged([((m.fusion, m.reason, m.hint), m.location or "") for m in self.missed])
        parts = [
            html.table(made, ("times", "fused", "lines"), right=(0,)) if made else html.paragraph("Nothing fused.")
        ]
        if missed:
            header = ("times", "missed", "why", "what would make it fuse", "lines")
            parts.append(html.table(missed, header, right=(0,), most=_SHOWN_ROWS))
        else:
            parts.append(html.paragraph("Nothing was missed that nearly matches."))
        if off := self._off_rows():
            parts.append(html.paragraph("Off on this target, as it does not pay there:"))
            header = ("times", "fusion", "estimated", "lines")
            parts.append(html.table(off, header, right=(0,), most=_SHOWN_ROWS, wrapped=True))
        return "".join(parts)

    def _repr_html_(self) -> str:
        return html.fragment(self.summary(), self.html_body())

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def __str__(self) -> str:
        lines = [self.summary(), f"  before: {counts_text(self.before)}", f"  after:  {counts_text(self.after)}"]
        for title, count in self.fused.most_common():
            lines.append(f"  fused {count} times {title}{_places_text(self.places[title])}")
        lines += [f"  off   {count} times {title}: it does not pay there" for title, count in self.off.most_common()]
        for (title, place, said), count in Counter(self.declined).items():
            at = f" at {short_place(place)}" if place else ""
            lines.append(f"        {title}{at}{f', {count} times' if count > 1 else ''}: {said}")
        lines += [f"  missed {text}" for text in self._missed_texts()]
        return printable_lines(lines)


def _merged(entries: Sequence[tuple[tuple[str, ...], str]]) -> list[tuple[str, ...]]:
    """Return a row for each distinct text: the number of its entries, the text, and the lines of the first ones."""
    places: dict[tuple[str, ...], list[str]] = {}
    for text, place in entries:
        places.setdefault(text, []).append(place)
    rows = sorted(places.items(), key=lambda row: -len(row[1]))
    return [(str(len(at)), *text, _places(tuple(dict.fromkeys(filter(None, at))))) for text, at in rows]


def _miss_text(miss: Miss) -> str:
    place = f"{short_place(miss.location)}: " if miss.location else ""
    return f"{place}{miss.fusion}: {miss.reason}; {miss.hint}"


def _places_text(places: tuple[str, ...]) -> str:
    return f" at {_places(places)}" if places else ""


def _places(places: tuple[str, ...]) -> str:
    shown = [short_place(place) for place in places[:_SHOWN_PLACES]]
    hidden = [f"{len(places) - len(shown)} more"] if len(places) > len(shown) else []
    return ", ".join([*shown, *hidden])


def analyse_fusion(graph: Graph, passes: Any = DEFAULT_PASSES) -> FusionReport:
    """Run passes on a copy of a graph, and report their fusions and near misses.

    If the passes run no fusion at all, all possible fusions are reported as missed.

    Args:
        graph: HIR or MIR; it is not changed.
        passes: A pipeline, such as `CompileResult.passes_to_mir`.

    Raises:
        Error: The pipeline is invalid, or a pass failed.
    """
    with record_fusions() as record:
        after = run(graph, passes)
    missed = [miss for of_fusion in record.missed.values() for miss in of_fusion]
    off = Counter(record.off)
    if not set(record.missed) & set(FUSIONS):
        missed += _would_fuse(after)
        off.clear()
    return FusionReport(op_counts(graph), op_counts(after), *_fused(record), off, tuple(missed), tuple(record.declined))


def _would_fuse(graph: Graph) -> list[Miss]:
    """Return the fusions that are possible in a graph on which none has run."""
    hint = "run rlx-fuse, or compile with the policy 'direct'"
    found = matches(graph.module, FUSIONS.values())
    nearly = [miss for _, miss in misses(graph.module, FUSIONS.values())]
    return [
        Miss(title, "nothing is in the way, but no pass fused it", hint, place) for title, place, _ in found
    ] + nearly


def _fused(record: FusionRecord) -> tuple[Counter[str], dict[str, tuple[str, ...]]]:
    counts = Counter(made.fusion for made in record.fused)
    places = {
        title: dict.fromkeys(m.location for m in record.fused if m.fusion == title and m.location) for title in counts
    }
    return counts, {title: tuple(found) for title, found in places.items()}


def op_counts(graph: Graph) -> Counter[str]:
    """Return the numbers of ops of a graph, by name."""
    return Counter(opview.name_of(op) for op in collect(graph.module))
