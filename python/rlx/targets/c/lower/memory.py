"""Memory planning for C programs: RLX's memory plan, applied to groups of ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.shape import shape_of
from rlx.plan.liveness import REGISTERS, Live, LiveStep, Storage
from rlx.plan.memory import MemoryPlan, complete, prepare, storages_in_arena
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.placing import place
from rlx.plan.sharing import StorageSharing
from rlx.targets.c.lower.grouping import OpGroup

# Kinds of storage: the caller's memory, and a row of an array that a loop stacks.
_OUTPUT, _ROW = "output", "row"


@dataclass(frozen=True)
class CMemory:
    """A memory plan for a program in C.

    Attributes:
        plan: The plan.
        outputs: The storages in the caller's memory, each with the index of its result.
        scratch: The offset of a group's scratch memory.
        copies: The offset of a temporary copy for each state whose next value is the old value of another state.
        carried: The offset of a temporary copy for each value that a loop yields, by the terminator and the index of the value,
            if another carry would be written over it before it is copied.
        rows: The storages in a row of an array that a scan stacks, with the step of the scan and the index of the result.
    """

    plan: MemoryPlan
    outputs: Mapping[Storage, int]
    scratch: Mapping[OpGroup, int]
    copies: Mapping[int, int]
    carried: Mapping[tuple[LiveStep, int], int]
    rows: Mapping[Storage, tuple[LiveStep, int]]

    def live(self, value: Any) -> Live:
        return self.plan.layout.liveness.values[value]


def plan_groups(
    graph: Graph, groups: Sequence[OpGroup], scratch_bytes: Mapping[OpGroup, int], alignment: int
) -> CMemory:
    """Plan the memory of a program.

    Inputs, parameters and states are in the caller's memory. Outputs are as well, if they can be computed there.

    Args:
        graph: LIR without symbols.
        groups: The groups of ops. Values inside a group have no storage.
        scratch_bytes: The scratch memory of each group.
        alignment: The alignment of each value.
    """
    options = MemoryPlanOptions(alignment=alignment, allocate_inputs=False)
    sharing = prepare(graph, options, {})
    liveness = sharing.liveness
    steps = {step.op.results[0]: step for step in liveness.steps if step is not None and len(step.op.results)}
    extra: dict[tuple[LiveStep, int], Storage] = {}
    of_group: dict[OpGroup, Storage] = {}
    for group in groups:
        step = steps[group.result]
        _compute_together(group, step, liveness.values)
        if size := scratch_bytes.get(group):
            of_group[group] = extra[step, -1] = Storage(size, step.index, step.index, "value", [])
    outputs = _with_caller(graph, sharing)
    sharing.results = frozenset({_OUTPUT})
    sharing.choose()
    rows = _in_stacks(sharing)
    copied: dict[int, Storage] = {}
    end = liveness.steps[-1]
    assert end is not None
    for i, state in liveness.states.items():
        source = end.reads[i]
        assert source is not None
        if source.storage.kind == "state" and source.storage is not state.storage:
            copied[i] = extra[end, -1 - i] = Storage(state.size, end.index, end.index, "value", [])
    carried = sharing.scratch()
    scratch = {**carried, **extra}
    offsets = place(storages_in_arena(sharing, scratch, options), liveness.last, alignment)
    plan = complete(graph, options, sharing, scratch, offsets)
    return CMemory(
        plan,
        outputs,
        {group: offsets[storage] for group, storage in of_group.items()},
        {i: offsets[storage] for i, storage in copied.items()},
        {key: offsets[storage] for key, storage in carried.items()},
        rows,
    )


def _compute_together(group: OpGroup, step: LiveStep, values: Mapping[Any, Live]) -> None:
    """Extend the live ranges of a group's leaves to its last op, and remove the storage of its inner values."""
    for value in group.inner:
        values[value].storage.kind = REGISTERS
    leaves = [values[v] for v in group.leaves()]
    for leaf in leaves:
        leaf.storage.end = max(leaf.storage.end, step.index)
        around: Live | None = leaf
        while around is not None:  # a view reads the carry that it is a view of
            around.end = max(around.end, step.index)
            around = around.base if around.relation in ("view", "row") else None
    if len(group.ops) > 1:
        step.reads = list(leaves)
    step.in_order = group.in_order
    if group.root is not None and group.in_order:
        # Only these leaves may be overwritten, and only if no other leaf shares their bytes.
        inside = [values[v] for v in group.read_in_order()]
        elsewhere = {leaf.storage for leaf in leaves if leaf not in inside}
        step.reads = [live for live in inside if live.storage not in elsewhere]


def _with_caller(graph: Graph, sharing: StorageSharing) -> dict[Storage, int]:
    """Move the storage of results into the caller's memory: whole values, each for one output."""
    end = sharing.liveness.steps[-1]
    assert end is not None
    chosen: dict[Storage, int] = {}
    for i, (result, live) in enumerate(zip(graph.results, end.reads, strict=True)):
        if result.updates is not None or live is None or live.storage.kind != "value" or live.storage in chosen:
            continue
        same = all(m.offset == 0 and m.shape.dtype is live.shape.dtype for m in live.storage.members)
        if same and live.storage.size == live.size and live.size:
            live.storage.kind = _OUTPUT
            chosen[live.storage] = i
    return chosen


def _in_stacks(sharing: StorageSharing) -> dict[Storage, tuple[LiveStep, int]]:
    """Move the storage of values that a scan stacks into the row of the iteration, if they are computed in its body."""
    chosen: dict[Storage, tuple[LiveStep, int]] = {}
    for step in sharing.liveness.steps:
        for number, end in enumerate(step.yields if step is not None else ()):
            flow = step.flows[number] if step is not None and number < len(step.flows) else None
            for i, target in enumerate(flow.yields if flow is not None else ()):
                value = end.reads[i] if end is not None else None
                if step is None or value is None or target is None or target.kind != "row":
                    continue
                storage, root = value.storage, value.storage.members[0]
                whole = value.offset == 0 and storage.size == value.size and value.size > 0
                computed = storage.kind == "value" and not root.is_argument and sharing.is_inside(root, step, number)
                if whole and computed:
                    storage.kind = _ROW
                    chosen[storage] = (step, target.index)
    return chosen


def bytes_of(value: Any) -> int:
    """Return the size of a value in bytes."""
    size = shape_of(value).size_bytes
    assert isinstance(size, int)
    return size
