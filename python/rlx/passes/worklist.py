"""The ops that a driver still has to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from rlx import mlir


class Worklist:
    """Ops to look at, each once, in an order. One without results is never in.

    An op is known by its first result: the hash that MLIR gives an op depends on its operands. It is taken out before it is
    erased, because its object may not be asked anything then, and another op may get its address.
    """

    def __init__(self, ops: Iterable[mlir.Operation]):
        self._entries: dict[Any, list[Any]] = {}
        self._order: deque[list[Any]] = deque()
        for op in ops:
            if len(results := op.results):
                key = results[0]
                entry = self._entries[key] = [op, key]
                self._order.append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def pop(self) -> Any:
        """The first op, None when there is none left."""
        while self._order:
            entry = self._order.popleft()
            if entry:
                op, key = entry
                del self._entries[key]
                return op
        return None

    def add(self, op: mlir.Operation, *, first: bool = False) -> None:
        """Put an op that is not in at the end, or at the front."""
        results = op.results
        if len(results) and (key := results[0]) not in self._entries:
            entry = self._entries[key] = [op, key]
            (self._order.appendleft if first else self._order.append)(entry)

    def discard(self, op: mlir.Operation) -> None:
        """Take an op out, where it is in."""
        results = op.results
        entry = self._entries.pop(results[0], None) if len(results) else None
        if entry is not None:
            entry.clear()
