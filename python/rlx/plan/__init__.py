"""Plans of what a compiled function does with memory: data, for back ends that manage it themselves and for reports."""

from __future__ import annotations

from rlx.plan.memory import MemoryPlan, PlannedValue, aligned, plan_memory

__all__ = ["MemoryPlan", "PlannedValue", "aligned", "plan_memory"]
