"""Memory plans: the place of every value of a lowered graph in one arena, and its live range.

Plans are used by back ends that manage memory themselves, such as the C back end. Reports show them, and the executor
runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from rlx.ir.op.opview import label_of, place_of
from rlx.ir.shape import Shape
from rlx.plan.liveness import REGISTERS, Live, Liveness, LiveStep, Storage
from rlx.plan.options import MemoryPlanOptions
from rlx.plan.placing import place
from rlx.plan.sharing import Choices, StorageSharing, align_up, used_bytes


@dataclass(frozen=True)
class PlannedValue:
    """One value and its bytes.

    Attributes:
        name: The name of an argument; results are `%0`, `%1`, … in program order.
        op: The name of the op that computes it, without prefix; for an argument, its kind.
        label: The op's name for readers: `add` for a `binary` whose kind is `add`.
        shape: Its shape, static.
        size: Its bytes.
        start: The step at which it is computed: 0 is before the first op, op number `i` is step `i + 1`.
        end: The last step at which it is needed; the return is the last of all.
        offset: Its first byte in the arena; None if it is elsewhere.
        relation: `"own"`: no other value shares its bytes at that time. `"view"`: the bytes of `base` from
            `base_offset`. `"row"`: like a view, but of another part at each step of a loop; `base_offset` is the first.
            `"in place"`: written over `base`, whose last reader is the op that computes it. `"within"`: computed in the
            bytes of `base`, which is defined later: for a value that a region yields, or an operand of a concatenation.
            `"external"`: provided by the caller, or a constant. `"registers"`: computed by the kernel that reads it, and
            not stored.
        base: The name of the value that it is a view of, is written over, or is computed within.
        base_offset: Its first byte in `base`.
        slot: The number of its slot; None if it is elsewhere.
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
    slot: int | None
    outputs: tuple[str, ...]
    location: str


@dataclass(frozen=True)
class Slot:
    """A range of bytes in the arena that values share, one after the other or as views of each other.

    Attributes:
        offset: The first byte.
        size: The number of bytes, rounded up to the alignment.
        start: The first step at which the range is in use.
        end: The last step at which it is in use.
    """

    offset: int
    size: int
    start: int
    end: int


@dataclass(frozen=True)
class MemoryPlan:
    """The places of values in memory. `plan[value]` is the entry of an MLIR value of the planned graph.

    Attributes:
        name: The name of the function.
        values: The values, in program order.
        slots: The ranges of the arena, and when each is in use.
        arena_size: Bytes of the arena.
        total_bytes: The bytes of all values in the arena without sharing.
        peak_live_bytes: The largest number of bytes that one step needs: a lower bound of the arena for the same views
            and sharing.
        options: The options of the plan.
        sizes: The sizes of symbols.
        steps: The label of the op at each step.
    """

    name: str
    values: tuple[PlannedValue, ...]
    slots: tuple[Slot, ...]
    arena_size: int
    total_bytes: int
    peak_live_bytes: int
    options: MemoryPlanOptions
    sizes: Mapping[str, int]
    steps: tuple[str, ...]
    layout: ArenaLayout = field(repr=False, compare=False)

    def __getitem__(self, value: Any) -> PlannedValue:
        return self.values[self.layout.index[getattr(value, "value", value)]]

    @property
    def bytes_saved(self) -> int:
        """The bytes that sharing saves."""
        return self.total_bytes - self.arena_size

    @property
    def gap(self) -> float:
        """The excess of the arena over the peak of live bytes, as a fraction of the peak: 0 is optimal."""
        return self.arena_size / self.peak_live_bytes - 1 if self.peak_live_bytes else 0.0

    def live_bytes(self) -> list[int]:
        """Return the bytes of the arena in use at each step, rounded up to the alignment."""
        storages = [s for s in self.layout.offsets if s.size]
        return [int(n) for n in used_bytes(storages, len(self.steps) - 1, self.options.alignment)]


@dataclass(frozen=True)
class ArenaLayout:
    """The data of a plan, in terms of the values and ops of the graph.

    Attributes:
        graph: The graph.
        liveness: Its values, with the storages that they share.
        choices: The values that share bytes.
        offsets: The offsets of storages in the arena.
        scratch: For a terminator and the index of a yielded value, the storage through which the value is copied.
        index: The number of each value in `MemoryPlan.values`.
    """

    graph: Graph
    liveness: Liveness
    choices: Choices
    offsets: Mapping[Storage, int]
    scratch: Mapping[tuple[LiveStep, int], Storage]
    index: Mapping[Any, int]


def plan_memory(
    graph: Any,
    options: MemoryPlanOptions | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    entry: str | None = None,
    **changes: Any,
) -> MemoryPlan:
    """Assign every value of a graph a place in one arena.

    Values are live from the op that defines them to their last reader, and share bytes with values that are live at
    other times. The op declares (by `Card.aliases`, `Card.parts`, `Card.flows` and the traits `elementwise`, `rowwise`,
    `updates`) which results may be views of operands, or be computed in the bytes of another value
    (`rlx.plan.sharing`). The remaining storages are placed by best fit in several orders (`rlx.plan.placing`).

    Args:
        graph: A `Graph` or a module, usually LIR.
        options: The values to place; by default, values and inputs.
        sizes: Sizes of symbols.
        entry: The function of a module; None takes the first public one.
        changes: Single options: `alignment=16`.

    Raises:
        Error: The alignment is not a power of two.
        ShapeError: A symbol has no size.
    """
    options = replace(options or MemoryPlanOptions(), **changes)
    if not isinstance(graph, Graph):
        graph = Graph.from_module(graph, entry)

    sharing = prepare(graph, options, sizes or {})
    if options.in_place:
        sharing.choose()
    scratch = sharing.scratch()
    offsets = place(storages_in_arena(sharing, scratch, options), sharing.liveness.last, options.alignment)
    return complete(graph, options, sharing, scratch, offsets)


def prepare(graph: Graph, options: MemoryPlanOptions, sizes: Mapping[str, int]) -> StorageSharing:
    """Return the values of a graph. Only views share bytes so far."""
    liveness = Liveness(graph, sizes, f32_uniform=options.f32_uniform)
    _set_kinds(liveness, options)
    return StorageSharing(liveness, options.shared_kinds, options.pinned_kinds, options.alignment)


def storages_in_arena(
    sharing: StorageSharing, scratch: Mapping[tuple[LiveStep, int], Storage], options: MemoryPlanOptions
) -> list[Storage]:
    """Return the storages to place, after the sharing of bytes has been decided."""
    inside = options.shared_kinds | options.pinned_kinds
    of_values = dict.fromkeys(live.storage for live in sharing.liveness.values.values())
    return [*(storage for storage in of_values if storage.kind in inside), *scratch.values()]


def complete(
    graph: Graph,
    options: MemoryPlanOptions,
    sharing: StorageSharing,
    scratch: Mapping[tuple[LiveStep, int], Storage],
    offsets: Mapping[Storage, int],
) -> MemoryPlan:
    """Return the plan for the offsets of all storages."""
    index = {value: i for i, value in enumerate(sharing.liveness.values)}
    return _plan(options, ArenaLayout(graph, sharing.liveness, sharing.choices, offsets, scratch, index))


def _set_kinds(liveness: Liveness, options: MemoryPlanOptions) -> None:
    """Mark the storages that are in the arena permanently, and those that are outside because they hold weights."""
    for live in liveness.values.values():
        storage = live.storage
        if options.hoist_weights and live.base is None and _is_of_weights(live):
            storage.kind = "weight"
        if storage.kind in options.pinned_kinds and live.base is None:
            storage.start, storage.end = 0, liveness.last


def _is_of_weights(live: Live) -> bool:
    """Whether a result depends only on parameters and constants."""
    step = live.step
    if step is None or live.is_argument or not step.reads or step.yields or not registry.is_ours(step.op):
        return False
    return all(o is not None and o.storage.kind in ("param", "constant", "weight") for o in step.reads)


def _plan(options: MemoryPlanOptions, layout: ArenaLayout) -> MemoryPlan:
    liveness, offsets = layout.liveness, layout.offsets
    slot_numbers = {storage: i for i, storage in enumerate(offsets)}
    labels = [label_of(op) for op in liveness.ops]
    values = tuple(_entry(live, offsets, slot_numbers, labels) for live in liveness.values.values())
    slots = tuple(Slot(o, align_up(s.size, options.alignment), s.start, s.end) for s, o in offsets.items())
    used = used_bytes([s for s in offsets if s.size], liveness.last, options.alignment)
    return MemoryPlan(
        name=layout.graph.name_symbol,
        values=values,
        slots=slots,
        arena_size=max((slot.offset + slot.size for slot in slots), default=0),
        total_bytes=sum(align_up(v.size, options.alignment) for v in values if v.offset is not None),
        peak_live_bytes=int(used.max()),
        options=options,
        sizes=liveness.sizes,
        steps=("start", *labels),
        layout=layout,
    )


def _entry(live: Live, offsets: Mapping[Storage, int], slots: Mapping[Storage, int], labels: list[str]) -> PlannedValue:
    place, step = offsets.get(live.storage), live.step
    outside = live.storage.kind if live.storage.kind == REGISTERS else "external"
    is_pinned = live.storage.kind not in ("value", "input") and place is not None and live is live.storage.members[0]
    return PlannedValue(
        name=live.name,
        op=live.storage.kind if step is None else step.op.name.removeprefix("rlx."),
        label=live.storage.kind if step is None else labels[step.index - 1],
        shape=live.shape,
        size=live.size,
        start=live.storage.start if is_pinned else live.start,
        end=live.storage.end if is_pinned else live.end,
        offset=None if place is None else place + live.offset,
        relation=outside if place is None and live.base is None else live.relation,
        base=live.base.name if live.base is not None else None,
        base_offset=live.offset - live.base.offset if live.base is not None else 0,
        slot=slots.get(live.storage),
        outputs=tuple(live.outputs),
        location=place_of(step.op) if step is not None else "",
    )
