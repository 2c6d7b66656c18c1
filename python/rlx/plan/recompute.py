"""Cheap ops computed again where they are read late, instead of keeping what they give in the meantime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir import registry
from rlx.ir.graph import Graph
from rlx.plan.liveness import Live, Step, Storage
from rlx.plan.memory import MemoryPlan, plan_memory
from rlx.plan.sharing import used_bytes

# Values that are computed again in a function at most, and ops that are planned anew for them in all.
_MOST_VALUES, _MOST_OPS = 64, 200_000


@dataclass(frozen=True)
class _Copy:
    """A value that may be computed again: its op, and the first op that reads it late."""

    op: Any
    reader: Any
    late: list[Any]


def recompute_cheap(graph: Graph, **options: Any) -> int:
    """Compute values again where that lowers the peak of live bytes, and give their number.

    A value is taken if its op is cheap (the trait), is not read at the fullest step but after it, and all that its op reads lives
    until then anyway.

    Args:
        graph: The graph, which is changed.
        options: Those of `plan_memory`.
    """
    plan = plan_memory(graph, **options)
    count, rounds = 0, min(_MOST_VALUES, _MOST_OPS // len(plan.steps))
    refused: set[Any] = set()
    while rounds > 0:
        rounds -= 1
        copy = _find(plan, refused)
        if copy is None:
            break
        with mlir.entered():
            again = copy.op.clone(mlir.ir.InsertionPoint(copy.reader))
            _redirect(copy.late, copy.op.results[0], again.results[0])
            changed = plan_memory(graph, **options)
            if _cost(changed) < _cost(plan):
                plan, count = changed, count + 1
                continue
            _redirect(copy.late, again.results[0], copy.op.results[0])
            again.erase()
        refused.add(copy.op)
        plan = plan_memory(graph, **options)
    return count


def _cost(plan: MemoryPlan) -> tuple[int, int]:
    """The peak, and how many steps reach it."""
    live = plan.live_bytes()
    return plan.peak_live_bytes, live.count(plan.peak_live_bytes)


def _redirect(ops: list[Any], old: Any, new: Any) -> None:
    for op in ops:
        for i, operand in enumerate(op.operands):
            if operand == old:
                op.operands[i] = new


def _find(plan: MemoryPlan, refused: set[Any]) -> _Copy | None:
    """The largest value that lies idle at the fullest step and may be computed again."""
    layout = plan.layout
    liveness = layout.liveness
    used = used_bytes([s for s in layout.offsets if s.size], liveness.last, plan.options.alignment)
    fullest = int(np.argmax(used))
    readers: dict[Live, list[Step]] = {}
    for step in liveness.steps[1:]:
        assert step is not None
        for live in step.reads:
            if live is not None:
                readers.setdefault(live, []).append(step)
    idle = [
        live
        for live in liveness.values.values()
        if live.start < fullest < live.end and live.step is not None and live.step.op not in refused
    ]
    for live in sorted(idle, key=lambda v: (-v.size, v.start)):
        copy = _copy_of(live, fullest, readers.get(live, []), layout.offsets)
        if copy is not None:
            return copy
    return None


def _copy_of(live: Live, fullest: int, readers: list[Step], offsets: Any) -> _Copy | None:
    step = live.step
    if step is None or live.is_argument or step.yields or len(step.results) != 1 or not registry.is_ours(step.op):
        return None
    late = [r for r in readers if r.index > fullest]
    at_peak = any(r.index == fullest for r in readers)
    if at_peak or not late or not step.has_trait("cheap") or live.outputs:
        return None
    if any(r.home != step.home for r in late):
        return None
    first = late[0]
    if not all(o is not None and _lives_until(o.storage, first, offsets) for o in step.reads):
        return None
    return _Copy(step.op, first.op, [r.op for r in late])


def _lives_until(storage: Storage, step: Step, offsets: Any) -> bool:
    return storage not in offsets or storage.end >= step.index
