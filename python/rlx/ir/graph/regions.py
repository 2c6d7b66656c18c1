"""Regions: traced from functions of tensors before their op exists, or copied into other blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op.op_methods import TensorMethods
from rlx.ir.op.opview import DEEPEST, RegionShapes, home_of, operations
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence

if TYPE_CHECKING:
    from rlx.ir.graph.builder import Tensor

# Note on an exception raised by a user's function of tensors. This exception is passed on unchanged.
IN_BODY = "raised by the function that builds a region"


@dataclass
class Region:
    """A region that does not belong to an op yet.

    Attributes:
        holder: A temporary op that holds the block until then.
        block: The block of the region.
        shapes: The shapes that the region takes and yields.
    """

    holder: mlir.Operation
    block: mlir.Block
    shapes: RegionShapes


def _isolate(holder: mlir.Operation) -> None:
    """Replace all outside values that the ops of a region use by values of placeholder ops inside."""
    ir = mlir.ir
    (block,) = holder.regions[0].blocks
    blocks = [block]
    for op in operations(block):
        blocks += [b for region in op.regions for b in region.blocks]
    for op in operations(block):
        for i, operand in enumerate(op.operands):
            if home_of(operand) not in blocks:
                start = ir.InsertionPoint.at_block_begin(block)
                placeholder = ir.Operation.create(
                    "builtin.unrealized_conversion_cast", results=[operand.type], ip=start
                )
                op.operands[i] = placeholder.result


def use(op: mlir.Operation, values: dict[mlir.Value, mlir.Value]) -> None:
    """Replace operands of an op and of the ops in its regions."""
    for i, operand in enumerate(op.operands):
        if operand in values:
            op.operands[i] = values[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                use(inner.operation, values)


class RegionBuilder:
    """The part of `Builder` that creates regions."""

    _points: list[mlir.InsertionPoint]

    if TYPE_CHECKING:  # members that `Builder` defines

        @property
        def location(self) -> mlir.Location: ...
        def at(self, insertion_point: mlir.InsertionPoint) -> contextlib.AbstractContextManager[None]: ...
        def emit(self, name: str, operands: Sequence[Any], /) -> Any: ...
        def tensor(self, value: mlir.Value) -> Tensor: ...

    def __init__(self) -> None:
        self._has_regions = False
        self._record: list[Tensor] | None = None
        # The holders of regions that are being built, and of regions that were never used. Values in them must stay
        # valid as long as the builder exists.
        self._pending: list[mlir.Operation] = []
        self._retired: list[mlir.Operation] = []

    def _sees(self, value: mlir.Value) -> bool:
        """Whether a value is defined in the block of the insertion point, or in one around it."""
        defining_block = home_of(value)
        for point in reversed(self._points):  # a region that is being built does not belong to an op yet
            block = point.block
            while block != defining_block:
                parent = block.owner.operation
                if parent.name in ("func.func", "builtin.module"):
                    break
                block = parent.block
            else:
                return True
        return False

    def region(self, function: Callable[..., Any], shapes: Sequence[Shape]) -> Region:
        """Return a region for an op that will be emitted next. It holds the ops that a function of tensors emits.

        Args:
            function: Called with one tensor for each of `shapes`; returns a tensor, or a list or tuple of tensors,
                which the region yields. It may use tensors from outside.
            shapes: The shapes of the arguments of the region.

        Raises:
            ShapeError: It is not a function, it returns something other than tensors, or regions are nested too deeply.
        """
        if not callable(function):
            raise ShapeError(f"expected a function of tensors, got {type(function).__name__}")
        if len(self._points) > DEEPEST:
            raise ShapeError(f"at most {DEEPEST} regions may be nested", location=describe(self.location))
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
        """Return the region of the first function that raises no exception. If all raise, raise the first exception."""
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
        """Return an empty block for a region, and the temporary op that holds it."""
        ir, location = mlir.ir, self.location
        self._has_regions = True
        with mlir.entered():
            holder = ir.Operation.create("builtin.module", regions=1, loc=location)
            block = ir.Block.create_at_start(
                holder.regions[0], [s.type for s in shapes], arg_locs=[location] * len(shapes)
            )
        self._pending.append(holder)
        return holder, block

    def record(self, results: list[Any]) -> None:
        """Append the results of all ops emitted from now on to a list."""
        self._record = results

    @contextlib.contextmanager
    def recorded(self) -> Generator[list[Tensor]]:
        """Yield a list of the results of all ops that are emitted in this context."""
        results: list[Tensor] = []
        outer_record = self._record
        self._record = results
        try:
            yield results
        finally:
            self._record = outer_record
            if outer_record is not None:
                outer_record += results

    def scratch(self, function: Callable[..., Any], shapes: Sequence[Shape]) -> mlir.Block:
        """Return a block with the ops that a function of tensors emits. It is read-only and not part of the graph.

        It may be used until the end of the enclosing `scratchpad`.
        """
        return self.region(function, shapes).block

    @contextlib.contextmanager
    def scratchpad(self) -> Generator[None]:
        """The context that `scratch` needs."""
        mark = len(self._pending)
        try:
            yield
        finally:
            self._retire(mark)

    def _retire(self, mark: int) -> None:
        """Keep unused regions, but detach them from values of the graph: MLIR must not free values in use."""
        with mlir.entered():
            for holder in reversed(self._pending[mark:]):
                _isolate(holder)
                self._retired.append(holder)
        del self._pending[mark:]

    def inline(self, block: mlir.Block, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Emit copies of the ops of a region's block, and return the values that it yields.

        Args:
            block: The block; it is not changed.
            arguments: The tensors that replace its arguments.
        """
        values: dict[mlir.Value, mlir.Value] = dict(zip(block.arguments, (t.value for t in arguments), strict=True))
        *body, end = block.operations
        for view in body:
            old = view.operation
            new = old.clone(self._points[-1])
            use(new, values)
            values.update(zip(old.results, new.results, strict=True))
        return [self.tensor(values.get(v, v)) for v in end.operation.operands]
