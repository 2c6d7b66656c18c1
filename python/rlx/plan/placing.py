"""Placement of storages in the arena: best and first fit in several orders, then a local search.

Placing storages with fixed lifetimes in the smallest arena is NP-complete (Garey and Johnson, SR2, "dynamic storage
allocation"), and the peak of live bytes is a lower bound. Therefore orders are tried until one reaches the bound. If
none does, the storages at the top of the arena are placed earlier, a fixed number of times, so a plan depends only on
the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.plan.liveness import Storage
from rlx.plan.sharing import align_up, used_bytes

# Maximum number of storages placed by the search for a graph, and the number of tries without gain after which the
# search ends.
_PLACED_IN_SEARCH = 30_000
_MOST_FAILURES = 60
# From this number of storages on, only the first orders are tried, because one order takes 2 seconds.
_MANY = 8_000


# Chooses one of the gaps that are large enough, by their sizes.
Fit = Callable[[np.ndarray], int]


@dataclass(frozen=True)
class Placement:
    """An offset for each storage, and the size of the arena."""

    offsets: np.ndarray
    size: int


def place(storages: Sequence[Storage], last: int, alignment: int) -> dict[Storage, int]:
    """Return an offset for each storage, such that storages that are live together do not overlap.

    Args:
        storages: Storages with their live ranges.
        last: The last step.
        alignment: The alignment of each offset.
    """
    placed = [s for s in storages if s.size]
    offsets = dict.fromkeys(storages, 0)
    if not placed:
        return offsets
    problem = _PlacingProblem(placed, alignment)
    bound = int(used_bytes(placed, last, alignment).max())
    best = problem.solve(bound, used_bytes(placed, last, alignment))
    offsets.update(zip(placed, map(int, best.offsets), strict=True))
    return offsets


class _PlacingProblem:
    """Storages as arrays, and the orders in which to place them."""

    def __init__(self, storages: Sequence[Storage], alignment: int):
        self.count = len(storages)
        self.size = np.array([align_up(s.size, alignment) for s in storages], np.int64)
        self.start = np.array([s.start for s in storages], np.int64)
        self.end = np.array([s.end for s in storages], np.int64)

    def solve(self, bound: int, used: np.ndarray) -> Placement:
        """Return the best placement found by the orders and the search."""
        best, order = self._best_of_orders(bound, used, _smallest_gap)
        best = self._search(best, order, bound, _smallest_gap)
        if best.size > bound and self.count <= _MANY:
            # Some order gives the smallest arena by first fit. This is not guaranteed for best fit.
            first_fit, order = self._best_of_orders(bound, used, _lowest_gap)
            first_fit = self._search(first_fit, order, bound, _lowest_gap)
            best = first_fit if first_fit.size < best.size else best
        return best

    def _best_of_orders(self, bound: int, used: np.ndarray, fit: Fit) -> tuple[Placement, np.ndarray]:
        best: tuple[Placement, np.ndarray] | None = None
        for number, order in enumerate(self._orders(used)):
            if best is not None and self.count > _MANY and number > 2:
                break
            placement = self.place(order, fit)
            if best is None or placement.size < best[0].size:
                best = placement, order
            if placement.size == bound:
                break
        assert best is not None
        return best

    def _orders(self, used: np.ndarray) -> Iterator[np.ndarray]:
        """Yield orders to place storages in, the most promising first."""
        size, start, end = self.size, self.start, self.end
        length = end - start + 1
        yield np.lexsort((start, -size))
        yield np.lexsort((-size, start))
        yield np.lexsort((start, -size * length))
        yield np.lexsort((start, -size, -length))
        # First the storages that are live at the fullest step, then those that are live at the next fullest step.
        rank = np.empty(len(used), np.int64)
        rank[np.argsort(-used, kind="stable")] = np.arange(len(used))
        fullest = np.array([rank[a : b + 1].min() for a, b in zip(start, end, strict=True)])
        yield np.lexsort((start, -size, fullest))
        yield np.lexsort((start, -length, fullest))
        yield np.lexsort((-size, -end))

    def place(self, order: np.ndarray, fit: Fit, above: int | None = None) -> Placement:
        """Place each storage in a gap that fits, else on top.

        Args:
            order: The storages.
            fit: Chooses among the gaps.
            above: Stop as soon as the arena is larger than this. The returned size is then `above + 1`.
        """
        offsets = np.zeros(self.count, np.int64)
        # Placed storages, sorted by offset: start and end in the arena, first and last step.
        low, high, first, last = (np.empty(self.count, np.int64) for _ in range(4))
        top = 0
        for k, i in enumerate(order):
            size, start, end = int(self.size[i]), self.start[i], self.end[i]
            together = np.flatnonzero((first[:k] <= end) & (last[:k] >= start))
            offset = _free(low[together], high[together], size, fit) if len(together) else 0
            offsets[i] = offset
            top = max(top, offset + size)
            if above is not None and top > above:
                return Placement(offsets, above + 1)
            at = int(np.searchsorted(low[:k], offset))
            for array, value in ((low, offset), (high, offset + size), (first, start), (last, end)):
                array[at + 1 : k + 1] = array[at:k]
                array[at] = value
        return Placement(offsets, top)

    def _search(self, best: Placement, order: np.ndarray, bound: int, fit: Fit) -> Placement:
        """Move storages that reach the top to an earlier position in the order, as long as the arena becomes smaller."""
        chance = random.Random(0)
        budget, failures = _PLACED_IN_SEARCH // self.count, 0
        while budget > 0 and failures < _MOST_FAILURES and best.size > bound:
            highest = np.flatnonzero(best.offsets + self.size > max(bound, best.size - int(self.size.min())))
            moved = int(highest[chance.randrange(len(highest))])
            position = int(np.flatnonzero(order == moved)[0])
            target = chance.randrange(position) if position else chance.randrange(self.count)
            changed = np.insert(np.delete(order, position), target, moved)
            placement = self.place(changed, fit, above=best.size)
            budget -= 1
            if placement.size <= best.size:
                failures = 0 if placement.size < best.size else failures + 1
                best, order = placement, changed
            else:
                failures += 1
        return best


def _free(low: np.ndarray, high: np.ndarray, size: int, fit: Fit) -> int:
    """Return the start of a gap between ranges, which are sorted by their start, or the end of all ranges."""
    ends = np.maximum.accumulate(high)
    begins = np.concatenate(([0], ends[:-1]))
    gaps = low - begins
    fitting = np.flatnonzero(gaps >= size)
    return int(begins[fitting[fit(gaps[fitting])]]) if len(fitting) else int(ends[-1])


def _smallest_gap(gaps: np.ndarray) -> int:
    return int(np.argmin(gaps))


def _lowest_gap(gaps: np.ndarray) -> int:
    return 0
