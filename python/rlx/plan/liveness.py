"""Live ranges of the values of a function, and views that share the bytes of other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import symbols
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview, registry
from rlx.ir.op.dataflow import RegionFlow
from rlx.ir.shape import Shape, shape_of
from rlx.support.errors import ShapeError

REGISTERS = "registers"


@dataclass(eq=False, slots=True)
class Storage:
    """Memory of a value and of its views, and of values that are written over it.

    Attributes:
        size: Bytes.
        start: The first step at which it holds a value.
        end: The last step at which the value is read.
        kind: `"value"`, or the kind of a value from outside: `"input"`, `"param"`, `"state"`, `"constant"`; `"weight"`
            for values that depend only on parameters and constants, if these are outside the arena; `REGISTERS` for
            values that the kernel which reads them computes, and does not store.
        members: The values in it. The first one determines the size.
    """

    size: int
    start: int
    end: int
    kind: str
    members: list[Live]


@dataclass(eq=False, slots=True)
class Live:
    """A value.

    Attributes:
        value: The MLIR value.
        name: The name of an argument; for a result `%3`.
        step: The step of its op, or of the op whose region takes it; None for an argument of the function.
        is_argument: Whether it is an argument of the function or of a region.
        home: The step of the op in whose region it is defined, and the index of the region; None outside regions.
        shape: Its shape, static.
        size: Bytes.
        start: The step at which it is computed.
        end: The last step at which it or a view of it is read.
        storage: The storage of its bytes.
        offset: Its first byte in the storage.
        base: The value that it is a view of, is written over, or is computed within.
        relation: `"own"`, `"view"`, `"row"`, `"in place"` or `"within"`: see `PlannedValue`.
        outputs: Names of the function's results that are this value.
    """

    value: Any
    name: str
    step: LiveStep | None
    is_argument: bool
    home: tuple[LiveStep, int] | None
    shape: Shape
    size: int
    start: int
    end: int
    storage: Storage = field(init=False)
    offset: int = 0
    base: Live | None = None
    relation: str = "own"
    outputs: list[str] = field(default_factory=list[str])


@dataclass(eq=False, slots=True)
class LiveStep:
    """An op, or the terminator of a block.

    Attributes:
        index: Its number.
        op: The op.
        home: The step of the op in whose region it is, and the index of the region; None outside regions.
        end: The step of the last op inside it; its own index if it has no regions.
        reads: Its operands; None for values without memory, such as the index of a loop.
        results: Its results, as `reads`.
        arguments: The arguments of each of its regions, as `reads`.
        yields: The terminator of each of its regions.
        captured: The values from outside that the ops in its regions read.
        flows: The flow of values into and out of its regions; None for a region that does not run, and for ops of other
            dialects.
        in_order: Whether the op is computed in the order of its traits: an elementwise op one element at a time. A
            kernel that computes it together with other ops may read elements later.
        inside: The ops in the region of an op that is one loop (`Card.one_loop`). They are not steps, and their values are in
            registers.
    """

    index: int
    op: Any
    home: tuple[LiveStep, int] | None
    end: int
    reads: list[Live | None] = field(default_factory=list["Live | None"])
    results: list[Live | None] = field(default_factory=list["Live | None"])
    arguments: list[list[Live | None]] = field(default_factory=list["list[Live | None]"])
    yields: list[LiveStep | None] = field(default_factory=list["LiveStep | None"])
    captured: list[Live] = field(default_factory=list["Live"])
    flows: Sequence[RegionFlow | None] = ()
    in_order: bool = True
    inside: tuple[Any, ...] = ()

    def repeats(self, region: int) -> bool:
        """Whether a region may run more than once."""
        flow = self.flows[region] if region < len(self.flows) else None
        return flow is None or flow.repeats

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of the result is computed from the elements of the operands at its index."""
        return all(opview.has_trait(op, "elementwise") for op in self.inside or (self.op,))

    def has_trait(self, name: Any) -> bool:
        """Whether the op has a trait."""
        return opview.has_trait(self.op, name)


class Liveness:
    """The values of a graph's function in program order.

    Step 0 is before the first op, op `i` is step `i + 1` (ops inside regions are counted as well), and the last step is
    the return. Intervals include both ends: at its own step, an op reads its operands and writes its results. A value
    from outside that is read in a region which may run again is live to the end of the region's op.

    Attributes:
        sizes: Sizes of symbols.
        steps: The ops; `steps[0]` is None.
        last: The number of the return.
        values: The values.
        states: For each result of the function that updates a state, by index, the state.

    Args:
        graph: A graph at any stage.
        sizes: Sizes of symbols.
        f32_uniform: Every element takes at least four bytes.

    Raises:
        ShapeError: A symbol has no size.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int], *, f32_uniform: bool = False):
        self.sizes = dict(sizes)
        self.f32_uniform = f32_uniform
        self.steps: list[LiveStep | None] = [None]
        self.values: dict[Any, Live] = {}
        self._numbers = count()  # numbered as in listings of graphs
        self._shapes: dict[Any, tuple[Shape, int]] = {}
        self._captured: dict[
            LiveStep, list[Live]
        ] = {}  # values from outside that a loop reads, stored until the end of the loop is known
        entry = graph.function.entry_block
        kinds: dict[Live, str] = {}
        for argument, value in zip(graph.arguments, entry.arguments, strict=True):
            live = self._define(value, argument.name, None, 0)
            if live is not None:
                live.is_argument = True
                kinds[live] = argument.kind
        end = self._block(entry, None)
        self.last = end.index
        by_name = {live.name: live for live in kinds}
        self.states: dict[int, Live] = {}
        for i, (output, live) in enumerate(zip(graph.results, end.reads, strict=True)):
            assert live is not None
            live.outputs.append(output.name)
            live.end = self.last
            if output.updates is not None:
                self.states[i] = by_name[output.updates]
        self._settle(kinds)

    @property
    def ops(self) -> list[Any]:
        """The ops, in order of their steps."""
        return [step.op for step in self.steps if step is not None]

    def item_size(self, shape: Shape) -> int:
        """Return the bytes from one element to the next."""
        return max(4, shape.dtype.itemsize) if self.f32_uniform else shape.dtype.itemsize

    # --- building ---------------------------------------------------------------------------------

    def _block(self, block: Any, home: tuple[LiveStep, int] | None) -> LiveStep:
        """Number the ops of a block. Returns the step of the last one."""
        step: LiveStep | None = None
        for view in block.operations:
            op = view.operation
            step = LiveStep(len(self.steps), op, home, len(self.steps))
            self.steps.append(step)
            for value in op.operands:
                live = self.values.get(value)
                step.reads.append(live)
                if live is not None:
                    self._read(live, step)
            step.results = [self._define(r, f"%{next(self._numbers)}", step, step.index) for r in op.results]
            if registry.is_ours(op) and opview.card_of(op).one_loop:
                self._one_loop(step)
            elif len(op.regions):
                self._regions(step)
            else:
                self._alias(step)
        assert step is not None
        return step

    def _define(self, value: Any, name: str, step: LiveStep | None, start: int) -> Live | None:
        if not isinstance(value.type, mlir.ir.RankedTensorType):
            return None  # the index of a loop, which takes no memory
        known = self._shapes.get(value.type)
        if known is None:
            shape = shape_of(value).bind(self.sizes)
            if not shape.is_static:
                missing = ", ".join(sorted({s for d in shape.dims for s in symbols(d)}))
                raise ShapeError(
                    f"{name} is {shape}: a plan needs a size for {missing}", hint="give sizes={'batch': 8, …}"
                )
            size = self.item_size(shape)
            for d in shape.static:
                size *= d
            known = self._shapes[value.type] = (shape, size)
        home = step.home if step is not None else None
        live = Live(value, name, step, False, home, *known, start, start)
        self.values[value] = live
        return live

    def _read(self, live: Live, step: LiveStep) -> None:
        """Record a read. A value read in a region that may run again, but defined outside, is live to the region's end."""
        outermost, inner = None, step.home
        while inner is not None and inner != live.home:
            around, region = inner
            around.captured.append(live)
            if around.repeats(region):
                outermost = around
            inner = around.home
        if outermost is None:
            live.end = max(live.end, step.index)
        else:
            self._captured.setdefault(outermost, []).append(live)

    def _one_loop(self, step: LiveStep) -> None:
        """Record the ops in the region of an op that is one loop. The numbers of their values are those of listings."""
        (block,) = (block for region in step.op.regions for block in region.blocks)
        ops = [view.operation for view in block.operations]
        for _ in (*block.arguments, *(result for op in ops for result in op.results)):
            next(self._numbers)
        step.inside = tuple(op for op in ops if op.name not in (*opview.TERMINATORS, "rlx.constant"))

    def _regions(self, step: LiveStep) -> None:
        op = step.op
        if registry.is_ours(op):
            card, values = opview.card_of(op), opview.attributes_of(op, self.sizes)
            step.flows = card.flows(len(step.reads), len(step.results), values)
        for number, region in enumerate(op.regions):
            block = opview.block_of(region)
            home = (step, number)
            arguments: list[Live | None] = []
            for argument in block.arguments if block is not None else ():
                live = self._define(argument, f"%arg{next(self._numbers)}", step, step.index)
                if live is not None:
                    live.is_argument, live.home = True, home
                arguments.append(live)
            step.arguments.append(arguments)
            self._enter(step, number)
            step.yields.append(self._block(block, home) if block is not None else None)
        step.end = len(self.steps) - 1
        for live in self._captured.pop(step, ()):
            live.end = max(live.end, step.end)
        self._leave(step)

    def _enter(self, step: LiveStep, region: int) -> None:
        """Set the sources of the region arguments that are views."""
        flow = step.flows[region] if region < len(step.flows) else None
        for argument, source in zip(step.arguments[region], flow.arguments if flow is not None else (), strict=False):
            base = (step.results if source.kind == "carry" else step.reads)[source.index]
            if argument is not None and base is not None:
                argument.base, argument.relation = base, "row" if source.kind == "row" else "view"

    def _leave(self, step: LiveStep) -> None:
        """Extend the live ranges of results of an op with regions to their first write: for carries and stacks, the start."""
        first_yield = {
            flow.index: min(y.index for y in step.yields if y is not None)
            for region in step.flows
            if region is not None
            for flow in region.yields
            if flow is not None and flow.kind == "whole"
        }
        for i, live in enumerate(step.results):
            if live is not None:
                live.start = first_yield.get(i, step.index)
                live.end = max(live.end, step.end)
        for number, arguments in enumerate(step.arguments):
            flow = step.flows[number] if number < len(step.flows) else None
            for i, argument in enumerate(arguments):
                is_carry = flow is not None and flow.arguments[i].kind == "carry"
                if argument is not None and not is_carry and step.repeats(number):
                    argument.end = step.end  # the next step of the loop reads another part of the value

    def _alias(self, step: LiveStep) -> None:
        """Find results that are views of operands."""
        op = step.op
        if not registry.is_ours(op) or op.name in opview.TERMINATORS:
            return
        card = opview.card_of(op)
        if not card.has("aliases") and card.spec.trait("view") is None:
            return
        reads, results = [r for r in step.reads if r is not None], [r for r in step.results if r is not None]
        values = opview.attributes_of(op, self.sizes)
        aliases = card.aliases([r.shape for r in reads], [r.shape for r in results], values)
        for result, alias in zip(results, aliases, strict=True):
            if alias is None:
                continue
            base = reads[alias[0]]
            if self.item_size(base.shape) == self.item_size(result.shape):
                result.base, result.relation = base, "view"
                result.offset = alias[1] * self.item_size(base.shape)  # relative to its base, until `_settle`

    def _settle(self, kinds: Mapping[Live, str]) -> None:
        """Propagate reads of views to their bases, then assign storages."""
        for live in reversed(self.values.values()):
            base, step = live.base, live.step
            is_carry = live.is_argument and step is not None and base in step.results
            if base is not None and not is_carry:
                base.end = max(base.end, live.end)
        for live in self.values.values():
            if live.base is not None:
                live.storage = live.base.storage
                live.storage.members.append(live)
                live.offset += live.base.offset
                continue
            is_constant = not live.is_argument and live.step is not None and live.step.op.name == "rlx.constant"
            kind = kinds.get(live, "constant" if is_constant else "value")
            live.storage = Storage(live.size, live.start, live.end, kind, [live])
