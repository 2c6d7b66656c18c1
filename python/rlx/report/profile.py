"""The profile: the time of each kernel of a program, the ops that it computes, and its distance from the machine's limits."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlx.ir.graph.listing import GraphReport
from rlx.ir.op import registry
from rlx.kernels.declaration import FUNCTION_PREFIX
from rlx.report import html, roofline_svg
from rlx.report.roofline import MachineLimits, OpWork, number
from rlx.report.text import bytes_text, short_place, table
from rlx.support.cached_property import cached_property
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr
from rlx.targets.protocol import KernelEvent, Measurement

_SHOWN_KERNELS, _SHOWN_LINES, _SHOWN_LABELS = 40, 20, 6
_HTML_ROWS, _POINTS = 40, 500


@dataclass(frozen=True)
class KernelTime:
    """A call site of a kernel in the program, or another operation that takes time, such as `alloca`.

    Attributes:
        kernel: The compiler's name of the kernel.
        ops: The ops of the LIR that it computes there, by number.
        layout: Whether it only changes the layout of a tensor in memory, for these ops.
        labels: The labels of the ops, in order.
        places: The user's lines of the ops, without duplicates.
        calls: The number of calls per run.
        seconds: Its time per run: the median over the runs.
        work: Work per run: operations of its ops, and bytes of the values that it reads and writes.
    """

    kernel: str
    ops: tuple[int, ...]
    layout: bool
    labels: tuple[str, ...]
    places: tuple[str, ...]
    calls: float
    seconds: float
    work: OpWork

    @property
    def title(self) -> str:
        """The computation of the kernel, on one line."""
        labels = list(dict.fromkeys(self.labels))
        if not labels:
            return self.kernel
        if self.layout:
            return f"layout for {' + '.join(labels)}"
        more = f" and {len(labels) - _SHOWN_LABELS} more" if len(labels) > _SHOWN_LABELS else ""
        return " + ".join(labels[:_SHOWN_LABELS]) + more


@dataclass(frozen=True)
class LineTime:
    """The time of a user's line, in one scope of the builder.

    Attributes:
        place: `file:line`, empty if unknown.
        scope: The outermost scope, empty if there is none.
        seconds: The time of its ops per run.
        labels: The labels of its ops.
    """

    place: str
    scope: str
    seconds: float
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ProfileReport:
    """The times of a program's kernels. `str()` is a table of them, and of the user's lines.

    Attributes:
        name: The name of the program's function.
        target: The target.
        measurement: All recorded data.
        listing: The LIR, whose ops describe the kernels.
        machine: The limits of the machine.
        sizes: The sizes of symbols.
    """

    name: str
    target: str
    measurement: Measurement
    listing: GraphReport
    machine: MachineLimits
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> tuple[KernelTime, ...]:
        """All call sites of kernels, the slowest first."""
        groups: dict[tuple[str, tuple[int, ...]], list[KernelEvent]] = defaultdict(list)
        for event in self.measurement.events:
            groups[event.kernel, event.ops].append(event)
        times = [self._kernel(kernel, ops, events) for (kernel, ops), events in groups.items()]
        return tuple(sorted(times, key=lambda time: -time.seconds))

    @cached_property
    def _kernel_of_product(self) -> dict[int, str]:
        """The last kernel that computes each product. Earlier kernels of a product arrange its operands, as for im2col."""
        kernels: dict[int, str] = {}
        for event in self.measurement.events:
            if not event.layout:
                kernels.update(dict.fromkeys(filter(self._is_product, event.ops), event.kernel))
        return kernels

    def _is_product(self, i: int) -> bool:
        spec = registry.SPECS.get(self.listing.ops[i].name)
        return spec is not None and spec.has_trait("product")

    @cached_property
    def _borders(self) -> _Borders:
        return _Borders(self.listing, self.sizes)

    def _kernel(self, kernel: str, ops: tuple[int, ...], events: Sequence[KernelEvent]) -> KernelTime:
        runs = self.measurement.runs
        by_run = [0.0] * runs
        for event in events:
            by_run[event.run] += event.seconds
        described = [self.listing.ops[i] for i in ops]
        places = tuple(dict.fromkeys(op.location for op in described if op.location))
        labels, seconds, calls = tuple(op.label for op in described), statistics.median(by_run), len(events) / runs
        computed = [i for i in ops if self._kernel_of_product.get(i, kernel) == kernel]
        layout = events[0].layout or (bool(ops) and not computed)
        has_regions = kernel.startswith(FUNCTION_PREFIX)
        once = OpWork(0, 0) if layout else self._borders.work(ops, computed, has_regions=has_regions)
        work = OpWork(round(once.flops * calls), round(once.bytes * calls))
        return KernelTime(kernel, ops, layout, labels, places, calls, seconds, work)

    def _joined(self) -> list[tuple[KernelTime, float]]:
        """Return call sites merged by kernel, if they compute the same on the same lines, and their minimum times."""
        groups: dict[Any, list[KernelTime]] = defaultdict(list)
        for k in self.kernels:
            groups[k.kernel, k.layout, frozenset(k.labels), frozenset(k.places)].append(k)
        joined = [
            (
                replace(
                    same[0],
                    ops=tuple(sorted({op for k in same for op in k.ops})),
                    calls=sum(k.calls for k in same),
                    seconds=sum(k.seconds for k in same),
                    work=OpWork(sum(k.work.flops for k in same), sum(k.work.bytes for k in same)),
                ),
                sum(map(self._least, same)),
            )
            for same in groups.values()
        ]
        return sorted(joined, key=lambda entry: -entry[0].seconds)

    @property
    def seconds(self) -> float:
        """The time of all kernels per run."""
        return sum(kernel.seconds for kernel in self.kernels)

    @cached_property
    def limits(self) -> MachineLimits:
        """The limits of the machine, raised to those of the fastest kernels of this program: see `MachineLimits.raised`."""
        return self.machine.raised((_one_call(kernel), kernel.seconds / kernel.calls) for kernel in self.kernels)

    @property
    def least_seconds(self) -> float:
        """The minimum time for all kernels on the machine; at most the measured time."""
        return sum(map(self._least, self.kernels))

    def _least(self, kernel: KernelTime) -> float:
        return min(self.limits.seconds(_one_call(kernel)) * kernel.calls, kernel.seconds)

    @cached_property
    def op_seconds(self) -> Mapping[int, float]:
        """The time of each op of the listing per run, by its number.

        The time of a kernel with several ops is distributed in proportion to their minimum times.
        """
        seconds: dict[int, float] = defaultdict(float)
        for kernel in self.kernels:
            parts = {i: self.machine.seconds(self._borders.alone(i)) for i in kernel.ops}
            total = sum(parts.values())
            for i, part in parts.items():
                seconds[i] += kernel.seconds * (part / total if total else 1 / len(parts))
        return seconds

    @cached_property
    def lines(self) -> tuple[LineTime, ...]:
        """The user's lines, the slowest first: the sums of `op_seconds`, and the kernels without ops."""
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        labels: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for i, time in self.op_seconds.items():
            op = self.listing.ops[i]
            key = op.location or "", op.scope.partition("/")[0]
            seconds[key] += time
            labels[key][op.label] = None
        for kernel in (kernel for kernel in self.kernels if not kernel.ops):
            seconds["", ""] += kernel.seconds
            labels["", ""][kernel.kernel] = None
        lines = [LineTime(*key, time, tuple(labels[key])) for key, time in seconds.items()]
        return tuple(sorted(lines, key=lambda line: -line.seconds))

    # --- text ---------------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return the report on one line."""
        measured, kernels = self.measurement, len({k.kernel for k in self.kernels})
        return (
            f"profile of @{self.name} for {self.target} ({measured.driver}): {1e3 * self.seconds:.4g} ms in {kernels} kernels, "
            f"median of {measured.runs} runs; at least {1e3 * self.least_seconds:.4g} ms by the roofline"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each kernel, merged over calls that compute the same on the same lines.

        The columns are microseconds, share of the total, calls, Gflop/s, GB/s, share of the roofline, ops, lines, name.
        """
        rows = []
        for k, least in self._joined():
            seconds = k.seconds or 1e-12
            rates = (
                f"{k.work.flops / seconds / 1e9:.1f}",
                f"{k.work.bytes / seconds / 1e9:.1f}",
                f"{100 * least / seconds:.0f} %",
            )
            rows.append(
                (
                    *(f"{1e6 * k.seconds:.1f}", f"{100 * k.seconds / (self.seconds or 1):.1f} %", f"{k.calls:g}"),
                    *(rates if k.work.bytes else ("", "", "")),
                    *(k.title, ", ".join(map(short_place, k.places[:3])), k.kernel),
                )
            )
        return rows

    HEADER = ("µs", "share", "calls", "Gflop/s", "GB/s", "roofline", "computes", "lines", "kernel")

    def line_rows(self) -> list[tuple[str, ...]]:
        """Return for each line: microseconds, share of the total, the line, its ops."""
        return self._summed(lambda line: short_place(line.place))

    def scope_rows(self) -> list[tuple[str, ...]]:
        """Return the same columns for each scope of the builder, such as a layer; empty if there are none."""
        return self._summed(lambda line: line.scope) if any(line.scope for line in self.lines) else []

    def _summed(self, name_of: Callable[[LineTime], str]) -> list[tuple[str, ...]]:
        seconds: dict[str, float] = defaultdict(float)
        labels: dict[str, dict[str, None]] = defaultdict(dict)
        for line in self.lines:
            seconds[name_of(line)] += line.seconds
            labels[name_of(line)].update(dict.fromkeys(line.labels))
        return [
            (
                *(f"{1e6 * time:.1f}", f"{100 * time / (self.seconds or 1):.1f} %"),
                *(name or "-", ", ".join(list(labels[name])[:_SHOWN_LABELS])),
            )
            for name, time in sorted(seconds.items(), key=lambda item: -item[1])
        ]

    def __str__(self) -> str:
        assumed = "".join(f", {name} = {size}" for name, size in self.sizes.items())
        lines = [self.summary(), f"  this machine: {self.limits}{assumed}"]
        lines += _cut(table(self.rows(), self.HEADER, right=range(6), indent="  "), _SHOWN_KERNELS, "kernels")
        for rows, what in ((self.line_rows(), "line"), (self.scope_rows(), "scope")):
            header = ("µs", "share", what, "ops")
            lines += (
                ["", *_cut(table(rows, header, right=range(2), indent="  "), _SHOWN_LINES, f"{what}s")] if rows else []
            )
        return printable_lines(lines)

    # --- HTML ---------------------------------------------------------------------------------------

    def html_body(self) -> str:
        """Return the report as HTML, without its summary: the roofline plot, kernels, lines."""
        scopes = self.scope_rows()
        return "".join(
            [
                roofline_svg.figure(self.limits, self.points(), measured=True),
                html.paragraph(self._roof_text(), "muted"),
                html.table(self.rows(), self.HEADER, right=range(6), most=_HTML_ROWS),
                html.table(self.line_rows(), ("µs", "share", "line", "ops"), right=range(2), most=_HTML_ROWS),
                html.table(scopes, ("µs", "share", "scope", "ops"), right=range(2), most=_HTML_ROWS) if scopes else "",
            ]
        )

    def points(self) -> list[roofline_svg.Point]:
        """Return the slowest kernels, as points of a roofline plot. One that is above the limits is a point on the roof."""
        points = []
        for k in self.kernels[:_POINTS]:
            title = f"{k.title}\n{k.kernel}\n{1e6 * k.seconds:.1f} µs"
            seconds = max(k.seconds, self.limits.seconds(_one_call(k)) * k.calls)
            points.append(roofline_svg.Point(title, self._main_op(k), k.work, seconds))
        return points

    def _roof_text(self) -> str:
        """Return how the limits in the plot were measured."""
        text = "The roof is what NumPy or the fastest kernel of this program reached, at most 1.5 times NumPy's rate"
        if not self.limits.cached_bytes:
            return f"{text}."
        fits = bytes_text(self.limits.cache_size)
        return f"{text}: solid from memory, dashed from caches, for kernels that read and write at most {fits}."

    def _main_op(self, kernel: KernelTime) -> str:
        """Return the op that determines a kernel's colour: the one with the most operations."""
        ops = [(self._borders.alone(i).flops, self.listing.ops[i].name) for i in kernel.ops]
        return max(ops, default=(0, ""))[1]

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def _repr_html_(self) -> str:
        return html.fragment(self.summary(), self.html_body())

    # --- traces -------------------------------------------------------------------------------------

    def trace(self) -> dict[str, Any]:
        """Return all events in Chrome's trace format, which Perfetto opens: a track of runs above a track of kernels."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"@{self.name} for {self.target}"}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "runs"}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "kernels"}},
        ]
        recorded = self.measurement.events
        origin = min((e.start for e in recorded), default=0.0)
        for run in range(self.measurement.runs):
            of_run = [e for e in recorded if e.run == run]
            if of_run:
                start, end = min(e.start for e in of_run), max(e.start + e.seconds for e in of_run)
                events.append(_slice(f"run {run}", 1, start - origin, end - start, {}))
        works = {(k.kernel, k.ops): k for k in self.kernels}
        for e in recorded:
            k = works[e.kernel, e.ops]
            details = {"ops": list(k.labels), "lines": list(k.places), "flops": k.work.flops, "bytes": k.work.bytes}
            events.append(_slice(e.kernel, 2, e.start - origin, e.seconds, details if e.ops else {}))
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def trace_text(self) -> str:
        """Return the trace as JSON."""
        return json.dumps(self.trace())


def _one_call(kernel: KernelTime) -> OpWork:
    """Return the work of one call of a kernel."""
    return OpWork(round(kernel.work.flops / kernel.calls), round(kernel.work.bytes / kernel.calls))


def _slice(name: str, track: int, start: float, seconds: float, details: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 1, "tid": track, "ts": 1e6 * start, "dur": 1e6 * seconds, "args": details}


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    """Return the head of a table and its first rows."""
    hidden = len(lines) - 1 - most
    return [*lines[: most + 1], f"  and {hidden} more {what}"] if hidden > 0 else lines


class _Borders:
    """Inputs and outputs of sets of ops."""

    def __init__(self, listing: GraphReport, sizes: Mapping[str, int]):
        self._ops, self._sizes = listing.ops, sizes
        self._bytes = {a.name: a.shape.size_bytes for a in listing.arguments}
        self._readers: dict[str, set[int]] = defaultdict(set)
        self._returned = {*listing.returned, *listing.updates.values()}
        for i, op in enumerate(listing.ops):
            self._bytes.update((name, shape.size_bytes) for name, shape in zip(op.results, op.shapes, strict=False))
            for name in op.operands:
                self._readers[name].add(i)

    def work(self, ops: Iterable[int], computed: Iterable[int], *, has_regions: bool) -> OpWork:
        """Return the work of some ops: bytes read from and written to other ops, and the operations of `computed`.

        Args:
            ops: The numbers of the ops.
            computed: The numbers of those that are not only read.
            has_regions: Whether the ops inside their regions belong to them; else they are separate kernels.
        """
        chosen = set(ops)
        described = [self._ops[i] for i in chosen]
        made = {name for op in described for name in op.results}
        read = {name for op in described for name in op.operands} - made
        written = {name for name in made if name in self._returned or self._readers[name] - chosen}
        moved = sum(number(self._bytes.get(name, 0), self._sizes) for name in read | written)
        parts = (OpWork.of(self._ops[i].cost, self._sizes) if has_regions else self.alone(i) for i in computed)
        return OpWork(sum(part.flops for part in parts), moved)

    def alone(self, i: int) -> OpWork:
        """Return the work of an op alone. For an op with regions, the ops inside are separate kernels."""
        op = self._ops[i]
        has_regions = i + 1 < len(self._ops) and self._ops[i + 1].depth > op.depth
        return OpWork(0, 0) if has_regions else OpWork.of(op.cost, self._sizes)
