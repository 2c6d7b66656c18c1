"""The table of lowering rules by op, and the walk over a module that applies them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.location import describe
from rlx.ir.op import opview, registry
from rlx.ir.op.argument_groups import takes_flat
from rlx.ir.op.card import as_results
from rlx.ir.op.rule_errors import calling
from rlx.ir.op.signature import bodies
from rlx.ir.shape import Shape, shape_of
from rlx.support.errors import Error, UnsupportedError
from rlx.transforms.scope import captures

Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered value with its shape in the rlx dialect."""

    value: mlir.Value
    shape: Shape

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes, which are static."""
        return self.shape.static

    @property
    def rank(self) -> int:
        return self.shape.rank

    @property
    def dtype(self) -> DType:
        return self.shape.dtype


# Lowered values by rlx value. Each region has its own map, chained before the maps of the enclosing regions.
_Values = ChainMap[mlir.Value, Lowered]
# Emits a region's ops for the given arguments, and returns the yielded values.
Region = Callable[..., list[Lowered]]


class LoweringTable:
    """The rules of a lowering, by op name: for all primitive ops, and for composite ops with an efficient direct lowering.

    Args:
        dialect: The dialect that the rules emit, for messages.
        call_kernel: Emits the call of the kernel that implements an op, given the builder, the op, the result shapes and the
            lowered operands; None if the lowering has no kernels.
    """

    def __init__(self, dialect: str, call_kernel: Rule | None = None):
        self.dialect = dialect
        self.call_kernel = call_kernel
        self.rules: dict[str, Rule] = {}

    def lowers(self, op: str) -> Callable[[Rule], Rule]:
        """Register `rule(build, results, *operands, **attributes)` for an op.

        `build` emits ops, and `results` are the result shapes. Operands are `Lowered`, None, or lists of them. An op with
        regions has an additional keyword argument `regions`: a function for each region, or None for an empty region. The
        function takes the region's lowered arguments, as `Lowered` or bare values. It emits the region's ops at the
        insertion point, and returns a list of the yielded values. Operands and attributes may be grouped
        (`rlx.ir.op.argument_groups`). The rule returns an MLIR value or a `Lowered`, or a tuple of them. Their number, types
        and shapes are checked.

        Raises:
            Error: The op does not exist, or it is an op of the dialect and already has a rule.
        """
        if not registry.card(op).spec.custom and op in self.rules:  # the file of a user's op may be run twice
            raise Error(f"rlx.{op} has a lowering to {self.dialect} already", hint="rules are for custom ops")

        def register(rule: Rule) -> Rule:
            self.rules[op] = takes_flat(rule)
            return rule

        return register

    def claimed(self) -> frozenset[str]:
        """Names of the ops that have a rule. All others must be decomposed first."""
        return frozenset(self.rules)

    def check(self, module: mlir.Module) -> None:
        """Check that every rlx op of a module has a rule.

        Raises:
            UnsupportedError: Some ops have no rule; the error lists them with their locations.
        """
        missing: list[str] = []
        for function in bodies(module):
            for op in opview.operations(function.entry_block):
                name = opview.name_of(op)
                if op.name not in opview.TERMINATORS and name not in self.rules and not self._calls_kernel(op):
                    shown = f"rlx.{name}" if registry.is_ours(op) else op.name
                    missing.append(f"  {describe(op.location) or '<unknown>'}: {shown}")
        if missing:
            message = f"{len(missing)} ops have no lowering to {self.dialect}:\n" + "\n".join(missing)
            raise UnsupportedError(message)

    def lower_block(
        self, build: Any, block: mlir.Block, arguments: Sequence[Any], values: _Values | None = None
    ) -> list[Lowered]:
        """Emit a block's ops at the insertion point, and return the operands of its terminator.

        Args:
            build: The builder of the rules; `build.type_of(shape)` is the type of a lowered tensor.
            block: A block of rlx ops.
            arguments: The lowered arguments of the block.
            values: Lowered values of the enclosing blocks, by rlx value. The values of the block are added.
        """
        values = ChainMap() if values is None else values
        values.update(_paired(block.arguments, arguments))
        *body, end = block.operations
        for op in body:
            with op.location:
                self._lower_op(build, op.operation, values)
        return [values[v] for v in end.operation.operands]

    def _calls_kernel(self, op: mlir.Operation) -> bool:
        return self.call_kernel is not None and opview.kernel_of(op) is not None

    def _lower_op(self, build: Any, op: mlir.Operation, values: _Values) -> None:
        lowered, shapes = [values[v] for v in op.operands], [shape_of(r) for r in op.results]
        if self.call_kernel is not None and self._calls_kernel(op):
            if len(op.regions):
                lowered += [values[v] for v in captures(op)]
            values.update(_paired(op.results, self.call_kernel(build, op, shapes, lowered)))
            return
        operands = opview.operands_of(op, lowered)
        given = opview.attributes_of(op)
        if len(op.regions):
            blocks = map(opview.block_of, op.regions)
            given["regions"] = tuple(block and partial(self._lower_region, build, block, values) for block in blocks)
        rule = self.rules[opview.name_of(op)]
        with calling(op, f"lowering to {self.dialect}", rule):
            results = as_results(rule(build, shapes, *operands, **given))
            _check(build, results, shapes)
        values.update(_paired(op.results, results))

    def _lower_region(self, build: Any, block: mlir.Block, values: _Values, *arguments: Any) -> list[Lowered]:
        # A rule may lower a region more than once, so each call has its own values.
        return self.lower_block(build, block, arguments, values.new_child())


def _check(build: Any, results: Sequence[Any], shapes: Sequence[Shape]) -> None:
    """Check the results of a rule.

    Raises:
        Error: A result is missing, or has the wrong type.
    """
    if len(results) != len(shapes):
        raise Error(f"it returns {len(results)} values; the op has {len(shapes)} results")
    for i, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        what = f"result {i}" if len(shapes) > 1 else "the result"
        value = result.value if isinstance(result, Lowered) else result
        if not isinstance(value, mlir.ir.Value):
            raise Error(f"{what} must be an MLIR value or a Lowered, got {type(value).__name__}")
        if isinstance(result, Lowered) and result.shape != shape:
            raise Error(f"{what} must be {shape}, got {result.shape}")
        if value.type != build.type_of(shape):
            raise Error(f"{what} must be {build.type_of(shape)}, got {value.type}")


def _paired(values: Sequence[Any], lowered: Sequence[Any]) -> dict[mlir.Value, Lowered]:
    """Map rlx values to their lowered values."""
    paired: dict[mlir.Value, Lowered] = {}
    for value, one in zip(values, lowered, strict=True):
        shape = shape_of(value)
        if not isinstance(one, Lowered):
            one = Lowered(one, shape)
        assert one.shape == shape, f"{one.shape} stands for {shape}"
        paired[value] = one
    return paired


def empty_module(module: mlir.Module) -> Any:
    """Return an empty module with the name and the location of another one."""
    ir = mlir.ir
    made = ir.Module.create(loc=module.operation.location)
    symbol = module.operation.attributes
    if "sym_name" in symbol:
        made.operation.attributes["sym_name"] = symbol["sym_name"]
    return made
