"""Human-readable listings of graphs: arguments, outputs, ops and their costs. They are not MLIR text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, Output
from rlx.ir.location import describe, scope_of
from rlx.ir.op import opview, registry
from rlx.ir.op.card import Cost
from rlx.ir.shape import Shape, shape_of
from rlx.support.cached_property import cached_property
from rlx.support.guards import is_array, is_tuple
from rlx.support.printable import printable
from rlx.support.short import report_repr

_COMMENT_COLUMN = 64


@dataclass(frozen=True)
class OpReport:
    """One op in a listing.

    Attributes:
        name: The name of the op without the prefix of the dialect.
        label: The name for readers: `add` for a `binary` whose kind is `add`.
        operands: Names of its operands: argument names, else numbers such as `%3`.
        results: Names of its results.
        shapes: Shapes of its results.
        attributes: The attributes that differ from their defaults.
        cost: Its work; None for an op without a cost, such as a terminator.
        location: The user's `file:line`, if known.
        scope: Its scope, outermost first, joined by `/`: scopes of the builder, then the ops that passes decomposed to
            create it.
        depth: The number of enclosing regions.
    """

    name: str
    label: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    shapes: tuple[Shape, ...]
    attributes: dict[str, Any]
    cost: Cost | None
    location: str | None
    scope: str
    depth: int

    def _call(self, operands: Sequence[str]) -> str:
        attributes = {k: v for k, v in self.attributes.items() if k != "kind"}
        options = ", ".join(f"{name}={_shown(value)}" for name, value in attributes.items())
        separator = "; " if operands and options else ""
        text = f"{self.label}({', '.join(operands)}{separator}{options})"
        return text + f" : {', '.join(map(str, self.shapes))}" if self.shapes else text

    @property
    def body(self) -> str:
        """The op without the names of values."""
        return self._call(())

    @cached_property
    def content_hash(self) -> str:
        """A hash of the values of attributes that are arrays, which the text of the op does not show; else empty.

        It covers names, dtypes and shapes as well.
        """
        digest = hashlib.blake2b(digest_size=8)
        hidden = {name: v for name, v in self.attributes.items() if is_array(v) and v.size != 1}
        for name, array in hidden.items():
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            # Axes along which one value is repeated in memory count once: a splat may be larger than memory.
            stored = array[tuple(slice(0, 1 if stride == 0 else None) for stride in array.strides)]
            digest.update(np.ascontiguousarray(stored).view(np.uint8).data)
        return digest.hexdigest() if hidden else ""

    def __str__(self) -> str:
        text = self._call(self.operands)
        if self.results:
            text = f"{', '.join(self.results)} = {text}"
        notes = [f"{_count(self.cost.flops)} flops"] if self.cost is not None else []
        notes += [note for note in (self.location, self.scope and f"in {self.scope}") if note]
        notes = [printable(note, keep="") for note in notes]
        indented = "  " * (self.depth + 1) + printable(text, keep="")
        return f"{indented:{_COMMENT_COLUMN}} // {', '.join(notes)}" if notes else indented


@dataclass(frozen=True)
class GraphReport:
    """The listing of a graph.

    Attributes:
        name: The name of its function.
        stage: `"hir"`, `"mir"` or `"lir"`.
        arguments: Inputs, parameters and states, in order.
        outputs: The outputs, in order.
        returned: The name of the value of each output.
        updates: The name of the next value of each state, by the name of the state.
        ops: All ops; nested ops follow the op that holds them.
    """

    name: str
    stage: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Output, ...]
    returned: tuple[str, ...]
    updates: dict[str, str]
    ops: tuple[OpReport, ...]

    @property
    def histogram(self) -> Counter[str]:
        """The number of occurrences of each op."""
        return Counter(op.label for op in self.ops)

    @property
    def cost(self) -> Cost:
        """Work of one run: the sum over the ops of the function. The cost of an op includes that of its regions."""
        costs = [op.cost for op in self.ops if op.cost is not None and op.depth == 0]
        zero: Dim = 0
        return Cost(sum((c.flops for c in costs), zero), sum((c.bytes for c in costs), zero))

    @property
    def fixed(self) -> frozenset[str]:
        """The values that depend only on parameters; empty if the graph has no inputs and states."""
        if all(a.kind == "param" for a in self.arguments):
            return frozenset()
        fixed = {a.name for a in self.arguments if a.kind == "param"}
        for i, op in enumerate(self.ops):
            has_regions = i + 1 < len(self.ops) and self.ops[i + 1].depth > op.depth
            if not op.depth and not has_regions and fixed.issuperset(op.operands):
                fixed.update(op.results)
        return frozenset(fixed)

    def stats(self) -> str:
        """One line: name, stage, number of ops, histogram."""
        counts = ", ".join(f"{count} {name}" for name, count in self.histogram.most_common())
        return f"@{self.name} [{self.stage}]: {len(self.ops)} ops: {counts or 'none'}"

    def __repr__(self) -> str:
        return report_repr(self, self.stats())

    def __str__(self) -> str:
        signature = (printable(line, keep="") for line in self._signature())
        return "\n".join([printable(self.stats(), keep=""), *signature, *map(str, self.ops)])

    def _signature(self) -> Iterator[str]:
        for kind in ("input", "state", "param"):
            arguments = [a for a in self.arguments if a.kind == kind]
            size = sum((a.shape.size_bytes for a in arguments), 0)
            if kind == "param" and arguments:
                yield f"  {len(arguments)} params, {_count(size)} bytes"
            for a in arguments:
                yield f"    {kind} {a.name}: {a.shape}{', donated' if a.donate else ''}"
        for output, value in zip(self.outputs, self.returned, strict=True):
            yield f"    output {output.name}: {output.shape} = {value}"
        yield from (f"    update {state} = {value}" for state, value in self.updates.items())
        cost = self.cost
        yield f"  {_count(cost.flops)} flops, {_count(cost.bytes)} bytes read and written by the ops"


@with_call_errors
def inspect_graph(graph: Graph) -> GraphReport:
    """Return the listing of a graph. The graph is not changed."""
    function = graph.function
    names: dict[mlir.Value, str] = dict(
        zip(function.entry_block.arguments, (a.name for a in graph.arguments), strict=True)
    )
    *body, end = _walk(function.entry_block, 0)
    numbers = count()
    ops = tuple(_report(op, depth, names, numbers) for op, depth in body)
    results = list(zip(graph.results, (names[value] for value in end[0].operands), strict=True))
    returned = tuple(value for result, value in results if result.updates is None)
    updates = {result.updates: value for result, value in results if result.updates is not None}
    return GraphReport(graph.name, graph.stage, graph.arguments, graph.outputs, returned, updates, ops)


def _walk(block: mlir.Block, depth: int) -> Iterator[tuple[mlir.Operation, int]]:
    for op in block.operations:
        operation = op.operation
        yield operation, depth
        for region in operation.regions:
            for inner in region.blocks:
                yield from _walk(inner, depth + 1)


def _report(op: mlir.Operation, depth: int, names: dict[mlir.Value, str], numbers: Iterator[int]) -> OpReport:
    """The listing of one op; adds names for its results and for the arguments of its regions to `names`."""
    for result in op.results:
        names[result] = f"%{next(numbers)}"
    for region in op.regions:
        for block in region.blocks:
            names.update({a: f"%arg{next(numbers)}" for a in block.arguments})
    operands = tuple(names[value] for value in op.operands)
    results = tuple(names[result] for result in op.results)
    location, scope = describe(op.location), scope_of(op.location)
    if not registry.is_ours(op) or opview.name_of(op) not in registry.load():
        return OpReport(op.name, op.name, operands, results, (), {}, None, location, scope, depth)
    card = opview.card_of(op)
    values = opview.attributes_of(op)
    shapes = tuple(shape_of(r) for r in op.results)
    defaults = {a.name: a.default for a in card.spec.attributes}
    changed = {k: v for k, v in values.items() if is_array(v) or v != defaults[k]}
    cost = None if card.spec.terminator else opview.cost_of(op)
    return OpReport(card.name, card.label(values), operands, results, shapes, changed, cost, location, scope, depth)


def _shown(value: object) -> str:
    if is_array(value):
        return str(value.reshape(-1)[0]) if value.size == 1 else f"{value.dtype}{list(value.shape)}"
    if is_tuple(value):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _count(value: Dim) -> str:
    return f"{value:,}" if type(value) is int else str(value)
