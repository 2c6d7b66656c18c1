"""Memory plans of compiled functions: for reports, and for back ends that manage memory themselves."""

from __future__ import annotations

from rlx.plan.memory import MemoryPlan, PlannedValue, Slot, plan_memory
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.sharing import align_up
from rlx.plan.stored import plan_of

__all__ = ["MemoryPlan", "MemoryPlanOptions", "PlannedValue", "Slot", "align_up", "plan_memory", "plan_of"]
