"""Recomputation of cheap ops where they are used late, instead of storing their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from rlx.plan.liveness import Live, LiveStep, Storage
from rlx.plan.memory import prepare, storages_in_arena
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.sharing import used_bytes

# Maximum recomputed values in a function, and maximum ops that are planned again for them in total.
_MOST_VALUES, _MOST_OPS = 64, 200_000


@dataclass(frozen=True)
class _Copy:
    """A candidate for recomputation: its op, the first op that reads it late, and all late readers."""

    op: Any
    reader: Any
    late: list[Any]


def recompute_cheap(graph: Graph, options: MemoryPlanOptions, sizes: Mapping[str, int]) -> int:
    """Recompute values where that lowers the peak of live bytes. Returns their number.

    A value is a candidate if its op is cheap (by its trait), if it is used after the fullest step but not at it, and if
    all operands of its op are live until that use anyway.

    Args:
        graph: The graph, which is changed.
        options: The options of the plan.
        sizes: Sizes of symbols.
    """
    use, count = _Use(graph, options, sizes), 0
    refused: set[Any] = set()
    for _ in range(min(_MOST_VALUES, _MOST_OPS // len(use.used))):
        copy = use.find(refused)
        if copy is None:
            break
        with mlir.entered():
            again = copy.op.clone(mlir.ir.InsertionPoint(copy.reader))
            _redirect(copy.late, copy.op.results[0], again.results[0])
            changed = _Use(graph, options, sizes)
            if changed.cost < use.cost:
                use, count = changed, count + 1
            else:
                _redirect(copy.late, again.results[0], copy.op.results[0])
                again.erase()
                refused.add(copy.op)
    return count


def _redirect(ops: list[Any], old: Any, new: Any) -> None:
    for op in ops:
        for i, operand in enumerate(op.operands):
            if operand == old:
                op.operands[i] = new


class _Use:
    """The bytes that a function has in use at each step."""

    def __init__(self, graph: Graph, options: MemoryPlanOptions, sizes: Mapping[str, int]):
        sharing = prepare(graph, options, sizes)
        sharing.choose()
        self.liveness = sharing.liveness
        self.inside = storages_in_arena(sharing, sharing.scratch(), options)
        self.used = used_bytes(self.inside, self.liveness.last, options.alignment)

    @property
    def cost(self) -> tuple[int, int]:
        """The peak, and the number of steps that reach it."""
        peak = int(self.used.max())
        return peak, int(np.count_nonzero(self.used == peak))

    def find(self, refused: set[Any]) -> _Copy | None:
        """Return the largest value that is idle at the fullest step and can be recomputed."""
        fullest, inside = int(np.argmax(self.used)), set(self.inside)
        readers: dict[Live, list[LiveStep]] = {}
        for step in self.liveness.steps[1:]:
            assert step is not None
            for live in step.reads:
                if live is not None:
                    readers.setdefault(live, []).append(step)
        idle = [
            live
            for live in self.liveness.values.values()
            if live.start < fullest < live.end and live.step is not None and live.step.op not in refused
        ]
        for live in sorted(idle, key=lambda v: (-v.size, v.start)):
            copy = _copy_of(live, fullest, readers.get(live, []), inside)
            if copy is not None:
                return copy
        return None


def _copy_of(live: Live, fullest: int, readers: list[LiveStep], inside: set[Storage]) -> _Copy | None:
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
    if not all(o is not None and _lives_until(o.storage, first, inside) for o in step.reads):
        return None
    return _Copy(step.op, first.op, [r.op for r in late])


def _lives_until(storage: Storage, step: LiveStep, inside: set[Storage]) -> bool:
    return storage not in inside or storage.end >= step.index
