"""Plans of the memory of compiled functions, as data for reports and for back ends that manage memory themselves."""

from __future__ import annotations

from rlx.plan.memory import MemoryPlan, PlannedValue, aligned, plan_memory

__all__ = ["MemoryPlan", "PlannedValue", "aligned", "plan_memory"]
