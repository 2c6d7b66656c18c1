"""The memory report: a memory plan as text and as a drawing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rlx.plan import MemoryPlan, plan_memory
from rlx.report.memory_svg import drawing
from rlx.report.text import bytes_text, short_place, table


class MemoryReport(MemoryPlan):
    """A memory plan for readers. `str()` is a table."""

    def summary(self) -> str:
        """One line."""
        assumed = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        saved = (
            f"{bytes_text(self.bytes_saved)} saved of {bytes_text(self.total_bytes)}" if self.total_bytes else "empty"
        )
        return (
            f"memory of @{self.name}{f' for {assumed}' if assumed else ''}: arena {bytes_text(self.arena_size)} "
            f"({self.arena_size} B), {saved}; at one step at most {bytes_text(self.peak_live_bytes)}"
        )

    def __str__(self) -> str:
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
        return "\n".join([self.summary(), *table(rows, header, right=(3, 4), indent="  ")]) + "\n"

    def svg(self) -> str:
        """The arena as a drawing: steps from left to right, bytes from bottom to top."""
        return drawing(self)


def analyse_memory(graph: Any, **options: Any) -> MemoryReport:
    """Plan the memory of a graph, for readers.

    Args:
        graph: A `Graph` or a module, usually LIR.
        options: The options of `plan_memory`.

    Raises:
        Error: `plan_memory` raises it.
    """
    plan = plan_memory(graph, **options)
    return MemoryReport(**{field.name: getattr(plan, field.name) for field in fields(plan)})
