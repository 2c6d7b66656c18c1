"""Worklist of ops for the pattern driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from rlx import mlir


class Worklist:
    """A set of ops in a fixed order. Ops without results are never added.

    An op is identified by its first result, because the hash that MLIR gives an op depends on its operands. It must be
    removed before it is erased: the Python object of the op is invalid afterwards, and a new op may get the same
    address.
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
        """Remove and return the first op, or None."""
        while self._order:
            entry = self._order.popleft()
            if entry:
                op, key = entry
                del self._entries[key]
                return op
        return None

    def add(self, op: mlir.Operation, *, first: bool = False) -> None:
        """Add an op at the end, or at the front, unless it is already present."""
        results = op.results
        if len(results) and (key := results[0]) not in self._entries:
            entry = self._entries[key] = [op, key]
            (self._order.appendleft if first else self._order.append)(entry)

    def discard(self, op: mlir.Operation) -> None:
        """Remove an op if it is present."""
        results = op.results
        entry = self._entries.pop(results[0], None) if len(results) else None
        if entry is not None:
            entry.clear()
