"""Plans as attributes of a module: `rlx.memory` on the function and on every op, preserved by text and bytecode.

The attribute of the function has the size of the arena, the options and the places of the arguments. The attribute of
an op has one entry for each result, then one for each argument of its regions:

    {offset = 128}               bytes 128 and following of the arena
    {offset = 128, over = 0}     written over operand 0
    {offset = 192, view = 0}     a view of operand 0; `row = 0`: of its part at each step of a loop; `carry = 0`: the
    carry 0
    {offset = 0, parts = [0, 1]} a concatenation whose operands are computed within it
    {}                           outside of the arena

The terminator of a region has one entry for each value. `{within = true}`: the value is computed in the memory of the
result. `{scratch = 64}`: the value is copied through other bytes. `{}`: the value is copied. At the end of the
function, `{within = true}` means that the value is computed in the memory of the state that it updates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import fields
from heapq import heappop, heappush
from typing import Any

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe
from rlx.ir.op.opview import label_of
from rlx.plan.liveness import Live, LiveStep, Storage
from rlx.plan.memory import ArenaLayout, MemoryPlan, complete, prepare, storages_in_arena
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.sharing import StorageSharing, align_up
from rlx.support.errors import Error

ATTRIBUTE = "rlx.memory"
_HINT = "run rlx-plan-memory again"

# The values of an entry: numbers, lists of numbers, and True for flags.
Entry = dict[str, Any]


def write_plan(plan: MemoryPlan) -> None:
    """Write a plan into the attributes of the function and the ops that it was made for."""
    layout = plan.layout
    with mlir.entered():
        header = {f.name: getattr(plan.options, f.name) for f in fields(plan.options)}
        header |= {"arena": plan.arena_size, "arguments": _of_arguments(layout), "sizes": dict(plan.sizes)}
        layout.graph.function.attributes[ATTRIBUTE] = _attribute(header)
        for step in layout.liveness.steps[1:]:
            assert step is not None
            entries = _entries(step, layout)
            if entries is not None:
                step.op.attributes[ATTRIBUTE] = _attribute(entries)


def has_plan(function: mlir.FuncOp) -> bool:
    """Whether a function has a plan."""
    return ATTRIBUTE in function.attributes


def erase_plan(function: mlir.FuncOp) -> None:
    """Remove the plan from a function and its ops."""

    def visit(op: mlir.Operation) -> Any:
        if ATTRIBUTE in op.attributes:
            del op.attributes[ATTRIBUTE]
        return mlir.ir.WalkResult.ADVANCE

    with mlir.entered():
        mlir.walk(function, visit)


def plan_of(module: Any, entry: str | None = None) -> MemoryPlan:
    """Return the plan stored in a function, checked against its current ops.

    Args:
        module: A `Graph` or a module.
        entry: The function of a module; None takes the first public one.

    Raises:
        Error: There is no plan, or it does not fit, because ops have changed or the plan is wrong: values that are live
            at the same time overlap, are outside the arena or misaligned, or share bytes illegally.
    """
    graph = module if isinstance(module, Graph) else Graph.from_module(module, entry)
    with mlir.entered():
        return _PlanReader(graph).plan()


# --- writing ----------------------------------------------------------------------------------------


def _of_arguments(layout: ArenaLayout) -> list[Entry]:
    return [_entry(live, layout) for live in layout.liveness.values.values() if live.step is None]


def _entries(step: LiveStep, layout: ArenaLayout) -> list[Entry] | None:
    """Return the entries of an op, or None."""
    around = step.home
    if step is layout.liveness.steps[-1]:
        updated = layout.choices.within.get(step, set())
        return [{"within": True} if i in updated else {} for i in range(len(step.reads))] if updated else None
    if around is not None and around[0].yields[around[1]] is step:
        if not around[0].flows or around[0].flows[around[1]] is None:
            return None
        within = layout.choices.within.get(step, set())
        scratch = {i: storage for (end, i), storage in layout.scratch.items() if end is step}
        return [
            {"within": True} if i in within else {"scratch": layout.offsets[scratch[i]]} if i in scratch else {}
            for i in range(len(step.reads))
        ]
    values = [*step.results, *(a for region in step.arguments for a in region)]
    return [{} if live is None else _entry(live, layout) for live in values] or None


def _entry(live: Live, layout: ArenaLayout) -> Entry:
    place, step = layout.offsets.get(live.storage), live.step
    entry: Entry = {} if place is None else {"offset": place + live.offset}
    if live.relation in ("view", "row") and step is not None:
        in_results = live.base in step.results
        number = (step.results if in_results else step.reads).index(live.base)
        entry["carry" if in_results else live.relation] = number
    elif step is not None and not live.is_argument:
        number = step.results.index(live)
        over = layout.choices.over.get(step, {}).get(number)
        parts = layout.choices.parts.get(step)
        entry |= {} if over is None else {"over": over}
        entry |= {} if parts is None else {"parts": sorted(parts)}
    return entry


def _attribute(value: Any) -> mlir.Attribute:
    ir = mlir.ir
    if isinstance(value, dict):
        return ir.DictAttr.get({str(name): _attribute(v) for name, v in value.items()})
    if isinstance(value, list):
        return ir.ArrayAttr.get([_attribute(v) for v in value])
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _value(attribute: Any) -> Any:
    ir = mlir.ir
    if isinstance(attribute, ir.DictAttr):
        return {entry.name: _value(entry.attr) for entry in attribute}
    if isinstance(attribute, ir.ArrayAttr):
        return [_value(v) for v in attribute]
    if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr)):
        return attribute.value
    return None


# --- reading ----------------------------------------------------------------------------------------


class _PlanReader:
    """Reads the plan of a graph, and checks it by the rules for creating plans."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.name = graph.name_symbol
        stored = graph.function.attributes
        if ATTRIBUTE not in stored:
            place = describe(graph.function.location)
            raise Error(f"function '{self.name}' has no memory plan", location=place, hint="run rlx-plan-memory")
        self.header = self._header(_value(stored[ATTRIBUTE]))
        self.stored: dict[LiveStep, list[Entry]] = {}

    def plan(self) -> MemoryPlan:
        """Return the plan."""
        header = self.header
        options = MemoryPlanOptions(**{f.name: header[f.name] for f in fields(MemoryPlanOptions)})
        sharing = prepare(self.graph, options, header["sizes"])
        for step in sharing.liveness.steps[1:]:
            assert step is not None
            self.stored[step] = self._at(step)
        self._share(sharing)
        scratch = sharing.scratch()
        offsets = self._offsets(storages_in_arena(sharing, scratch, options), scratch)
        plan = complete(self.graph, options, sharing, scratch, offsets)
        if header["arguments"] != _of_arguments(plan.layout):
            raise self._stale("the arguments have other places than the function says")
        for step in sharing.liveness.steps[1:]:
            assert step is not None
            if self.stored[step] != (_entries(step, plan.layout) or []):
                raise self._stale(f"'{label_of(step.op)}' shares bytes otherwise than is written at it", step)
        self._check_places(plan)
        return plan

    def _header(self, header: Any) -> Entry:
        expected: dict[str, type] = {f.name: bool for f in fields(MemoryPlanOptions)}
        expected |= {"alignment": int, "arena": int, "arguments": list, "sizes": dict}
        if not isinstance(header, dict) or header.keys() != expected.keys():
            raise self._wrong(f"'{ATTRIBUTE}' of the function has to have {', '.join(sorted(expected))}")
        for name, kind in expected.items():
            if type(header[name]) is not kind:
                raise self._wrong(f"'{name}' is of the wrong kind")
        if any(type(size) is not int or size < 0 for size in header["sizes"].values()):
            raise self._wrong("'sizes' are integers, of which none is negative")
        return header

    def _at(self, step: LiveStep) -> list[Entry]:
        attributes = step.op.attributes
        if ATTRIBUTE not in attributes:
            expected = len(step.results) + sum(map(len, step.arguments))
            if expected:
                raise self._stale(f"'{label_of(step.op)}' is not in it", step)
            return []
        entries = _value(attributes[ATTRIBUTE])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._wrong(f"'{ATTRIBUTE}' of '{label_of(step.op)}' is a list of dictionaries", step)
        return entries

    def _share(self, sharing: StorageSharing) -> None:
        """Share bytes as stored, if allowed, in the order of the planner's choices."""
        steps = list(self.stored)
        for step in steps:
            for i, entry in enumerate(self.stored[step][: len(step.results)]):
                k = entry.get("over")
                if k is not None:
                    if not self._is_operand(step, k) or not sharing.may_overwrite(step, i, k):
                        raise self._stale(f"'{label_of(step.op)}' must not be written over operand {k}", step)
                    sharing.overwrite(step, i, k)
        for step in reversed(steps):
            for number, end in enumerate(step.yields):
                for i, entry in enumerate(self.stored[end] if end is not None else ()):
                    if end is not None and "within" in entry:
                        if i >= len(end.reads) or not sharing.may_yield_within(step, number, i):
                            raise self._stale(f"value {i} must not be computed in the place of a result", end)
                        sharing.yield_within(step, number, i)
        end = steps[-1]
        for i, entry in enumerate(self.stored[end]):
            if "within" in entry:
                if i >= len(end.reads) or not sharing.may_update_within(end, i):
                    raise self._stale(f"result {i} must not be computed in the place of a state", end)
                sharing.update_within(end, i)
        for step in steps:
            parts = self.stored[step][0].get("parts", []) if self.stored[step] and step.results else []
            for k in parts if isinstance(parts, list) else [parts]:
                if not self._is_operand(step, k) or not sharing.may_join(step, k):
                    raise self._stale(f"operand {k} of '{label_of(step.op)}' must not be computed within it", step)
                sharing.join(step, k)

    @staticmethod
    def _is_operand(step: LiveStep, k: Any) -> bool:
        return type(k) is int and 0 <= k < len(step.reads)

    def _offsets(self, storages: list[Storage], scratch: Mapping[tuple[LiveStep, int], Storage]) -> dict[Storage, int]:
        """Return the offset of each storage, stored with its first value."""
        through = {storage: key for key, storage in scratch.items()}
        offsets: dict[Storage, int] = {}
        for storage in storages:
            if storage in through:
                end, i = through[storage]
                entries = self.stored[end]
                offset = entries[i].get("scratch") if i < len(entries) else None
            else:
                offset = self._entry_of(storage.members[0]).get("offset")
            if type(offset) is not int:
                raise self._stale(f"{self._name(storage)} has no place", self._step(storage, through))
            offsets[storage] = offset
        return offsets

    def _entry_of(self, live: Live) -> Entry:
        if live.step is None:
            number = [a.name for a in self.graph.arguments].index(live.name)
            entries = self.header["arguments"]
        else:
            values = [*live.step.results, *(a for region in live.step.arguments for a in region)]
            number, entries = values.index(live), self.stored[live.step]
        return entries[number] if number < len(entries) and isinstance(entries[number], dict) else {}

    @staticmethod
    def _name(storage: Storage) -> str:
        return storage.members[0].name if storage.members else "what is copied"

    @staticmethod
    def _step(storage: Storage, through: Mapping[Storage, tuple[LiveStep, int]]) -> LiveStep | None:
        return through[storage][0] if storage in through else storage.members[0].step

    def _check_places(self, plan: MemoryPlan) -> None:
        """Check that offsets are aligned, that values are inside the arena, and that values in use together do not overlap."""
        offsets, alignment = plan.layout.offsets, plan.options.alignment
        through = {storage: key for key, storage in plan.layout.scratch.items()}
        for storage, offset in offsets.items():
            step, name = self._step(storage, through), self._name(storage)
            if offset < 0 or offset + align_up(storage.size, alignment) > self.header["arena"]:
                raise self._wrong(f"{name} lies outside of the arena of {self.header['arena']} bytes", step)
            if offset % alignment:
                raise self._wrong(f"{name} lies at byte {offset}, which is not a multiple of {alignment}", step)
        for one, other in _overlaps(offsets):
            message = f"{self._name(one)} and {self._name(other)} lie in the same bytes, from {offsets[other]} on"
            raise self._wrong(f"{message}, and are in use together", self._step(other, through))
        if plan.arena_size != self.header["arena"]:
            raise self._wrong(f"the arena has {self.header['arena']} bytes, of which {plan.arena_size} are in use")

    def _wrong(self, what: str, step: LiveStep | None = None) -> Error:
        place = describe((step.op if step is not None else self.graph.function).location)
        return Error(f"the memory plan of '{self.name}' is wrong: {what}", location=place, hint=_HINT)

    def _stale(self, what: str, step: LiveStep | None = None) -> Error:
        place = describe((step.op if step is not None else self.graph.function).location)
        return Error(f"the memory plan of '{self.name}' is stale: {what}", location=place, hint=_HINT)


def _overlaps(offsets: Mapping[Storage, int]) -> Iterator[tuple[Storage, Storage]]:
    """Yield pairs of storages that share bytes at some step."""
    active: list[tuple[int, int]] = []  # by offset; no two storages that are live at a step overlap
    ends: list[tuple[int, int]] = []
    order = sorted((s for s in offsets if s.size), key=lambda s: s.start)
    for number, storage in enumerate(order):
        while ends and ends[0][0] < storage.start:
            _, gone = heappop(ends)
            active.pop(bisect_left(active, (offsets[order[gone]], gone)))
        offset = offsets[storage]
        at = bisect_left(active, (offset, number))
        for _, other in active[max(0, at - 1) : at + 1]:
            begin = offsets[order[other]]
            if begin < offset + storage.size and offset < begin + order[other].size:
                yield order[other], storage
        active.insert(at, (offset, number))
        heappush(ends, (storage.end, number))
