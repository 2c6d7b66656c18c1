"""Detection of repeated layers: consecutive segments of ops with the same ops, shapes and connections."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 3  # repeats that are worth a box of their own
_SHORTEST = 2  # ops in a segment
# Comparisons of units in a search. Repeats that are not found with this number are not folded.
_MOST_COMPARISONS = 1_000_000


@dataclass(frozen=True)
class RepeatedUnit:
    """An op, or several ops that are one box, as the search sees it.

    Attributes:
        kind: The ops, shapes and attributes. Repeated segments have the same kinds.
        reads: For each operand the number of the unit that computes it, or a negative number for a value from outside.
    """

    kind: Hashable
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Repeat:
    """Consecutive segments: the first unit, the units in one segment, and the number of segments."""

    start: int
    length: int
    times: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.times


def repeats(units: Sequence[RepeatedUnit]) -> list[Repeat]:
    """Return disjoint repeats of units in program order. The largest one is found first, then those before and after it."""
    search = _RepeatSearch(units)
    found: list[Repeat] = []
    waiting = [(0, len(units))]
    while waiting:
        start, end = waiting.pop()
        best = search.largest(start, end)
        if best is not None:
            found.append(best)
            waiting += [(start, best.start), (best.end, end)]
    return sorted(found, key=lambda repeat: repeat.start)


class _RepeatSearch:
    """A search for repeats in units, with a limit on its work.

    Args:
        units: The units, in program order.
    """

    def __init__(self, units: Sequence[RepeatedUnit]):
        numbers: dict[Hashable, int] = {}
        self._units = units
        self._kinds = np.array([numbers.setdefault(unit.kind, len(numbers)) for unit in units], np.int64)
        self.comparisons = 0

    def largest(self, start: int, end: int) -> Repeat | None:
        """Return the repeat that covers the most units in a range, of those that the limit allows to find."""
        best, kinds = None, self._kinds
        for length in range(_SHORTEST, (end - start) // FEWEST + 1):
            if best is not None and best.length * best.times > end - start - length:
                break  # longer segments cover hardly more
            if self.comparisons > _MOST_COMPARISONS:
                break
            self.comparisons += (end - start) // 64  # those of an array are cheap
            for first, count in _runs(kinds[start : end - length] == kinds[start + length : end]):
                # A run of equal kinds may begin before the first segment: only some positions have equal connections.
                found = self._connected(start + first, start + first + count + length, length)
                if found is not None and (best is None or found.length * found.times > best.length * best.times):
                    best = found
        return best

    def _connected(self, start: int, end: int, length: int) -> Repeat | None:
        """Return the repeats in a range of equal kinds whose operands are at equal distances, if there are enough."""
        for first in range(start, min(start + length, end - FEWEST * length + 1)):
            times = 1
            while first + (times + 1) * length <= end and self._follows(first, first + times * length, length):
                times += 1
            if times >= FEWEST:
                return Repeat(first, length, times)
            if self.comparisons > _MOST_COMPARISONS:
                return None
        return None

    def _follows(self, first: int, later: int, length: int) -> bool:
        """Return whether the segment at `later` is connected like the segment before it.

        A value from before the first segment, such as the input of the first layer, may take the place of a value of the
        segment before.
        """
        for i in range(length):
            self.comparisons += 1
            before, here = self._units[later - length + i], self._units[later + i]
            if len(before.reads) != len(here.reads):
                return False
            for a, b in zip(before.reads, here.reads, strict=True):
                same_outside = a == b and a < first
                same_distance = a >= first and b - a == length
                first_layer = later - length == first and a < first and later - length <= b < later
                if not (same_outside or same_distance or first_layer):
                    return False
        return True


def _runs(equal: np.ndarray) -> list[tuple[int, int]]:
    """Return start and length of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.astype(np.int8), [0]))))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
