"""`rlx-checkpoint`: recomputation in the backward pass, to trade time for memory."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import estimate
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.ops.control.checkpoint import recomputed
from rlx.passes.base import option
from rlx.support.errors import PassError
from rlx.transforms.base import DerivedGraph, Transform
from rlx.transforms.scope import captures, copy, ops_of


@dataclass(frozen=True)
class CheckpointTransform(Transform, name="rlx-checkpoint", exact=True):
    """Recompute values in the backward pass instead of storing them.

    Without a limit, only the arguments are stored. With `memory-limit`, the function is divided into as few segments as
    possible: the values between segments are stored, and the values inside a segment only while its gradient is
    computed. If all values fit, nothing is recomputed.
    """

    preserves_results = True

    memory_limit: int | None = option(
        None, "bytes that the values of the forward pass may take; without a limit none are stored", least=0
    )

    def apply(self, graph: Graph) -> Graph:
        limit = self.memory_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise PassError(f"{self.name}: memory-limit must be a number of bytes, got {limit!r}")
        derived = DerivedGraph.of(graph)
        scope = derived.scope()
        ops = list(ops_of(derived.block))
        returned = opview.yielded(derived.block)
        for segment, is_recomputed in self._segments(ops):
            if not is_recomputed:
                for op in segment:
                    scope.bind(op.results, copy(derived.graph, op, [scope[v] for v in op.operands], scope))
                continue
            read = _used_outside(segment, returned)
            read.sort(key=lambda v: str(v.type))  # a group may only have a limited number of runs of equal types

            def emit_segment(
                segment: Sequence[mlir.Operation] = segment, read: Sequence[mlir.Value] = read
            ) -> list[Tensor]:
                for op in segment:
                    scope.bind(op.results, copy(derived.graph, op, [scope[v] for v in op.operands], scope))
                return [scope[v] for v in read]

            scope.bind(read, recomputed(derived.graph, emit_segment))
        results = [scope[v] for v in returned]
        named = [(o.name, r) for o, r in zip(graph.results, results, strict=True) if o.updates is None]
        return derived.finish(named, results)

    def _segments(self, ops: list[mlir.Operation]) -> list[tuple[list[mlir.Operation], bool]]:
        """Return the segments of ops, and whether each is recomputed.

        Raises:
            PassError: The limit is exceeded for every number of segments.
        """
        num_constants = next((i for i, op in enumerate(ops) if len(op.operands) or len(op.regions)), len(ops))
        constants, others = ops[:num_constants], ops[num_constants:]
        if self.memory_limit is None:
            return [(constants, False), (others, bool(others))]
        sizes = [sum(_bytes(r) for r in op.results) for op in others]
        if sum(sizes) <= self.memory_limit:
            return [(ops, False)]
        least, cuts = None, [0, len(others)]
        for count in range(2, len(others) + 1):
            cuts = _cuts(sizes, count)
            needed = _needed(others, sizes, cuts)
            least = needed if least is None else min(least, needed)
            if needed <= self.memory_limit:
                break
        else:
            raise PassError(
                f"{self.name}: the forward pass needs {least or sum(sizes)} bytes at least, however it is cut; "
                f"the limit is {self.memory_limit}",
                hint="raise memory-limit, or make the batch smaller",
            )
        parts = [others[a:b] for a, b in itertools.pairwise(cuts)]
        # The backward pass begins with the last segment, so its values are still in memory.
        return [(constants, False), *((part, i < len(parts) - 1) for i, part in enumerate(parts))]


def _bytes(value: mlir.Value) -> int:
    """Return the bytes of a value, with a typical size for each symbol."""
    return estimate(shape_of(value).size_bytes)


def _cuts(sizes: list[int], count: int) -> list[int]:
    """Return the positions that divide ops into `count` segments of similar size in bytes."""
    total, cuts, so_far = sum(sizes), [0], 0
    for i, size in enumerate(sizes):
        so_far += size
        if so_far * count >= total * len(cuts) and len(cuts) < count:
            cuts.append(i + 1)
    return [*dict.fromkeys([*cuts, len(sizes)])]


def _needed(ops: list[mlir.Operation], sizes: list[int], cuts: list[int]) -> int:
    """Return the bytes of values that are used across segments, plus the bytes of the largest segment."""
    position = {r: i for i, op in enumerate(ops) for r in op.results}
    segment_of = [sum(i >= c for c in cuts[1:]) for i in range(len(ops))]
    crossing: set[mlir.Value] = set()
    for i, op in enumerate(ops):
        for value in _operands(op):
            if value in position and segment_of[position[value]] != segment_of[i]:
                crossing.add(value)
    largest = max(sum(sizes[a:b]) for a, b in itertools.pairwise(cuts))
    return sum(map(_bytes, crossing)) + largest


def _operands(op: mlir.Operation) -> list[mlir.Value]:
    return [*op.operands, *(captures(op) if len(op.regions) else ())]


def _used_outside(segment: list[mlir.Operation], returned: list[mlir.Value]) -> list[mlir.Value]:
    """Return the results of a segment that are used by other ops, or returned by the function."""
    results = {r for op in segment for r in op.results}
    first_results = {op.results[0] for op in segment if len(op.results)}
    used = dict.fromkeys(v for v in returned if v in results)
    for op in ops_of(segment[-1].block):
        if not len(op.results) or op.results[0] not in first_results:
            used.update(dict.fromkeys(v for v in _operands(op) if v in results))
    return list(used)


@with_call_errors
def checkpoint(graph: Any, *, memory_limit: int | None = None) -> Any:
    """Return a graph with the same results, whose backward pass recomputes values instead of storing them.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        memory_limit: Bytes that the values of the forward pass may take while the gradient is computed (parameters and
            inputs do not count; a symbol counts as 64). With None, only the arguments are stored.

    Raises:
        PassError: The limit is exceeded for any division into segments.
    """
    return CheckpointTransform(memory_limit=memory_limit)(graph)
