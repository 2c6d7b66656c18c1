"""Reports on a compilation: what fused, where values lie in memory, which way each op goes."""

from __future__ import annotations

from rlx.report.dispatch import DispatchReport, analyse_dispatch
from rlx.report.fusion import FusionReport, MissReason, analyse_fusion
from rlx.report.memory import MemoryPlan, PlannedValue, plan_memory

__all__ = [
    "DispatchReport",
    "FusionReport",
    "MemoryPlan",
    "MissReason",
    "PlannedValue",
    "analyse_dispatch",
    "analyse_fusion",
    "plan_memory",
]
