"""Helpers of the transforms: `ValueScope`, which maps values of a block to tensors of the new graph, and block copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.regions import use
from rlx.ir.location import describe
from rlx.ir.op import opview, registry
from rlx.ir.op.card import Card
from rlx.ir.shape import shape_of
from rlx.passes.rewrite import checked_replacement
from rlx.support.errors import Error
from rlx.support.guards import is_list


class ValueScope:
    """Maps the values of a block, and of the blocks around it, to tensors of a builder.

    A value that is not in the scope is mapped to itself, because ops that a rule emits already use values of the new
    graph.
    """

    def __init__(self, builder: Builder, outer: ValueScope | None = None):
        self._builder = builder
        self._outer = outer
        self._values: dict[mlir.Value, Tensor] = {}

    def __setitem__(self, value: mlir.Value, tensor: Tensor) -> None:
        self._values[value] = tensor

    def bind(self, values: Sequence[mlir.Value], tensors: Sequence[Tensor]) -> None:
        """Map each of several values to its tensor."""
        self._values.update(zip(values, tensors, strict=True))

    def __getitem__(self, value: mlir.Value) -> Tensor:
        scope: ValueScope | None = self
        while scope is not None:
            tensor = scope._values.get(value)
            if tensor is not None:
                return tensor
            scope = scope._outer
        return self._builder.tensor(value)


def captures(op: mlir.Operation) -> list[mlir.Value]:
    """Return the values from outside that the regions of an op use, without duplicates, in order."""
    captured: dict[mlir.Value, None] = {}
    inner: set[mlir.Value] = set()
    for region in op.regions:
        for block in region.blocks:
            _captures(block, inner, captured)
    return list(captured)


def block_captures(block: mlir.Block) -> list[mlir.Value]:
    """Return the values from outside that a block uses, without duplicates, in order."""
    captured: dict[mlir.Value, None] = {}
    _captures(block, set(), captured)
    return list(captured)


def _captures(block: mlir.Block, inner: set[mlir.Value], captured: dict[mlir.Value, None]) -> None:
    inner.update(block.arguments)
    for view in block.operations:
        op = view.operation
        for operand in op.operands:
            if operand not in inner:
                captured[operand] = None
        for region in op.regions:
            for nested in region.blocks:
                _captures(nested, inner, captured)
        inner.update(op.results)


def copy(b: Builder, op: mlir.Operation, operands: Sequence[Tensor], scope: ValueScope) -> list[Tensor]:
    """Copy an op to the insertion point of a builder, with the given operands. Returns its results."""
    new = op.clone(b.insertion_point)
    if len(op.regions):
        values = {v: scope[v].value for v in captures(op)}
        use(new, values | dict(zip(op.operands, (t.value for t in operands), strict=True)))
    for i, operand in enumerate(operands):
        new.operands[i] = operand.value
    return [b.tensor(r) for r in new.results]


def copy_block(b: Builder, block: mlir.Block, scope: ValueScope) -> list[Tensor]:
    """Copy the ops of a block to the insertion point of a builder. Returns the tensors that it yields."""
    for op in ops_of(block):
        scope.bind(op.results, copy(b, op, [scope[v] for v in op.operands], scope))
    return [scope[v] for v in opview.yielded(block)]


def inlined(b: Builder, block: mlir.Block, arguments: Sequence[Tensor], outer: ValueScope) -> list[Tensor]:
    """Copy a block as `copy_block` does, with tensors for its arguments."""
    scope = ValueScope(b, outer)
    scope.bind(block.arguments, arguments)
    return copy_block(b, block, scope)


def has_tangent(value: mlir.Value) -> bool:
    """Whether a value can have a tangent, that is, is a float or complex."""
    return shape_of(value).dtype.is_inexact


def has_derivative(op: mlir.Operation) -> bool:
    """Whether an op propagates derivatives."""
    return not registry.is_ours(op) or opview.card_of(op).has_derivative(**opview.attributes_of(op))


def decomposition(b: Builder, op: mlir.Operation, scope: ValueScope) -> mlir.Block:
    """Return a block with the decomposition of a composite op. The block's arguments replace the op's operands."""
    return _replacement(b, op, opview.card_of(op).decompose, scope)


def reversible(b: Builder, op: mlir.Operation, scope: ValueScope) -> mlir.Block | None:
    """Return a block with the ops that replace an op in reverse mode (`Card.reversible`), or None."""
    card = opview.card_of(op)
    if card.has("reversible") and card.is_replaced(**opview.attributes_of(op)):
        return _replacement(b, op, card.reversible, scope)
    return None


def _replacement(b: Builder, op: mlir.Operation, function: Callable[..., Any], scope: ValueScope) -> mlir.Block:
    """Return a block with the ops that a function emits to replace an op."""
    card = opview.card_of(op)
    values = opview.attributes_of(op)
    if card.spec.regions:
        # The new block cannot use the outside values of the regions. Therefore take the regions of a copy, which uses
        # the tensors for these values.
        _, block = b.open_region(())
        with b.at(mlir.ir.InsertionPoint(block)):
            copy(b, op, [scope[v] for v in op.operands], scope)
        values["regions"] = tuple(opview.block_of(r) for r in block.operations[0].operation.regions)

    def emit(*tensors: Tensor) -> list[Any]:
        return list(checked_replacement(op, b, lambda: function(b, *opview.operands_of(op, tensors), **values)))

    return b.scratch(emit, [shape_of(v) for v in op.operands])


def no_rule(op: mlir.Operation, what: str) -> Error:
    """Return the error for an op without a rule."""
    name = opview.name_of(op)
    hint = f"give its card a rule, {what}, or a decomposition"
    return Error(f"rlx.{name} has no {what} rule", location=describe(op.location), hint=hint)


def at_op(problem: Error, op: mlir.Operation, what: str) -> Error:
    """Return an error of a rule, at the line of the op."""
    message = f"{what} of rlx.{opview.name_of(op)}: {problem.message}"
    return type(problem)(message, location=describe(op.location), hint=problem.hint)


def grouped(op: mlir.Operation, items: Sequence[object]) -> list[Any]:
    """Return a list with one item per operand of an op, grouped as in its record."""
    return opview.operands_of(op, items)


def flat(groups: Sequence[Any], pattern: Sequence[Any]) -> list[Any]:
    """Return the items of groups, flattened. A group that is None becomes the number of Nones given by the pattern."""
    result: list[Any] = []
    for group, entry in zip(groups, pattern, strict=True):
        if is_list(entry):
            result += [None] * len(entry) if group is None else list(group)
        elif entry is not None:
            result.append(group)
    return result


def linear_groups(card: Card) -> Iterator[list[int]]:
    """Yield the groups of operands in which an op is jointly linear, as positions in its record."""
    names = [o.name for o in card.spec.operands]
    for group in card.linear:
        yield [names.index(name) for name in group.split()]


def ops_of(block: mlir.Block) -> Iterator[mlir.Operation]:
    """Yield the ops of a block, without the terminator.

    Raises:
        Error: An op is not of the rlx dialect.
    """
    for view in block.operations:
        op = view.operation
        if op.name in opview.TERMINATORS:
            return
        if not registry.is_ours(op):
            raise Error(f"'{op.name}' is not an rlx op: only those can be transformed", location=describe(op.location))
        yield op


def depends(
    block: mlir.Block, arguments: Sequence[bool], of_outside: Callable[[mlir.Value], bool], *, floats: bool
) -> list[bool]:
    """Return for each value that a block yields whether it depends on some arguments, or on some values from outside.

    Args:
        block: A block.
        arguments: Whether to follow each argument.
        of_outside: Whether to follow a value from outside.
        floats: Follow only floats and complex numbers, as derivatives do.
    """
    reached = {a for a, counts in zip(block.arguments, arguments, strict=True) if counts}
    local = set(block.arguments)

    def is_reached(value: mlir.Value) -> bool:
        return value in reached if value in local else of_outside(value)

    for op in ops_of(block):
        local.update(op.results)
        of_reached = any(map(is_reached, op.operands)) or (len(op.regions) and any(map(is_reached, captures(op))))
        if of_reached and (not floats or has_derivative(op)):
            reached.update(r for r in op.results if not floats or has_tangent(r))
    return [is_reached(v) for v in opview.yielded(block)]


def has_own_vjp(block: mlir.Block) -> bool:
    """Whether a block or a region of its ops has a function with a `vjp` of its own and without a `jvp`."""
    for op in ops_of(block):
        if not len(op.regions):
            continue
        names = (region.name for region in opview.card_of(op).spec.regions)
        blocks = dict(zip(names, map(opview.block_of, op.regions), strict=True))
        if blocks.get("vjp_region") is not None and blocks.get("jvp_region") is None:
            return True
        if any(has_own_vjp(inner) for inner in blocks.values() if inner is not None):
            return True
    return False


def depends_on(results: Sequence[Tensor | None], arguments: Sequence[Tensor]) -> bool:
    """Return whether a result is computed from one of the arguments."""
    sources, seen = {a.value for a in arguments}, set[mlir.Value]()
    waiting = [r.value for r in results if r is not None]
    while waiting:
        value = waiting.pop()
        if value in sources:
            return True
        if value in seen or not isinstance(value, mlir.OpResult):
            continue
        seen.add(value)
        op = value.owner.operation
        waiting += [*op.operands, *(captures(op) if len(op.regions) else ())]
    return False
