"""Scheduling of the ops of a block to reduce the memory in use at once.

Finding the best order is NP-complete (Sethi 1975, "Complete register allocation problems"). Four orders are compared by
cost: the existing one; a greedy one that takes the op that frees most, with some look-ahead; the same from the end of
the block; and depth first, starting with the operand that needs most (Sethi and Ullman 1970).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from rlx.plan.liveness import Live, Liveness, LiveStep, Storage
from rlx.plan.sharing import StorageSharing, align_up

# The number of candidates for the next op, and the number of look-ahead ops for each.
_CANDIDATES, _AHEAD = 6, 6


@dataclass(eq=False, slots=True)
class ScheduledOp:
    """An op of a block, including its regions.

    Attributes:
        index: Its number in the existing order.
        step: The op.
        reads: Storages that it reads, which are freed after their last reader.
        gives: Storages that it defines.
        over: Storages that it reads and may write its result over.
        before: The nodes that must precede it.
        after: The nodes that it must precede.
        given: Bytes of the storages that it defines.
        inside: Bytes that its regions need temporarily.
    """

    index: int
    step: LiveStep
    reads: tuple[Storage, ...]
    gives: tuple[Storage, ...]
    given: int
    over: tuple[Storage, ...]
    before: set[int] = field(default_factory=set[int])
    after: set[int] = field(default_factory=set[int])
    inside: int = 0


class ScheduledBlock:
    """The ops of a block without its terminator, and the cost of orders.

    Args:
        steps: The ops.
        end: The terminator: its operands are not freed.
        sharing: The storages, which only views share so far.
        inner: For each op inside the block, the bytes that its regions need temporarily.
    """

    def __init__(self, steps: Sequence[LiveStep], end: LiveStep, sharing: StorageSharing, inner: dict[LiveStep, int]):
        self.sharing = sharing
        self.size: dict[Storage, int] = {}  # size of each storage in the arena
        self.kept = {live.storage for live in end.reads if live is not None}
        given: dict[Storage, int] = {}
        for index, step in enumerate(steps):
            for live in step.results:
                if live is not None and live.base is None and live.storage.kind == "value":
                    given[live.storage] = index
        self.readers: dict[Storage, set[int]] = {storage: set() for storage in given}
        self.nodes = [self._node(i, step, given, inner.get(step, 0)) for i, step in enumerate(steps)]
        for node in self.nodes:
            for storage in node.reads:
                self.readers.setdefault(storage, set()).add(node.index)
        self._order_writers(steps)

    def _node(self, index: int, step: LiveStep, given: dict[Storage, int], inside: int) -> ScheduledOp:
        kinds, home = self.sharing.kinds, step.home
        lives = list(dict.fromkeys(_reads(step)))
        # Values defined outside the block outlive it. Inputs of the function end at their last reader.
        local = [v for v in lives if v.storage in given or (home is None and v.storage.kind in kinds)]
        gives = tuple(v.storage for v in step.results if v is not None and v.storage in given and v.base is None)
        over = tuple(
            o.storage
            for i in range(len(step.results))
            for k, o in enumerate(step.reads)
            if o is not None and o.storage.kind in kinds and self.sharing.may_write_over(step, i, k)
        )
        reads = tuple(dict.fromkeys(v.storage for v in local))
        for storage in (*reads, *gives):
            self.size[storage] = align_up(storage.size, self.sharing.alignment)
        return ScheduledOp(index, step, reads, gives, sum(self.size[s] for s in gives), over, inside=inside)

    def _order_writers(self, steps: Sequence[LiveStep]) -> None:
        """Make ops follow the ops whose results they read."""
        number = {step: i for i, step in enumerate(steps)}
        for node in self.nodes:
            for live in _reads(node.step):
                step = live.step
                while step is not None and step not in number:
                    step = step.home[0] if step.home is not None else None
                i = number.get(step) if step is not None else None
                if i is not None and i != node.index:
                    node.before.add(i)
                    self.nodes[i].after.add(node.index)

    # --- cost of an order ------------------------------------------------------------------------------

    def peak(self, order: Iterable[int]) -> int:
        """Return the maximum bytes in use at once, without values defined outside the block."""
        state = _MemoryInUse(self)
        return max((state.run(self.nodes[i]) for i in order), default=state.live)

    def best_order(self) -> tuple[list[int], int]:
        """Return the cheapest order and its peak; the existing order, unless another is better."""
        best, peak = list(range(len(self.nodes))), self.peak(range(len(self.nodes)))
        for order in (self.forward(), self.backward(), self.depth_first()):
            cost = self.peak(order)
            if cost < peak:
                best, peak = order, cost
        return best, peak

    # --- orders -----------------------------------------------------------------------------------------

    def forward(self) -> list[int]:
        """Return a greedy order: the next op leaves least in use after it and its immediate followers."""
        state, order = _MemoryInUse(self), list[int]()
        waiting = [len(node.before) for node in self.nodes]
        heap = [(state.change(node), node.index) for node in self.nodes if not waiting[node.index]]
        heapify(heap)
        done = [False] * len(self.nodes)
        while len(order) < len(self.nodes):
            index = self._next(heap, state, done, waiting)
            state.run(self.nodes[index])
            done[index] = True
            order.append(index)
            ready = [i for i in self.nodes[index].after if self._is_ready(i, waiting)]
            # The change for an op that is now the last reader of a storage must be computed again.
            last = [next(iter(r)) for s in self.nodes[index].reads if len(r := state.remaining[s]) == 1]
            for i in (*ready, *(i for i in last if not waiting[i] and not done[i])):
                heappush(heap, (state.change(self.nodes[i]), i))
        return order

    @staticmethod
    def _is_ready(i: int, waiting: list[int]) -> bool:
        waiting[i] -= 1
        return not waiting[i]

    def _next(self, heap: list[tuple[int, int]], state: _MemoryInUse, done: list[bool], waiting: list[int]) -> int:
        """Return the most promising of the ops that could come next."""
        taken: list[tuple[int, int]] = []
        while heap and len(taken) < _CANDIDATES:
            entry = heappop(heap)
            if not done[entry[1]] and entry[0] == state.change(self.nodes[entry[1]]) and entry not in taken:
                taken.append(entry)
                if entry[0] <= 0 and len(taken) == 1:
                    return entry[1]  # an op that frees memory is taken at once
        best = min(taken, key=lambda entry: (self._after(entry[1], state, waiting), entry[1]))
        for entry in taken:
            if entry is not best:
                heappush(heap, entry)
        return best[1]

    def _after(self, index: int, state: _MemoryInUse, waiting: list[int]) -> int:
        """Return the smallest change of bytes in use that an op and its followers can achieve."""
        trial, total, least = _ScheduleTrial(state), 0, None
        missing: dict[int, int] = {}
        for _ in range(_AHEAD):
            node = self.nodes[index]
            total += trial.run(node)
            least = total if least is None else min(least, total)
            for i in node.after:
                missing[i] = missing.get(i, waiting[i]) - 1
            ready = [i for i, count in missing.items() if not count]
            if not ready or least <= 0:
                break
            index = min(ready, key=lambda i: (trial.change(self.nodes[i]), i))
            del missing[index]
        return least or 0

    def backward(self) -> list[int]:
        """Return an order built from the end of the block.

        The preceding op is always the one that adds the fewest bytes to the values that are needed.
        """
        needed = set(self.kept)
        waiting = [len(node.after) for node in self.nodes]

        def added(node: ScheduledOp) -> int:
            return sum(self.size[s] for s in node.reads if s not in needed) - node.given

        heap = [(added(node), -node.index) for node in self.nodes if not waiting[node.index]]
        heapify(heap)
        order: list[int] = []
        while heap:
            cost, negative = heappop(heap)
            node = self.nodes[-negative]
            if cost != (now := added(node)):  # other ops now need its operands
                heappush(heap, (now, negative))
                continue
            order.append(node.index)
            needed.update(node.reads)
            needed.difference_update(node.gives)
            for i in node.before:
                if self._is_ready(i, waiting):
                    heappush(heap, (added(self.nodes[i]), -i))
        return order[::-1]

    def depth_first(self) -> list[int]:
        """Return a depth-first order: operands just before their op, starting with the one that needs most."""
        needs: list[int] = []
        for node in self.nodes:
            held, need = 0, 0
            for i in self._by_need(node, needs):
                need = max(need, held + needs[i])
                held += self.nodes[i].given
            needs.append(max(need, held + node.given + node.inside))
        order: list[int] = []
        seen = [False] * len(self.nodes)
        for root in (i for i, node in enumerate(self.nodes) if not node.after):
            stack = [(root, iter(self._by_need(self.nodes[root], needs)))]
            seen[root] = True
            while stack:
                index, operands = stack[-1]
                following = next((i for i in operands if not seen[i]), None)
                if following is None:
                    order.append(index)
                    stack.pop()
                else:
                    seen[following] = True
                    stack.append((following, iter(self._by_need(self.nodes[following], needs))))
        return order

    def _by_need(self, node: ScheduledOp, needs: list[int]) -> list[int]:
        def key(i: int) -> tuple[int, int]:
            return self.nodes[i].given - needs[i], i

        return sorted(node.before, key=key)


def steps_of_blocks(liveness: Liveness) -> Iterator[tuple[tuple[LiveStep, int] | None, list[LiveStep], LiveStep]]:
    """Yield the blocks of a function, inner ones first: the enclosing region, the ops, and the terminator."""
    blocks: dict[tuple[LiveStep, int] | None, list[LiveStep]] = {}
    for step in liveness.steps:
        if step is not None:
            blocks.setdefault(step.home, []).append(step)
    for home in sorted(blocks, key=lambda h: -1 if h is None else h[0].index, reverse=True):
        *steps, end = blocks[home]
        yield home, steps, end


def _reads(step: LiveStep) -> Iterator[Live]:
    """Yield the values that an op and the ops in its regions read."""
    yield from (live for live in step.reads if live is not None)
    yield from step.captured


class _MemoryInUse:
    """The memory in use while an order is followed."""

    def __init__(self, block: ScheduledBlock):
        self.block = block
        self.remaining = {storage: set(readers) for storage, readers in block.readers.items()}
        given = {storage for node in block.nodes for storage in node.gives}
        self.live = sum(block.size[s] for s in self.remaining if s not in given)

    def freed(self, node: ScheduledOp) -> int:
        """Return the bytes that are no longer needed after an op."""
        size, kept = self.block.size, self.block.kept
        read = sum(size[s] for s in node.reads if len(self.remaining[s]) == 1 and s not in kept)
        return read + sum(size[s] for s in node.gives if not self.remaining[s] and s not in kept)

    def change(self, node: ScheduledOp) -> int:
        """Return the change of bytes in use by an op."""
        return node.given - self.freed(node)

    def run(self, node: ScheduledOp) -> int:
        """Advance by one op. Returns the bytes in use during the op."""
        block = self.block
        over = {s for s in node.over if len(self.remaining.get(s, ())) == 1 and s not in block.kept}
        reused = min(node.given, sum(block.size[s] for s in over))
        during = self.live + node.given - reused + node.inside
        self.live += self.change(node)
        for storage in node.reads:
            self.remaining[storage].discard(node.index)
        return max(during, self.live)


class _ScheduleTrial:
    """A look-ahead of some ops, without changing the state."""

    def __init__(self, state: _MemoryInUse):
        self.state = state
        self.read: dict[Storage, int] = {}

    def change(self, node: ScheduledOp) -> int:
        """Return the change of bytes in use by an op."""
        block, state = self.state.block, self.state
        left = {s: len(state.remaining[s]) - self.read.get(s, 0) for s in node.reads}
        freed = sum(block.size[s] for s, count in left.items() if count == 1 and s not in block.kept)
        unread = sum(block.size[s] for s in node.gives if not state.remaining[s] and s not in block.kept)
        return node.given - freed - unread

    def run(self, node: ScheduledOp) -> int:
        """Return the change, and count the op as done."""
        change = self.change(node)
        for storage in node.reads:
            self.read[storage] = self.read.get(storage, 0) + 1
        return change
