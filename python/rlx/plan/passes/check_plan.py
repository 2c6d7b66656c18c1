"""`rlx-check-plan`: verification of the memory plans stored in a module."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass
from rlx.plan.stored import plan_of


@dataclass(frozen=True)
class CheckPlan(Pass, name="rlx-check-plan", exact=True, idempotent=True):
    """Check the memory plan of each function: no values that are live together overlap, and all are in the arena.

    A plan that was made for other ops is rejected; the error names the mismatch.
    """

    edits_ops = False

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            plan_of(Graph.from_module(module, function.name.value))
