"""`rlx-schedule-memory`: scheduling of the ops of each block for less memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import TYPICAL_SIZE
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass, option
from rlx.plan.memory import plan_memory, prepare
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.recompute import recompute_cheap
from rlx.plan.schedule import ScheduledBlock, steps_of_blocks


@dataclass(frozen=True)
class ScheduleMemory(Pass, name="rlx-schedule-memory", exact=True, idempotent=True):
    """Reorder the ops of each block to reduce the memory in use at once. The order is kept where that does not help.

    For targets that run ops in the order of the module. Run `rlx-plan-memory` afterwards.
    """

    recompute: bool = option(False, "recompute cheap ops where they are used late, if that lowers the peak")
    hoist_weights: bool = option(False, "leave out values that depend only on parameters and constants")
    symbol: int = option(TYPICAL_SIZE, "the assumed size of a symbol without a size", least=1)
    sizes: Mapping[str, int] = option({}, "the size of a symbol", rest=True)

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            graph = Graph.from_module(module, function.name.value)
            sizes = {**dict.fromkeys(graph.symbols, self.symbol), **self.sizes}
            options = MemoryPlanOptions(hoist_weights=self.hoist_weights)
            while _order(graph, options, sizes):  # a better order may make another one reachable
                pass
            if self.recompute:
                recompute_cheap(graph, options, sizes)


def _order(graph: Graph, options: MemoryPlanOptions, sizes: Mapping[str, int]) -> bool:
    """Reorder the blocks of a function, if the arena becomes smaller. Returns whether it does."""
    sharing = prepare(graph, options, sizes)
    inside: dict[Any, int] = {}
    changed: list[tuple[ScheduledBlock, Any, list[int]]] = []
    for home, steps, end in steps_of_blocks(sharing.liveness):
        block = ScheduledBlock(steps, end, sharing, inside)
        order, peak = block.best_order()
        if home is not None:
            inside[home[0]] = max(peak, inside.get(home[0], 0))
        if order != sorted(order):
            changed.append((block, end.op, order))
    if not changed:
        return False
    before = plan_memory(graph, options, sizes=sizes)
    for block, end, order in changed:
        _move(block, end, order)
    after = plan_memory(graph, options, sizes=sizes)
    if (after.arena_size, after.peak_live_bytes) < (before.arena_size, before.peak_live_bytes):
        return True
    for block, end, order in changed:
        _move(block, end, sorted(order))
    return False


def _move(block: ScheduledBlock, end: Any, order: list[int]) -> None:
    with mlir.entered():
        for i in order:
            block.nodes[i].step.op.move_before(end)
