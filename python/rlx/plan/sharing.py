"""Sharing of bytes between values: rules for what is allowed, and the choice.

There are three ways. A result is written *over* an operand that dies there. A value that a region yields is computed
*within* the result of the region's op, and the next value of a state within the state. The operands of a concatenation
are computed within its result. A predicate decides each case, so that plans from elsewhere are checked by the same
rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rlx.ir.op import opview, registry
from rlx.plan.liveness import Live, Liveness, LiveStep, Storage


@dataclass
class Choices:
    """The sharing of bytes, by steps.

    Attributes:
        over: For each op, the operand that each result is written over.
        within: For each terminator of a region, the values that are computed within the results; for that of the
            function, those that are computed within states.
        parts: For each concatenation, the operands that are computed within the result.
    """

    over: dict[LiveStep, dict[int, int]] = field(default_factory=dict["LiveStep", "dict[int, int]"])
    within: dict[LiveStep, set[int]] = field(default_factory=dict["LiveStep", "set[int]"])
    parts: dict[LiveStep, set[int]] = field(default_factory=dict["LiveStep", "set[int]"])


class StorageSharing:
    """The storages of a function's values, with the sharing chosen so far.

    Args:
        liveness: The values; their storages are changed.
        kinds: Kinds of storage that are in the arena and may be reused.
        pinned: Kinds of storage that are in the arena permanently.
        alignment: The alignment of values.

    Attributes:
        results: More kinds of storage, outside of the arena, whose results may hold the values that a region yields.
    """

    def __init__(self, liveness: Liveness, kinds: frozenset[str], pinned: frozenset[str], alignment: int):
        self.liveness, self.kinds, self.pinned, self.alignment = liveness, kinds, pinned, alignment
        self.results: frozenset[str] = frozenset()
        self.choices = Choices()

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self) -> None:
        """Share bytes wherever it is allowed and costs nothing."""
        for step in self._steps():
            for i in range(len(step.results)):
                for k in range(len(step.reads)):
                    if self.may_overwrite(step, i, k):
                        self.overwrite(step, i, k)
                        break
        for region_op in reversed(list(self._steps())):
            for number, end in enumerate(region_op.yields):
                for i in range(len(end.reads) if end is not None else 0):
                    if self.may_yield_within(region_op, number, i):
                        self.yield_within(region_op, number, i)
        end = self.liveness.steps[-1]
        assert end is not None
        for i in range(len(end.reads)):
            if self.may_update_within(end, i):
                self.update_within(end, i)
        joins = [step for step in self._steps() if self._places(step)]
        if joins:
            profile = Profile(self.liveness, self._arena(), self.alignment)
            for step in joins:
                chosen = {k for k in range(len(step.reads)) if self.may_join(step, k)}
                if chosen and profile.join(step, chosen):
                    for k in sorted(chosen):
                        self.join(step, k)

    def scratch(self) -> dict[tuple[LiveStep, int], Storage]:
        """Return storages for values that a loop yields, where copying one carry would overwrite the source of another."""
        scratch: dict[tuple[LiveStep, int], Storage] = {}
        for step in self._steps():
            for number, end in enumerate(step.yields):
                copied = [c for c in self._copied(step, number) if c[1].storage is not c[2].storage or c[1].offset]
                overwritten = {result.storage for _, _, result in copied}
                for i, yielded, _ in copied:
                    if end is not None and yielded.storage in overwritten:
                        scratch[end, i] = Storage(yielded.size, end.index, end.index, "value", [])
        return scratch

    def _copied(self, step: LiveStep, number: int) -> Iterator[tuple[int, Live, Live]]:
        """Yield the carries that a region yields: index, value and result."""
        flow, end = step.flows[number] if number < len(step.flows) else None, step.yields[number]
        for i, target in enumerate(flow.yields if flow is not None else ()):
            yielded = end.reads[i] if end is not None else None
            result = step.results[target.index] if target is not None and target.kind == "carry" else None
            if yielded is not None and result is not None:
                yield i, yielded, result

    def _steps(self) -> Iterator[LiveStep]:
        return (step for step in self.liveness.steps if step is not None)

    def _arena(self) -> list[Storage]:
        storages = dict.fromkeys(live.storage for live in self.liveness.values.values())
        return [s for s in storages if s.kind in self.kinds]

    # --- over an operand --------------------------------------------------------------------------

    def may_overwrite(self, step: LiveStep, i: int, k: int) -> bool:
        """Whether a result may be written over an operand whose live range ends at the op."""
        result, operand = step.results[i], step.reads[k]
        if result is None or operand is None or result.relation != "own" or result.storage.kind != "value":
            return False
        return operand.storage.end == step.index and self.may_write_over(step, i, k)

    def may_write_over(self, step: LiveStep, i: int, k: int) -> bool:
        """Whether a result may be written over an operand, provided that the operand's live range ends at the op."""
        result, operand = step.results[i], step.reads[k]
        if result is None or operand is None or operand.storage is result.storage:
            return False
        fits = operand.storage.size == result.storage.size and operand.storage.kind in self.kinds
        return fits and self._is_read_in_order(step, i, k)

    def _is_read_in_order(self, step: LiveStep, i: int, k: int) -> bool:
        """Whether every element of an operand is read before the result is written to its place."""
        result, operand = step.results[i], step.reads[k]
        assert result is not None and operand is not None
        if operand.offset != 0 or operand.size != result.size or not step.in_order:
            return False
        if step.flows:
            return any(flow.kind == "carry" and flow.index == i == k for r in step.flows if r for flow in r.arguments)
        shared = [o for o in step.reads if o is not None and o.storage is operand.storage]
        item = self.liveness.item_size(result.shape)
        if len(step.results) == 1 and step.is_elementwise:
            return all(
                o.offset == 0
                and _trailing(o.shape.static) == _trailing(result.shape.static)
                and self.liveness.item_size(o.shape) == item
                for o in shared
            )
        fits = operand.shape.static == result.shape.static and self.liveness.item_size(operand.shape) == item
        return k == 0 and len(shared) == 1 and fits and (step.has_trait("rowwise") or step.has_trait("updates"))

    def overwrite(self, step: LiveStep, i: int, k: int) -> None:
        """Write a result over an operand."""
        result, operand = step.results[i], step.reads[k]
        assert result is not None and operand is not None
        end = result.storage.end
        _move(result.storage, operand.storage, 0)
        operand.storage.end = end
        result.base, result.relation = operand, "in place"
        self.choices.over.setdefault(step, {})[i] = k

    # --- within the result of a region's op ---------------------------------------------------------

    def may_yield_within(self, step: LiveStep, number: int, i: int) -> bool:
        """Whether a value that a region yields may be computed in the bytes of the result that it becomes."""
        result = self._becomes(step, number, i)
        end = step.yields[number]
        yielded = end.reads[i] if end is not None else None
        if result is None or yielded is None or end is None:
            return False
        storage, root = yielded.storage, yielded.storage.members[0]
        fits = storage.size == result.storage.size and yielded.offset == result.offset == 0
        computed_there = storage.kind == "value" and not root.is_argument and root.home is not None
        if (
            not fits
            or not computed_there
            or root.base is not None
            or result.storage.kind not in self.kinds | self.results
        ):
            return False
        if storage is result.storage or storage.end != end.index or not self.is_inside(root, step, number):
            return False
        return self._carry_is_over(step, number, i, root)

    def _becomes(self, step: LiveStep, number: int, i: int) -> Live | None:
        """Return the result that a yielded value becomes as a whole."""
        flow = step.flows[number] if number < len(step.flows) else None
        target = flow.yields[i] if flow is not None and i < len(flow.yields) else None
        return step.results[target.index] if target is not None and target.kind != "row" else None

    def is_inside(self, live: Live, step: LiveStep, number: int) -> bool:
        """Whether a value is computed in a region, or in one nested in it."""
        home = live.home
        while home is not None and home != (step, number):
            home = home[0].home
        return home is not None

    def _carry_is_over(self, step: LiveStep, number: int, i: int, root: Live) -> bool:
        """Whether the last read of the carry precedes the write of its next value."""
        flow = step.flows[number]
        assert flow is not None and root.step is not None
        carry = step.arguments[number][i] if flow.yields[i] == _argument_flow(flow.arguments, i) else None
        return carry is None or self._is_over(carry, root)

    def _is_over(self, variable: Live, root: Live) -> bool:
        """Whether the last read of a carry or state precedes the write of its next value."""
        writer, start = root.step, root.storage.start
        if variable.end != start or writer is None or writer.index != start:
            return variable.end < start
        k = next((k for k, o in enumerate(writer.reads) if o is not None and o.storage is variable.storage), None)
        return k is not None and self._is_read_in_order(writer, writer.results.index(root), k)

    def yield_within(self, step: LiveStep, number: int, i: int) -> None:
        """Compute a value that a region yields in the bytes of the result."""
        result, end = self._becomes(step, number, i), step.yields[number]
        assert result is not None and end is not None
        yielded = end.reads[i]
        assert yielded is not None
        root, target = yielded.storage.members[0], result.storage
        target.start = min(target.start, yielded.storage.start)
        _move(yielded.storage, target, 0)
        root.base, root.relation = result, "within"
        self.choices.within.setdefault(end, set()).add(i)

    # --- within a state -----------------------------------------------------------------------------------

    def may_update_within(self, end: LiveStep, i: int) -> bool:
        """Whether the next value of a state may be computed in its bytes, if states are in the arena."""
        value, state = end.reads[i], self.liveness.states.get(i)
        if value is None or state is None or state.storage.kind not in self.pinned:
            return False
        storage, root = value.storage, value.storage.members[0]
        fits = value.offset == 0 and storage.size == state.size and storage.kind == "value"
        computed = root.relation == "own" and not root.is_argument and root.home is None and root.step is not None
        only = [live.outputs for live in storage.members if live.outputs] == [value.outputs] and len(value.outputs) == 1
        return fits and computed and only and self._is_over(state, root)

    def update_within(self, end: LiveStep, i: int) -> None:
        """Compute the next value of a state in its bytes."""
        value, state = end.reads[i], self.liveness.states[i]
        assert value is not None
        root = value.storage.members[0]
        _move(value.storage, state.storage, 0)
        root.base, root.relation = state, "within"
        self.choices.within.setdefault(end, set()).add(i)

    # --- within a concatenation -----------------------------------------------------------------------

    def _places(self, step: LiveStep) -> list[int | None]:
        """Return for each operand its first byte in the result; None if its elements are not contiguous there."""
        op = step.op
        if not registry.is_ours(op) or not (card := opview.card_of(op)).has("parts") or None in step.reads:
            return []
        reads = [r for r in step.reads if r is not None]
        elements = card.parts([r.shape for r in reads], opview.attributes_of(op, self.liveness.sizes))
        item = self.liveness.item_size(reads[0].shape)
        return [None if first is None else first * item for first in elements]

    def may_join(self, step: LiveStep, k: int) -> bool:
        """Whether an operand may be computed at its position in the result."""
        places, result, operand = self._places(step), step.results[0], step.reads[k]
        if not places or places[k] is None or result is None or operand is None:
            return False
        storage, root = operand.storage, operand.storage.members[0]
        whole = operand.offset == 0 and storage.size == operand.size and operand.size > 0
        computed = storage.kind == "value" and root.relation == "own" and not root.is_argument
        dies = storage.end == step.index and operand not in step.reads[:k]
        is_root = result.relation in ("own", "within") and result.storage.members[0] is result
        return is_root and whole and computed and dies and (places[k] or 0) % self.alignment == 0

    def join(self, step: LiveStep, k: int) -> None:
        """Compute an operand at its position in the result."""
        result, operand = step.results[0], step.reads[k]
        place = self._places(step)[k]
        assert result is not None and operand is not None and place is not None
        root, target = operand.storage.members[0], result.storage
        target.start = min(target.start, operand.storage.start)
        _move(operand.storage, target, place)
        root.base, root.relation = result, "within"
        self.choices.parts.setdefault(step, set()).add(k)


def _argument_flow(flows: tuple[object, ...], i: int) -> object:
    return flows[i] if i < len(flows) else None


def _move(source: Storage, target: Storage, offset: int) -> None:
    """Move all values of a storage to another one, at a byte offset."""
    for live in source.members:
        live.storage = target
        live.offset += offset
    target.members += source.members


def _trailing(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions without leading ones."""
    first = next((i for i, d in enumerate(dims) if d != 1), len(dims))
    return dims[first:]


class Profile:
    """The bytes in use at each step, to estimate the cost of an in-place concatenation beforehand."""

    def __init__(self, liveness: Liveness, storages: list[Storage], alignment: int):
        self.alignment = alignment
        self.used = used_bytes(storages, liveness.last, alignment)
        self.peak = int(self.used.max())

    def join(self, step: LiveStep, chosen: set[int]) -> bool:
        """Count some operands as computed within the result, unless the peak would rise. Returns whether it was done."""
        result = step.results[0]
        assert result is not None
        operands = {live.storage for k in chosen if (live := step.reads[k]) is not None}
        start = min(s.start for s in operands)
        after = self.used[start : step.index + 1].copy()
        after[: result.storage.start - start] += align_up(result.storage.size, self.alignment)
        for storage in operands:
            after[storage.start - start :] -= align_up(storage.size, self.alignment)
        if len(after) and int(after.max()) > self.peak:
            return False
        self.used[start : step.index + 1] = after
        return True


def used_bytes(storages: list[Storage], last: int, alignment: int) -> np.ndarray:
    """Return the bytes that storages take at each step, each rounded up to the alignment."""
    changes = np.zeros(last + 2, np.int64)
    for storage in storages:
        size = align_up(storage.size, alignment)
        changes[storage.start] += size
        changes[storage.end + 1] -= size
    return np.cumsum(changes)[:-1]


def align_up(size: int, alignment: int) -> int:
    """Return a size rounded up to a multiple of the alignment."""
    return -(-size // alignment) * alignment
