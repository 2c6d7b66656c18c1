"""The memory plan: where every value of a lowered graph lies in one arena, and when.

It is for back ends that manage memory themselves, of which there is none as yet; reports show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from rlx.ir import registry
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from rlx.ir.opview import has_trait, label_of, place_of
from rlx.ir.shape import Shape
from rlx.plan.liveness import Live, Liveness, Storage


@dataclass(frozen=True)
class PlannedValue:
    """One value and its bytes.

    Attributes:
        name: The name of an argument; results are `%0`, `%1`, … in program order.
        op: The op that computes it, without prefix; for an argument its kind.
        label: The same for readers: `add` for a `binary` whose kind is `add`.
        shape: Its shape, static.
        size: Its bytes.
        start: The step at which it is computed: 0 is before the first op, op number `i` is step `i + 1`.
        end: The last step at which it is needed; the return is the last of all.
        offset: Its first byte in the arena; None when it lies elsewhere.
        relation: `"own"`: no other value shares its bytes at that time. `"view"`: the bytes of `base`, from `base_offset` on.
            `"in place"`: written over `base`, whose last reader is the op that computes it. `"external"`: given by the
            caller, or a constant.
        base: The name of the value that it is a view of, or over which it is written.
        base_offset: Where it begins in `base`, in bytes.
        outputs: Names of the function's results that are this value.
        location: The user's `file:line`, empty when unknown.
    """

    name: str
    op: str
    label: str
    shape: Shape
    size: int
    start: int
    end: int
    offset: int | None
    relation: str
    base: str | None
    base_offset: int
    outputs: tuple[str, ...]
    location: str


@dataclass(frozen=True)
class MemoryPlan:
    """Where values lie. `plan[value]` is the entry of an MLIR value of the graph that was planned.

    Attributes:
        name: The name of the function.
        values: The values, in program order.
        arena_size: Bytes of the arena.
        total_bytes: The bytes that all values in the arena would take if none were shared.
        peak_live_bytes: The largest number of bytes that one step needs. No plan with the same views and the same ops
            done in place has a smaller arena.
        alignment: Every value that is not a view begins at a multiple of this many bytes.
        sizes: Sizes of symbols that the plan is made for.
        steps: The label of the op at each step.
    """

    name: str
    values: tuple[PlannedValue, ...]
    arena_size: int
    total_bytes: int
    peak_live_bytes: int
    alignment: int
    sizes: Mapping[str, int]
    steps: tuple[str, ...]
    _by_value: Mapping[Any, PlannedValue] = field(repr=False, compare=False)
    _graph: Graph = field(repr=False, compare=False)  # whose values the keys are

    def __getitem__(self, value: Any) -> PlannedValue:
        return self._by_value[getattr(value, "value", value)]

    @property
    def bytes_saved(self) -> int:
        """The bytes that sharing saves."""
        return self.total_bytes - self.arena_size

    def live_bytes(self) -> list[int]:
        """Bytes of the arena in use at each step, rounded up to the alignment."""
        return _in_use(self._extents(), len(self.steps))

    def _extents(self) -> list[tuple[int, int, int]]:
        """First and last step and size of every range of bytes of the arena."""
        extents: list[tuple[int, int, int]] = []
        index: dict[str, int] = {}
        for v in self.values:
            if v.offset is None:
                continue
            if v.base is None:
                index[v.name] = len(extents)
                extents.append((v.start, v.end, aligned(v.size, self.alignment)))
            else:
                i = index[v.name] = index[v.base]
                first, last, size = extents[i]
                extents[i] = (first, max(last, v.end), size)
        return extents


def _in_use(extents: Iterable[tuple[int, int, int]], steps: int) -> list[int]:
    """The bytes in use at each step, from the first step, the last step and the size of each range of bytes."""
    changes = [0] * (steps + 1)
    for first, last, size in extents:
        changes[first] += size
        changes[last + 1] -= size
    return list(accumulate(changes[:steps]))


def aligned(size: int, alignment: int) -> int:
    """A size rounded up to a multiple of the alignment."""
    return -(-size // alignment) * alignment


def plan_memory(
    graph: Any,
    *,
    alignment: int = 64,
    allocate_inputs: bool = True,
    allocate_params: bool = False,
    allocate_constants: bool = False,
    in_place: bool = True,
    hoist_weights: bool = False,
    sizes: Mapping[str, int] | None = None,
    entry: str | None = None,
) -> MemoryPlan:
    """Give every value of a graph a place in one arena.

    Values live from the op that gives them to their last reader, and share bytes with values that live at other times.
    A reshape, a cast that keeps the bits, and a narrow or slice of elements that lie side by side are views of their
    operand. An elementwise op (the trait) is written over an operand of
    the same shape (up to leading ones) and element size that dies there; other ops never are, since they may read an
    element again after they have written over it. The rest is placed largest first, into the smallest gap that takes
    it.

    A value read inside a region lives to the end of the region's op, which may run it again.

    Args:
        graph: A `Graph` or a module, usually LIR.
        alignment: Of each value in the arena, in bytes; a power of two.
        allocate_inputs: Inputs have a place in the arena, which is used again after their last reader. Else they stay
            in the caller's memory.
        allocate_params: Parameters and states have a place in the arena, which nothing else uses.
        allocate_constants: Constants have a place in the arena, too.
        in_place: Allow elementwise ops to be written over an operand.
        hoist_weights: Values that are computed from parameters and constants alone lie outside the arena: a program that
            computes them once, when it is loaded, needs them at every run.
        sizes: Sizes of symbols.
        entry: The function of a module; None takes the first public one.

    Raises:
        Error: The alignment is no power of two.
        ShapeError: A symbol has no size.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise Error(f"alignment {alignment} is not a power of two")
    if not isinstance(graph, Graph):
        graph = Graph.from_module(graph, entry)
    liveness = Liveness(graph, sizes or {})
    inside = {"value"} | ({"input"} if allocate_inputs else set())
    pinned = ({"param", "state"} if allocate_params else set()) | ({"constant"} if allocate_constants else set())
    for live in liveness.values.values():
        if hoist_weights and live.op is not None and _is_of_weights(live, liveness):
            live.storage.kind = "weight"
        if live.outputs:
            live.end = live.storage.end = liveness.last
        if live.storage.kind in pinned and live.base is None:
            live.start, live.end = 0, liveness.last
            live.storage.start, live.storage.end = 0, liveness.last
    if in_place:
        _merge_in_place(liveness, inside)
    storages = list(dict.fromkeys(v.storage for v in liveness.values.values() if v.storage.kind in inside | pinned))
    offsets = _offsets(storages, alignment)
    return _plan(graph, liveness, offsets, alignment)


def _is_of_weights(live: Live, liveness: Liveness) -> bool:
    """Whether a result is computed from parameters and constants alone."""
    if not registry.is_ours(live.op) or len(live.op.regions) or not live.op.operands:
        return False
    return all(liveness.values[v].storage.kind in ("param", "constant", "weight") for v in live.op.operands)


# --- in place -------------------------------------------------------------------------------------


def _merge_in_place(liveness: Liveness, inside: set[str]) -> None:
    """Let results of elementwise ops be written over operands of which the op is the last reader."""
    followers: dict[Storage, list[Live]] = {}
    for live in liveness.values.values():
        followers.setdefault(live.storage, []).append(live)
    for live in liveness.values.values():
        if (
            live.op is None
            or live.relation != "own"
            or live.storage.kind != "value"
            or not has_trait(live.op, "elementwise")
        ):
            continue
        operands = [liveness.values[v] for v in live.op.operands]
        chosen = next((o for o in operands if o.storage.kind in inside and _may_overwrite(live, o, operands)), None)
        if chosen is None:
            continue
        live.base, live.relation = chosen, "in place"
        moved = followers.pop(live.storage)
        chosen.storage.end = live.storage.end
        for follower in moved:
            follower.storage = chosen.storage
        followers[chosen.storage] += moved


def _may_overwrite(result: Live, operand: Live, operands: Sequence[Live]) -> bool:
    """Whether a result may have the bytes of an operand: each element depends on the one element that lies there."""
    storage = operand.storage
    if storage is result.storage or storage.end != result.start or storage.size != result.size:
        return False
    # Every operand in these bytes has to be read in the order in which the result is written.
    return all(
        o.offset == 0
        and _trailing(o.shape) == _trailing(result.shape)
        and o.shape.dtype.itemsize == result.shape.dtype.itemsize
        for o in operands
        if o.storage is storage
    )


def _trailing(shape: Shape) -> tuple[int, ...]:
    """The dimensions without leading ones."""
    dims = list(shape.static)
    while dims and dims[0] == 1:
        dims.pop(0)
    return tuple(dims)


# --- placing --------------------------------------------------------------------------------------


def _offsets(storages: Sequence[Storage], alignment: int) -> dict[Storage, int]:
    """An offset for each storage: largest first, each in the smallest gap that is large enough, else at the top."""
    starts, ends = (np.array([getattr(s, name) for s in storages], np.int64) for name in ("start", "end"))
    sizes = np.array([aligned(s.size, alignment) for s in storages], np.int64)
    order = np.array(sorted(range(len(storages)), key=lambda i: (-storages[i].size, storages[i].start, i)), np.int64)
    starts, ends, sizes = starts[order], ends[order], sizes[order]
    offsets = np.zeros(len(storages), np.int64)
    for i in range(len(storages)):
        (others,) = np.nonzero((ends[:i] >= starts[i]) & (starts[:i] <= ends[i]))  # placed, and live at the same time
        offsets[i] = _place(sizes[i], offsets[others], sizes[others])
    return {storages[i]: int(offset) for i, offset in zip(order, offsets, strict=True)}


def _place(size: np.int64, offsets: np.ndarray, sizes: np.ndarray) -> np.int64:
    """The offset of a range of bytes among others that it may not overlap."""
    by_offset = np.argsort(offsets, kind="stable")
    begins = offsets[by_offset]
    tops = np.maximum.accumulate(np.concatenate([[0], begins + sizes[by_offset]]))  # behind the first 0, 1, … of them
    gaps = begins - tops[:-1]
    fits = gaps >= size
    if not fits.any():
        return tops[-1]
    return tops[np.argmin(np.where(fits, gaps, np.iinfo(np.int64).max))]


def _plan(graph: Graph, liveness: Liveness, offsets: dict[Storage, int], alignment: int) -> MemoryPlan:
    entries: dict[Any, PlannedValue] = {}
    for value, live in liveness.values.items():
        place = offsets.get(live.storage)
        external = place is None and live.base is None
        entries[value] = PlannedValue(
            name=live.name,
            op=live.op.name.removeprefix("rlx.") if live.op is not None else live.storage.kind,
            label=label_of(live.op) if live.op is not None else live.storage.kind,
            shape=live.shape,
            size=live.size,
            start=live.start,
            end=live.end,
            offset=None if place is None else place + live.offset,
            relation="external" if external else live.relation,
            base=live.base.name if live.base is not None else None,
            base_offset=live.offset - live.base.offset if live.base is not None else 0,
            outputs=tuple(live.outputs),
            location=place_of(live.op) if live.op is not None else "",
        )
    used = _in_use(((s.start, s.end, aligned(s.size, alignment)) for s in offsets), liveness.last + 1)
    return MemoryPlan(
        name=graph.name_symbol,
        values=tuple(entries.values()),
        arena_size=max((o + aligned(s.size, alignment) for s, o in offsets.items()), default=0),
        total_bytes=sum(aligned(e.size, alignment) for e in entries.values() if e.offset is not None),
        peak_live_bytes=max(used),
        alignment=alignment,
        sizes=liveness.sizes,
        steps=("start", *map(label_of, liveness.ops)),
        _by_value=entries,
        _graph=graph,
    )
