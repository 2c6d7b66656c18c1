"""What lowerings share: a table of rules by op, and the walk over a module that calls them."""

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

Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered value with the shape that it has in rlx."""

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


# By their rlx values; those of a region in a map in front of those around it.
_Values = ChainMap[mlir.Value, Lowered]
# Emits a region's ops for given arguments, and gives what it yields.
Region = Callable[..., list[Lowered]]


class LoweringTable:
    """The rules of a lowering, by op name: one for each primitive op, and for composites that are better lowered whole.

    Args:
        dialect: What the rules emit, for messages.
    """

    def __init__(self, dialect: str):
        self.dialect = dialect
        self.rules: dict[str, Rule] = {}

    def lowers(self, op: str) -> Callable[[Rule], Rule]:
        """Register `rule(build, results, *operands, **attributes)` for an op.

        `build` emits ops, `results` are the result shapes; operands are `Lowered`, None, or lists of them. An op with
        regions has one more keyword argument, `regions`: for each region a function that takes what stands for its
        arguments, `Lowered` or bare values, emits its ops at the insertion point, and returns a list of what it yields;
        None for an empty region. Operands and attributes may be grouped (`rlx.ir.op.argument_groups`). The rule returns an
        MLIR value or a `Lowered`, or a tuple of them. Their number, types and shapes are checked.

        Raises:
            Error: There is no such op, or it is one of the dialect and has a rule already.
        """
        if not registry.card(op).spec.custom and op in self.rules:  # the file of a user's op may be run twice
            raise Error(f"rlx.{op} has a lowering to {self.dialect} already", hint="rules are for custom ops")

        def register(rule: Rule) -> Rule:
            self.rules[op] = takes_flat(rule)
            return rule

        return register

    def claimed(self) -> frozenset[str]:
        """Names of the ops that have a rule here; all others must be decomposed first."""
        return frozenset(self.rules)

    def check(self, module: mlir.Module) -> None:
        """Every rlx op of a module has a rule.

        Raises:
            UnsupportedError: It lists every op that has none, with its location.
        """
        missing: list[str] = []
        for function in bodies(module):
            for op in opview.operations(function.entry_block):
                name = opview.name_of(op)
                if op.name not in opview.TERMINATORS and name not in self.rules:
                    shown = f"rlx.{name}" if registry.is_ours(op) else op.name
                    missing.append(f"  {describe(op.location) or '<unknown>'}: {shown}")
        if missing:
            message = f"{len(missing)} ops have no lowering to {self.dialect}:\n" + "\n".join(missing)
            raise UnsupportedError(message)

    def lower_block(
        self, build: Any, block: mlir.Block, arguments: Sequence[Any], values: _Values | None = None
    ) -> list[Lowered]:
        """Emit a block's ops at the insertion point, and give what it returns or yields.

        Args:
            build: What the rules build with; `build.type_of(shape)` is the type of a lowered tensor.
            block: A block of rlx ops.
            arguments: What stands for its arguments.
            values: Lowered values by their rlx values, of the blocks around this one; those of the block are added.
        """
        values = ChainMap() if values is None else values
        values.update(_paired(block.arguments, arguments))
        *body, end = block.operations
        for op in body:
            with op.location:
                self._lower_op(build, op.operation, values)
        return [values[v] for v in end.operation.operands]

    def _lower_op(self, build: Any, op: mlir.Operation, values: _Values) -> None:
        operands = opview.operands_of(op, [values[v] for v in op.operands])
        given = opview.attributes_of(op)
        if len(op.regions):
            blocks = map(opview.block_of, op.regions)
            given["regions"] = tuple(block and partial(self._lower_region, build, block, values) for block in blocks)
        rule, shapes = self.rules[opview.name_of(op)], [shape_of(r) for r in op.results]
        with calling(op, f"lowering to {self.dialect}", rule):
            results = as_results(rule(build, shapes, *operands, **given))
            _check(build, results, shapes)
        values.update(_paired(op.results, results))

    def _lower_region(self, build: Any, block: mlir.Block, values: _Values, *arguments: Any) -> list[Lowered]:
        # A rule may lower a region more than once; each time its values are new.
        return self.lower_block(build, block, arguments, values.new_child())


def _check(build: Any, results: Sequence[Any], shapes: Sequence[Shape]) -> None:
    """Check what a rule returns.

    Raises:
        Error: It is not a value of the right type for each result.
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
    """What stands for each of some rlx values."""
    paired: dict[mlir.Value, Lowered] = {}
    for value, one in zip(values, lowered, strict=True):
        shape = shape_of(value)
        if not isinstance(one, Lowered):
            one = Lowered(one, shape)
        assert one.shape == shape, f"{one.shape} stands for {shape}"
        paired[value] = one
    return paired


def empty_module(module: mlir.Module) -> Any:
    """A module without ops, of the name and the place of another one."""
    ir = mlir.ir
    made = ir.Module.create(loc=module.operation.location)
    symbol = module.operation.attributes
    if "sym_name" in symbol:
        made.operation.attributes["sym_name"] = symbol["sym_name"]
    return made
