"""The memory report: a memory plan as text and as a drawing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from rlx.ir.dims.dim import TYPICAL_SIZE
from rlx.ir.graph.graph import Graph
from rlx.ir.location import scope_of
from rlx.ir.op.opview import place_of
from rlx.passes import run
from rlx.passes.bind import Bind
from rlx.plan import MemoryPlan, PlannedValue, plan_memory
from rlx.plan.passes.schedule_memory import ScheduleMemory
from rlx.plan.stored import has_plan, plan_of
from rlx.report import html
from rlx.report.memory_svg import NARROW_PAGE_WIDTH, PAGE_WIDTH, drawing
from rlx.report.text import bytes_text, short_place, table
from rlx.support.cached_property import cached_property
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr
from rlx.targets.compilation import Compilation
from rlx.targets.memory_planner import MemoryPlanner

# Maximum values that are listed at the fullest step, and maximum ops for which the report tries other orders.
_LISTED, _TRIED = 8, 5_000
_LATER = 16  # a value needed this many steps after the fullest one, or a tenth of all steps, counts as kept for later


@dataclass(frozen=True, repr=False)
class MemoryReport(MemoryPlan):
    """A memory plan for readers.

    `str()` lists the values in memory at the fullest step, ways to reduce them, and the place of each value.

    Attributes:
        planner: The planner of the target; None if the plan is that of `plan_memory`.
    """

    planner: Callable[[Graph], MemoryPlan] | None = None

    def summary(self) -> str:
        """Return the report on one line."""
        assumed = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        saved = (
            f"{bytes_text(self.bytes_saved)} saved of {bytes_text(self.total_bytes)}" if self.total_bytes else "empty"
        )
        return (
            f"memory of @{self.name}{f' for {assumed}' if assumed else ''}: arena {bytes_text(self.arena_size)} "
            f"({self.arena_size} B), {saved}; at one step at most {bytes_text(self.peak_live_bytes)}, "
            f"gap {100 * self.gap:.1f} %"
        )

    def __str__(self) -> str:
        return printable_lines([self.summary(), *self._at_the_peak(), *self.advice(), *self._places()])

    def svg(self) -> str:
        """Return the plan as a drawing, with steps from left to right: bytes in use at the top, places of values below."""
        return drawing(self)

    def html_body(self, width: int = PAGE_WIDTH) -> str:
        """Return the report as HTML, without its summary.

        Args:
            width: The width of the drawing in pixels, where the page has room for it.
        """
        wide, narrow = (drawing(self, each) for each in (width, NARROW_PAGE_WIDTH))
        parts = [html.figure(wide, "memory over time", narrow)]
        if self.peak_live_bytes:
            rows = [
                (
                    v.name,
                    v.label,
                    str(v.shape),
                    bytes_text(self._slot_size(v)),
                    self._readers(v),
                    short_place(v.location),
                )
                for v in self.at_the_peak()
            ]
            header = ("value", "op", "shape", "bytes", "read", "line")
            step = f"What lies in memory at step {self.peak_step}, {self.steps[self.peak_step]}, when most is in use"
            parts.append(html.details(step, html.table(rows, header, right=(3,), most=50)))
        head, *lines = [line.strip() for line in self.advice()] or [""]
        return "".join([*parts, html.paragraph(head) if head else "", html.items(lines) if lines else ""])

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return html.fragment(self.summary(), self.html_body())

    # --- the fullest step -----------------------------------------------------------------------------

    @cached_property
    def peak_step(self) -> int:
        """The first step with the most bytes in use."""
        return self.live_bytes().index(self.peak_live_bytes)

    def at_the_peak(self) -> list[PlannedValue]:
        """Return the values in the arena at the fullest step, largest first: for each slot, the value that is in it then."""
        by_slot: dict[int, PlannedValue] = {}
        for v in self.values:
            slot = self.slots[v.slot] if v.slot is not None else None
            if slot is None or v.slot is None or not slot.start <= self.peak_step <= slot.end or not slot.size:
                continue
            if v.relation not in ("view", "row") and (v.slot not in by_slot or v.start <= self.peak_step):
                by_slot[v.slot] = v
        return sorted(by_slot.values(), key=lambda v: (-self._slot_size(v), v.start))

    def _slot_size(self, v: PlannedValue) -> int:
        return self.slots[v.slot].size if v.slot is not None else 0

    def _at_the_peak(self) -> list[str]:
        if not self.peak_live_bytes:
            return []
        values = self.at_the_peak()
        op = self.layout.liveness.steps[self.peak_step]
        place = f" ({short_place(place_of(op.op))})" if op is not None and place_of(op.op) else ""
        lines = [f"  at step {self.peak_step}, {self.steps[self.peak_step]}{place}, most is in use:"]
        rows = [
            (
                *(v.name, v.label, str(v.shape), bytes_text(self._slot_size(v))),
                f"{100 * self._slot_size(v) / self.peak_live_bytes:.0f} %",
                *(self._readers(v), short_place(v.location)),
            )
            for v in values[:_LISTED]
        ]
        lines += table(rows, ("value", "op", "shape", "bytes", "", "read", "source"), right=(3, 4), indent="    ")
        rest = values[_LISTED:]
        if rest:
            lines.append(f"    and {len(rest)} more: {bytes_text(sum(map(self._slot_size, rest)))}")
        if scratch := self.peak_live_bytes - sum(map(self._slot_size, values)):
            lines.append(f"    and {bytes_text(scratch)} of scratch memory")
        return lines

    def _readers(self, v: PlannedValue) -> str:
        """Return when a value is read for the last time, relative to the fullest step."""
        end = self.slots[v.slot].end if v.slot is not None and v.end >= self.peak_step else v.end
        last = min(end, v.end)
        if v.outputs:
            return f"output {', '.join(v.outputs)}"
        return "now" if last <= self.peak_step else f"until step {last} {self.steps[last]}"

    # --- advice ---------------------------------------------------------------------------------------------

    def advice(self) -> list[str]:
        """Return ways to make the arena smaller, one per line."""
        if not self.peak_live_bytes:
            return []
        lines = self._other_orders()
        later = self.peak_step + max(_LATER, len(self.steps) // 10)
        idle = [v for v in self.at_the_peak() if not v.outputs and v.op != "input" and v.end > later]
        share = sum(map(self._slot_size, idle)) / self.peak_live_bytes
        if idle and share >= 0.25 and self._has_gradient:
            first = idle[0]
            place = f" ({short_place(first.location)})" if first.location else ""
            lines.append(
                f"{100 * share:.0f} % of it is kept for later, the most by {first.name} {first.label}{place}: "
                "`with g.checkpoint():` computes what a gradient needs again instead of keeping it"
            )
        inputs = sum(self._slot_size(v) for v in self.at_the_peak() if v.op == "input")
        if inputs:
            lines.append(f"inputs take {bytes_text(inputs)} of it: allocate_inputs=False leaves them with the caller")
        if self.gap > 0.01:
            lines.append(
                f"values do not fit without gaps, which take {bytes_text(self.arena_size - self.peak_live_bytes)}"
            )
        return [
            f"  what would lower it{':' if lines else ': nothing that is known here'}",
            *(f"    {x}" for x in lines),
        ]

    @property
    def _has_gradient(self) -> bool:
        """Whether reverse mode created any of the ops. The locations of these ops contain `vjp`."""
        steps = self.layout.liveness.steps
        return any("vjp" in scope_of(step.op.location).split("/") for step in steps if step is not None)

    def _other_orders(self) -> list[str]:
        if len(self.steps) > _TRIED:
            return [
                f"other orders of the ops were not tried, as there are more than {_TRIED}: rlx-schedule-memory does"
            ]
        lines, least = list[str](), self.arena_size
        for recompute in (False, True):
            ordering = ScheduleMemory(recompute=recompute, hoist_weights=self.options.hoist_weights, sizes=self.sizes)
            ordered = run(self.layout.graph, f"builtin.module({ordering})")
            plan = self.planner(ordered) if self.planner else plan_memory(ordered, self.options, sizes=self.sizes)
            size = plan.arena_size
            if size < least:
                saved = 100 * (1 - size / self.arena_size)
                name = f"{ordering.name}{'{recompute}' if recompute else ''}"
                lines.append(f"another order of the ops: {name} takes {bytes_text(size)}, {saved:.0f} % less")
                least = size
        return lines

    # --- all values ---------------------------------------------------------------------------------------

    def _places(self) -> list[str]:
        rows = []
        for v in self.values:
            offset = "-" if v.offset is None else str(v.offset)
            memory = f"{v.relation} {v.base}" if v.base else v.relation
            if v.relation == "view" and v.base_offset:
                memory += f" + {v.base_offset}"
            outputs = f"output {', '.join(v.outputs)}" if v.outputs else ""
            steps = f"{v.start}..{v.end}"
            rows.append(
                (v.name, v.label, str(v.shape), offset, str(v.size), steps, memory, outputs, short_place(v.location))
            )
        header = ("value", "op", "shape", "offset", "bytes", "steps", "memory", "", "source")
        return table(rows, header, right=(3, 4), indent="  ")


def analyse_memory(graph: Any, **options: Any) -> MemoryReport:
    """Plan the memory of a graph, as a report.

    Args:
        graph: A `Graph` or a module, usually LIR.
        options: The options of `plan_memory`.

    Raises:
        Error: `plan_memory` raises it.
    """
    return report_of(plan_memory(graph, **options))


def memory_of_program(compilation: Compilation) -> MemoryReport:
    """Return the memory plan of a compilation, with size 64 for each symbol.

    It is the plan of the target's own planner (`MemoryPlanner`), so that it has the sizes of the compiled program. For
    other targets it is the plan stored in the LIR, else a new one without the values that depend only on weights, which
    are computed when the program is loaded.

    Args:
        compilation: A graph and its target.

    Raises:
        Error: The stored plan does not fit the graph, or the target does not support the graph.
    """
    lir, compiler = compilation.lir, compilation.compiler
    sizes = dict.fromkeys(sorted(lir.symbols), TYPICAL_SIZE)
    if isinstance(compiler, MemoryPlanner):
        bound = run(lir, Bind(sizes)) if sizes else lir
        return report_of(replace(compiler.plan_memory(bound), sizes=sizes), compiler.plan_memory)
    if has_plan(lir.function):
        return report_of(plan_of(lir))
    return analyse_memory(lir, sizes=sizes, hoist_weights=True)


def report_of(plan: MemoryPlan, planner: Callable[[Graph], MemoryPlan] | None = None) -> MemoryReport:
    """Return a report on a plan.

    Args:
        plan: The plan.
        planner: The planner of the target; None if the plan is that of `plan_memory`.
    """
    return MemoryReport(**{field.name: getattr(plan, field.name) for field in fields(plan)}, planner=planner)
