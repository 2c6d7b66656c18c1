"""`rlx-checkpoint`: less memory for the backward pass, for more time."""

# Users hand over what annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.builder import Tensor
from rlx.ir.dim import estimate
from rlx.ir.errors import PassError
from rlx.ir.graph import Graph
from rlx.ir.shape import shape_of
from rlx.passes.base import option
from rlx.transforms.base import Derived, Transform
from rlx.transforms.scope import captures, copy, ops_of


@dataclass(frozen=True)
class Checkpoint(Transform, name="rlx-checkpoint"):
    """Have the backward pass compute values again instead of keeping them.

    Without a limit nothing is kept but the arguments. With `memory-limit` the function is cut into as few segments as
    there have to be: kept are the values between segments, and, while one is gone back over, its own. Nothing is computed
    again where all values fit.
    """

    preserves_results = True

    memory_limit: int | None = option(None, "bytes that the values of the forward pass may take; none keeps nothing")

    def apply(self, graph: Graph) -> Graph:
        limit = self.memory_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise PassError(f"{self.name}: memory-limit must be a number of bytes, got {limit!r}")
        derived = Derived.of(graph)
        scope = derived.scope()
        ops = list(ops_of(derived.block))
        returned = opview.yielded(derived.block)
        for segment, again in self._segments(ops):
            if not again:
                for op in segment:
                    scope.bind(op.results, copy(derived.graph, op, [scope[v] for v in op.operands], scope))
                continue
            read = _read_outside(segment, returned)
            read.sort(key=lambda v: str(v.type))  # a group of values may change its type a few times only

            def inside(segment: Sequence[mlir.Operation] = segment, read: Sequence[mlir.Value] = read) -> list[Tensor]:
                for op in segment:
                    scope.bind(op.results, copy(derived.graph, op, [scope[v] for v in op.operands], scope))
                return [scope[v] for v in read]

            made = derived.graph.emit("checkpoint", (), regions=[derived.graph.region(inside, ())])
            scope.bind(read, made)
        results = [scope[v] for v in returned]
        named = [(o.name, r) for o, r in zip(graph.results, results, strict=True) if o.updates is None]
        return derived.finish(named, results)

    def _segments(self, ops: list[mlir.Operation]) -> list[tuple[list[mlir.Operation], bool]]:
        """Stretches of ops, and whether each is computed again.

        Raises:
            PassError: No number of segments keeps to the limit.
        """
        leading = next((i for i, op in enumerate(ops) if op.name != "rlx.constant"), len(ops))
        first, rest = ops[:leading], ops[leading:]
        if self.memory_limit is None:
            return [(first, False), (rest, bool(rest))]
        sizes = [sum(_bytes(r) for r in op.results) for op in rest]
        if sum(sizes) <= self.memory_limit:
            return [(ops, False)]
        least, cuts = None, [0, len(rest)]
        for count in range(2, len(rest) + 1):
            cuts = _cuts(sizes, count)
            needed = _needed(rest, sizes, cuts)
            least = needed if least is None else min(least, needed)
            if needed <= self.memory_limit:
                break
        else:
            raise PassError(
                f"{self.name}: the forward pass needs {least or sum(sizes)} bytes at least, however it is cut; "
                f"the limit is {self.memory_limit}",
                hint="raise memory-limit, or make the batch smaller",
            )
        parts = [rest[a:b] for a, b in itertools.pairwise(cuts)]
        # The last segment is gone back over at once: its values are there still.
        return [(first, False), *((part, i < len(parts) - 1) for i, part in enumerate(parts))]


def _bytes(value: mlir.Value) -> int:
    """Bytes of a value; symbols count as 64."""
    return estimate(shape_of(value).size_bytes, 64)


def _cuts(sizes: list[int], count: int) -> list[int]:
    """Where to cut for so many segments of about the same number of bytes."""
    total, cuts, so_far = sum(sizes), [0], 0
    for i, size in enumerate(sizes):
        so_far += size
        if so_far * count >= total * len(cuts) and len(cuts) < count:
            cuts.append(i + 1)
    return [*dict.fromkeys([*cuts, len(sizes)])]


def _needed(ops: list[mlir.Operation], sizes: list[int], cuts: list[int]) -> int:
    """Bytes of what crosses a cut, and of the largest segment."""
    home = {r: i for i, op in enumerate(ops) for r in op.results}
    segment = [sum(i >= c for c in cuts[1:]) for i in range(len(ops))]
    crossing: set[mlir.Value] = set()
    for i, op in enumerate(ops):
        for value in _operands(op):
            if value in home and segment[home[value]] != segment[i]:
                crossing.add(value)
    largest = max(sum(sizes[a:b]) for a, b in itertools.pairwise(cuts))
    return sum(map(_bytes, crossing)) + largest


def _operands(op: mlir.Operation) -> list[mlir.Value]:
    return [*op.operands, *(captures(op) if len(op.regions) else ())]


def _read_outside(segment: list[mlir.Operation], returned: list[mlir.Value]) -> list[mlir.Value]:
    """The results of a stretch of ops that others read, or that the function gives."""
    own = {r for op in segment for r in op.results}
    inside = {op.results[0] for op in segment if len(op.results)}
    found = dict.fromkeys(v for v in returned if v in own)
    for op in ops_of(segment[-1].block):
        if not len(op.results) or op.results[0] not in inside:
            found.update(dict.fromkeys(v for v in _operands(op) if v in own))
    return list(found)


def checkpoint(graph: Any, *, memory_limit: int | None = None) -> Any:
    """A graph that means the same, whose backward pass computes values again instead of keeping them.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        memory_limit: Bytes that the values of the forward pass may take while the gradient is computed (parameters and
            inputs do not count; a symbol counts as 64). None keeps nothing but the arguments.

    Raises:
        PassError: The limit cannot be kept to.
    """
    return Checkpoint(memory_limit=memory_limit)(graph)
