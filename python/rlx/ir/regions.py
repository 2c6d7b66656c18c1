"""Regions: traced from functions of tensors into blocks that no op has yet, and copied into other blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.errors import ShapeError
from rlx.ir.guards import is_sequence
from rlx.ir.location import describe
from rlx.ir.op_methods import TensorMethods
from rlx.ir.opview import DEEPEST, RegionShapes, home_of, operations
from rlx.ir.shape import Shape

if TYPE_CHECKING:
    from rlx.ir.builder import Tensor

# Of what a user's function of tensors raises: it is theirs to read, as it is.
IN_BODY = "raised by the function that builds a region"


@dataclass
class Region:
    """A region that no op has yet.

    Attributes:
        holder: An op that holds the block until then.
        block: Its block.
        shapes: What it takes and yields.
    """

    holder: mlir.Operation
    block: mlir.Block
    shapes: RegionShapes


def _isolate(holder: mlir.Operation) -> None:
    """Let the ops of a region use nothing from outside of it."""
    ir = mlir.ir
    (block,) = holder.regions[0].blocks
    inner = [block]
    for op in operations(block):
        inner += [b for region in op.regions for b in region.blocks]
    for op in operations(block):
        for i, operand in enumerate(op.operands):
            if home_of(operand) not in inner:
                start = ir.InsertionPoint.at_block_begin(block)
                stand_in = ir.Operation.create("builtin.unrealized_conversion_cast", results=[operand.type], ip=start)
                op.operands[i] = stand_in.result


def use(op: mlir.Operation, values: dict[mlir.Value, mlir.Value]) -> None:
    """Replace operands of an op, and of those in its regions."""
    for i, operand in enumerate(op.operands):
        if operand in values:
            op.operands[i] = values[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                use(inner.operation, values)


class RegionBuilder:
    """What a `Builder` knows of regions."""

    _points: list[mlir.InsertionPoint]

    if TYPE_CHECKING:  # what a `Builder` is besides

        @property
        def location(self) -> mlir.Location: ...
        def at(self, insertion_point: mlir.InsertionPoint) -> contextlib.AbstractContextManager[None]: ...
        def emit(self, name: str, operands: Sequence[Any]) -> Any: ...
        def tensor(self, value: mlir.Value) -> Tensor: ...

    def __init__(self) -> None:
        self._has_regions = False
        self._record: list[Tensor] | None = None
        # Regions that are being built, and those of which nothing became: values in them stay valid with the builder.
        self._pending: list[mlir.Operation] = []
        self._retired: list[mlir.Operation] = []

    def _sees(self, value: mlir.Value) -> bool:
        """Whether a value is defined in the block of the insertion point, or in one around it."""
        home = home_of(value)
        for point in reversed(self._points):  # a region that is being built is in no op yet
            block = point.block
            while block != home:
                parent = block.owner.operation
                if parent.name in ("func.func", "builtin.module"):
                    break
                block = parent.block
            else:
                return True
        return False

    def region(self, function: Callable[..., Any], shapes: Sequence[Shape]) -> Region:
        """A region for an op that is about to be emitted: what a function of tensors emits, and yields.

        Args:
            function: Called with one tensor for each of `shapes`; gives a tensor, or a list or tuple of them. It may use
                tensors from outside.
            shapes: What the region takes.

        Raises:
            ShapeError: The function gives something else than tensors, or regions are nested too deep.
        """
        if len(self._points) > DEEPEST:
            raise ShapeError(f"at most {DEEPEST} regions may be inside each other", location=describe(self.location))
        holder, block = self.open_region(shapes)
        with self.at(mlir.ir.InsertionPoint(block)):
            try:
                returned = function(*(self.tensor(a) for a in block.arguments))
            except Exception as problem:
                problem.add_note(IN_BODY)
                raise
            results = list(returned) if is_sequence(returned) else [returned]
            for result in results:
                if not isinstance(result, TensorMethods):
                    raise ShapeError(
                        f"the function of a region must return tensors, got {type(result).__name__}",
                        location=describe(self.location),
                    )
            self.emit("yield", (results,))
        return Region(holder, block, RegionShapes(tuple(shapes), tuple(r.shape for r in results)))

    def first_region(self, functions: Sequence[Callable[..., Any]], shapes: Sequence[Shape]) -> Region:
        """The region of the first function that makes one; where none does, the error is that of the first."""
        problem: Exception | None = None
        for function in functions:
            mark = len(self._pending)
            try:
                return self.region(function, shapes)
            except Exception as other:
                self._retire(mark)
                problem = problem or other
        assert problem is not None
        raise problem

    def open_region(self, shapes: Sequence[Shape]) -> tuple[mlir.Operation, mlir.Block]:
        """An empty block for a region, and the op that holds it until it belongs to another."""
        ir, location = mlir.ir, self.location
        self._has_regions = True
        with mlir.entered():
            holder = ir.Operation.create("builtin.module", regions=1, loc=location)
            block = ir.Block.create_at_start(
                holder.regions[0], [s.type for s in shapes], arg_locs=[location] * len(shapes)
            )
        self._pending.append(holder)
        return holder, block

    def record(self, made: list[Any]) -> None:
        """Add all tensors that ops give from now on to a list."""
        self._record = made

    @contextlib.contextmanager
    def recorded(self) -> Generator[list[Tensor]]:
        """A list of all tensors that ops give inside."""
        made: list[Tensor] = []
        before = self._record
        self._record = made
        try:
            yield made
        finally:
            self._record = before
            if before is not None:
                before += made

    def scratch(self, function: Callable[..., Any], shapes: Sequence[Shape]) -> mlir.Block:
        """The block of what a function of tensors emits, to be read and not to become part of the graph.

        It may be used until the end of the `scratchpad` around it.
        """
        return self.region(function, shapes).block

    @contextlib.contextmanager
    def scratchpad(self) -> Generator[None]:
        """Where `scratch` may be used."""
        mark = len(self._pending)
        try:
            yield
        finally:
            self._retire(mark)

    def _retire(self, mark: int) -> None:
        """Keep the regions of which nothing became, cut off from the graph: MLIR forbids to free what is in use."""
        with mlir.entered():
            for holder in reversed(self._pending[mark:]):
                _isolate(holder)
                self._retired.append(holder)
        del self._pending[mark:]

    def inline(self, block: mlir.Block, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Emit copies of the ops of a region's block here, and give what it yields.

        Args:
            block: The block; it stays as it is.
            arguments: What stands for its arguments.
        """
        values: dict[mlir.Value, mlir.Value] = dict(zip(block.arguments, (t.value for t in arguments), strict=True))
        *body, end = block.operations
        for view in body:
            old = view.operation
            new = old.clone(self._points[-1])
            use(new, values)
            values.update(zip(old.results, new.results, strict=True))
        return [self.tensor(values.get(v, v)) for v in end.operation.operands]
