"""The values of a function, when each lives, and which are views of others and so share their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.dim import symbols
from rlx.ir.errors import ShapeError
from rlx.ir.graph import Graph
from rlx.ir.shape import Shape, shape_of

# The bits of a bool, stored in a byte, are those of 0 and 1.
_SAME_BITS = frozenset({("bool", "i8"), ("bool", "u8"), ("i8", "u8"), ("u8", "i8"), ("i32", "u32"), ("u32", "i32")})


@dataclass(eq=False)
class Storage:
    """Memory of one value and of those that are views of it, or are written over it.

    Attributes:
        size: Bytes.
        start: The first step at which it holds a value.
        end: The last step at which this is read.
        kind: `"value"`, or the kind of a value from outside: `"input"`, `"param"`, `"state"`, `"constant"`.
    """

    size: int
    start: int
    end: int
    kind: str


@dataclass(eq=False)
class Live:
    """A value.

    Attributes:
        value: The MLIR value.
        name: The name of an argument; for a result `%3`.
        op: The op that computes it; None for an argument.
        shape: Its shape, static.
        start: The step at which it is computed.
        end: The last step at which it or a view of it is read.
        storage: Where its bytes are.
        offset: Its first byte in the storage.
        base: The value that it is a view of, or over which it is written.
        relation: `"own"`, `"view"` or `"in place"`.
        outputs: Names of the function's results that are this value.
    """

    value: Any
    name: str
    op: Any
    shape: Shape
    start: int
    end: int
    storage: Storage
    offset: int = 0
    base: Live | None = None
    relation: str = "own"
    outputs: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes."""
        return bytes_of(self.shape)


def bytes_of(shape: Shape) -> int:
    """Bytes of a static shape."""
    count = shape.dtype.itemsize
    for d in shape.static:
        count *= d
    return count


class Liveness:
    """The values of a graph's function in program order.

    Step 0 is before the first op, op `i` is step `i + 1` (one inside a region counts like any other), and the last step
    is the return. Intervals include both ends: at its own step an op reads its operands and writes its results.

    Args:
        graph: Any stage.
        sizes: Sizes of symbols.

    Raises:
        ShapeError: A symbol has no size.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int]):
        self.sizes = dict(sizes)
        self.ops = list(opview.operations(graph.function.entry_block))
        self.last = len(self.ops)  # the return is one of them
        self.values: dict[Any, Live] = {}
        self._step = {_key(op): i + 1 for i, op in enumerate(self.ops)}
        self._ends: dict[Any, int] = {}
        for argument, value in zip(graph.arguments, graph.function.entry_block.arguments, strict=True):
            self._add(value, argument.name, None, 0, argument.kind)
        results, arguments = count(), count()
        for op in self.ops:
            for region in op.regions:
                for argument in (a for block in region for a in block.arguments):
                    self._add(argument, f"%arg{next(arguments)}", op, self.step(op), "value")
            kind = "constant" if op.name == "rlx.constant" else "value"
            for result in op.results:
                self._add(result, f"%{next(results)}", op, self.step(op), kind)
        for output, value in zip(graph.results, self.ops[-1].operands, strict=True):
            self.values[value].outputs.append(output.name)
        for live in reversed(self.values.values()):  # a view before what it is a view of
            if live.base is not None:
                live.base.end = max(live.base.end, live.end)

    def step(self, op: Any) -> int:
        """The step of an op."""
        return self._step[_key(op)]

    def _add(self, value: Any, name: str, op: Any, start: int, kind: str) -> None:
        if not isinstance(value.type, mlir.ir.RankedTensorType):
            return  # the index of a loop: no memory
        shape = shape_of(value).bind(self.sizes)
        if not shape.is_static:
            missing = ", ".join(sorted({s for d in shape.dims for s in symbols(d)}))
            raise ShapeError(f"{name} is {shape}: a plan needs a size for {missing}", hint="give sizes={'batch': 8, …}")
        end = max([start, *(self._use_step(use.owner.operation, value) for use in value.uses)])
        if op is not None and len(op.regions):
            end = max(end, self._end_of(op))
        live = Live(value, name, op, shape, start, end, Storage(bytes_of(shape), start, end, kind))
        self.values[value] = live
        base = self._base(op, value)
        if base is not None:
            parent, offset = base
            live.base, live.relation, live.offset = parent, "view", parent.offset + offset
            live.storage = parent.storage
            live.storage.end = max(live.storage.end, end)

    def _base(self, op: Any, value: Any) -> tuple[Live, int] | None:
        """The value of which another is a view (the same elements in the same order), and the byte at which this begins."""
        if op is None or not registry.is_ours(op) or len(op.operands) != 1 or len(op.regions):
            return None
        name, parent = op.name[4:], self.values[op.operands[0]]
        source, result = parent.shape, shape_of(value).bind(self.sizes)
        if name == "cast":
            names = (source.dtype.name, result.dtype.name)
            return (parent, 0) if names[0] == names[1] or names in _SAME_BITS else None
        if opview.has_trait(op, "view") or (name == "expand" and bytes_of(source) == bytes_of(result)):
            return parent, 0
        first = _run_of(op, source, self.sizes) if name in ("narrow", "slice") else None
        return None if first is None else (parent, first * source.dtype.itemsize)

    def _use_step(self, op: Any, value: Any) -> int:
        """The last step at which an op reads a value: a region that reads a value from outside may run again."""
        block = value.owner if isinstance(value, mlir.ir.BlockArgument) else value.owner.operation.block
        while op.block != block:
            op = op.parent.operation
        return self._end_of(op)

    def _end_of(self, op: Any) -> int:
        """The step of an op, or of the last op inside it."""
        if not len(op.regions):
            return self.step(op)
        key = _key(op)
        if key not in self._ends:
            last = op
            for region in op.regions:
                for block in region:
                    for inner in opview.operations(block):
                        last = inner
            self._ends[key] = self.step(last)
        return self._ends[key]


def _key(op: Any) -> Any:
    """What stands for an op in a dictionary: its first result. Equal ops have equal hashes, and look-ups would take long."""
    return op.results[0] if len(op.results) else op


def _run_of(op: Any, source: Shape, sizes: Mapping[str, int]) -> int | None:
    """The first element of a narrow or slice whose elements lie side by side in its operand, else None."""
    values = opview.attributes_of(op, sizes)
    starts, limits = [0] * source.rank, list(source.static)
    if op.name == "rlx.narrow":
        axis, first = values["axis"], values["start"][0]
        starts[axis], limits[axis] = first, first + values["length"][0]
    elif all(s == 1 for s in values["strides"]):
        starts, limits = list(values["starts"]), list(values["limits"])
    else:
        return None
    first, stride, is_full = 0, 1, True
    for low, high, size in zip(reversed(starts), reversed(limits), reversed(source.static), strict=True):
        if high - low > 1 and not is_full:
            return None
        is_full = is_full and low == 0 and high == size
        first += low * stride
        stride *= size
    return first
