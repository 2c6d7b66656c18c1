"""`rlx-check-plan`: whether the memory plans that a module carries are right."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass
from rlx.plan.stored import plan_of


@dataclass(frozen=True)
class CheckPlan(Pass, name="rlx-check-plan", exact=True, idempotent=True):
    """Check the memory plan of each function: no values that live together overlap, and all lie in the arena.

    It refuses a plan that was made for other ops, by the name of what does not fit.
    """

    edits_ops = False

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            plan_of(Graph.from_module(module, function.name.value))
