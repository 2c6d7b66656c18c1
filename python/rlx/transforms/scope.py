"""What the transforms share: values of a block that is read, and the values that stand for them where ops are emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card
from rlx.ir.errors import Error
from rlx.ir.guards import is_list
from rlx.ir.location import describe
from rlx.ir.regions import use
from rlx.ir.shape import shape_of
from rlx.passes.rewrite import checked_replacement


class Scope:
    """What stands for the values of a block, and for those around it.

    A value that is not in it stands for itself: what a rule emits reads values that are in place already.
    """

    def __init__(self, builder: Builder, around: Scope | None = None):
        self._builder = builder
        self._around = around
        self._values: dict[mlir.Value, Tensor] = {}

    def __setitem__(self, value: mlir.Value, stand_in: Tensor) -> None:
        self._values[value] = stand_in

    def bind(self, values: Sequence[mlir.Value], stand_ins: Sequence[Tensor]) -> None:
        """Say what stands for each of several values."""
        self._values.update(zip(values, stand_ins, strict=True))

    def __getitem__(self, value: mlir.Value) -> Tensor:
        scope: Scope | None = self
        while scope is not None:
            found = scope._values.get(value)
            if found is not None:
                return found
            scope = scope._around
        return self._builder.tensor(value)


def captures(op: mlir.Operation) -> list[mlir.Value]:
    """The values from outside that the regions of an op read, each once, in order."""
    found: dict[mlir.Value, None] = {}
    inner: set[mlir.Value] = set()
    for region in op.regions:
        for block in region.blocks:
            _captures(block, inner, found)
    return list(found)


def block_captures(block: mlir.Block) -> list[mlir.Value]:
    """The values from outside that a block reads, each once, in order."""
    found: dict[mlir.Value, None] = {}
    _captures(block, set(), found)
    return list(found)


def _captures(block: mlir.Block, inner: set[mlir.Value], found: dict[mlir.Value, None]) -> None:
    inner.update(block.arguments)
    for view in block.operations:
        op = view.operation
        for operand in op.operands:
            if operand not in inner:
                found[operand] = None
        for region in op.regions:
            for nested in region.blocks:
                _captures(nested, inner, found)
        inner.update(op.results)


def copy(b: Builder, op: mlir.Operation, operands: Sequence[Tensor], scope: Scope) -> list[Tensor]:
    """A copy of an op at the builder's place, on other operands; its results."""
    new = op.clone(b.insertion_point)
    if len(op.regions):
        values = {v: scope[v].value for v in captures(op)}
        use(new, values | dict(zip(op.operands, (t.value for t in operands), strict=True)))
    for i, operand in enumerate(operands):
        new.operands[i] = operand.value
    return [b.tensor(r) for r in new.results]


def copied(b: Builder, block: mlir.Block, scope: Scope) -> list[Tensor]:
    """A copy of the ops of a block at the builder's place; what they yield."""
    for op in ops_of(block):
        scope.bind(op.results, copy(b, op, [scope[v] for v in op.operands], scope))
    return [scope[v] for v in opview.yielded(block)]


def inlined(b: Builder, block: mlir.Block, arguments: Sequence[Tensor], around: Scope) -> list[Tensor]:
    """The same, with what stands for the arguments of the block."""
    scope = Scope(b, around)
    scope.bind(block.arguments, arguments)
    return copied(b, block, scope)


def has_tangent(value: mlir.Value) -> bool:
    """Whether a value has a tangent at all: it is a float or complex."""
    return shape_of(value).dtype.is_inexact


def decomposition(b: Builder, op: mlir.Operation, scope: Scope) -> mlir.Block:
    """The block of what a composite op decomposes into; its arguments stand for the op's operands."""
    return _instead(b, op, opview.card_of(op).decompose, scope)


def reversible(b: Builder, op: mlir.Operation, scope: Scope) -> mlir.Block | None:
    """The same of what stands for an op in reverse mode; None where that is the op itself."""
    card = opview.card_of(op)
    if "num_checkpoints" in op.attributes or card.name == "while":
        return _instead(b, op, card.reversible, scope)
    return None


def _instead(b: Builder, op: mlir.Operation, function: Callable[..., Any], scope: Scope) -> mlir.Block:
    card = opview.card_of(op)
    values = opview.attributes_of(op)
    if card.spec.regions:
        # What its regions read is not to be seen from where the block stands: a copy reads what stands for it.
        _, block = b.open_region(())
        with b.at(mlir.ir.InsertionPoint(block)):
            copy(b, op, [scope[v] for v in op.operands], scope)
        values["regions"] = tuple(opview.block_of(r) for r in block.operations[0].operation.regions)

    def emit(*tensors: Tensor) -> list[Any]:
        return list(checked_replacement(op, b, lambda: function(b, *opview.operands_of(op, tensors), **values)))

    return b.scratch(emit, [shape_of(v) for v in op.operands])


def no_rule(op: mlir.Operation, what: str) -> Error:
    """The error that an op cannot be transformed."""
    name = opview.name_of(op)
    hint = f"give its card a rule, {what}, or a decomposition"
    return Error(f"rlx.{name} has no {what} rule", location=describe(op.location), hint=hint)


def at_op(problem: Error, op: mlir.Operation, what: str) -> Error:
    """An error of a rule, at the line of the op."""
    message = f"{what} of rlx.{opview.name_of(op)}: {problem.message}"
    return type(problem)(message, location=describe(op.location), hint=problem.hint)


def grouped(op: mlir.Operation, items: Sequence[object]) -> list[Any]:
    """One item for each operand of an op, in the groups of its record."""
    return opview.operands_of(op, items)


def flat(groups: Sequence[Any], pattern: Sequence[Any]) -> list[Any]:
    """Items of groups one by one; an entry of None stands for as many as the pattern has there."""
    result: list[Any] = []
    for group, like in zip(groups, pattern, strict=True):
        if is_list(like):
            result += [None] * len(like) if group is None else list(group)
        elif like is not None:
            result.append(group)
    return result


def linear_groups(card: Card) -> Iterator[list[int]]:
    """The operands in which an op is linear jointly, as positions in its record."""
    names = [o.name for o in card.spec.operands]
    for group in card.linear:
        yield [names.index(name) for name in group.split()]


def ops_of(block: mlir.Block) -> Iterator[mlir.Operation]:
    """The ops of a block, without its last one.

    Raises:
        Error: One is not of the rlx dialect.
    """
    for view in block.operations:
        op = view.operation
        if op.name in opview.TERMINATORS:
            return
        if not registry.is_ours(op):
            raise Error(f"'{op.name}' is no rlx op: only those can be transformed", location=describe(op.location))
        yield op


def depends(
    block: mlir.Block, given: Sequence[bool], of_outside: Callable[[mlir.Value], bool], *, floats: bool
) -> list[bool]:
    """Which values that a block yields depend on those of its arguments that are given.

    Args:
        block: A block.
        given: For each argument.
        of_outside: Whether a value from outside is given.
        floats: Only through floats and complex numbers, as derivatives do.
    """
    reached = {a for a, is_given in zip(block.arguments, given, strict=True) if is_given}
    local = set(block.arguments)

    def is_reached(value: mlir.Value) -> bool:
        return value in reached if value in local else of_outside(value)

    for op in ops_of(block):
        local.update(op.results)
        if any(map(is_reached, op.operands)) or (len(op.regions) and any(map(is_reached, captures(op)))):
            reached.update(r for r in op.results if not floats or has_tangent(r))
    return [is_reached(v) for v in opview.yielded(block)]
