"""`rlx-plan-memory`: creation of a memory plan, which is stored in the function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass, option
from rlx.plan.memory import plan_memory
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.stored import erase_plan, write_plan


@dataclass(frozen=True)
class PlanMemory(Pass, name="rlx-plan-memory", exact=True, idempotent=True):
    """Store a memory plan in each function, with all values in one arena: `rlx-plan-memory{alignment=16 seq=128}`.

    `rlx.plan.plan_of` reads the plan. It is valid only for the current ops, so run all passes that change ops before
    this one.
    """

    edits_ops = False

    alignment: int = option(64, "the alignment in bytes of each value that is not a view; a power of two", least=1)
    inputs: bool = option(True, "whether inputs have a place, which is reused after their last reader")
    params: bool = option(False, "whether parameters and states have a place, which is not reused")
    constants: bool = option(False, "whether constants have a place, which is not reused")
    in_place: bool = option(True, "whether a value may reuse the bytes of another")
    hoist_weights: bool = option(False, "leave out values that depend only on parameters and constants")
    f32_uniform: bool = option(False, "every element takes at least four bytes")
    sizes: Mapping[str, int] = option({}, "the size of a symbol that the plan is made for", rest=True)

    def run(self, module: mlir.Module) -> None:
        options = MemoryPlanOptions(
            alignment=self.alignment,
            allocate_inputs=self.inputs,
            allocate_params=self.params,
            allocate_constants=self.constants,
            in_place=self.in_place,
            hoist_weights=self.hoist_weights,
            f32_uniform=self.f32_uniform,
        )
        for function in bodies(module):
            erase_plan(function)
            graph = Graph.from_module(module, function.name.value)
            write_plan(plan_memory(graph, options, sizes=self.sizes))
