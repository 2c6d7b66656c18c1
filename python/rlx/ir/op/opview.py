"""Reads MLIR ops of the rlx dialect as their cards need them: card, attributes by name, operands in groups, regions.

An op that a user has registered is an `rlx.custom` in the IR; the functions here treat it as an op like all others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.dialect.spec import TraitName
from rlx.ir.location import describe
from rlx.ir.op import attributes, grouping, registry
from rlx.ir.op.card import Card, Cost
from rlx.ir.shape import Shape, shape_of
from rlx.parts import EVALUATOR
from rlx.support.errors import ShapeError

# The only ops that this package knows by name: the one that represents an op of a user, and the end of a region.
CUSTOM = "rlx.custom"
YIELD = "rlx.yield"
TERMINATORS = ("func.return", YIELD)
DEEPEST = 48  # nested ops with regions: transforms are recursive, with about ten Python calls for each level


@dataclass(frozen=True)
class RegionShapes:
    """The shapes of the values that a region takes and yields."""

    arguments: tuple[Shape, ...]
    results: tuple[Shape, ...]


def name_of(op: mlir.Operation) -> str:
    """The name of an op without the `rlx.` prefix; for an op that a user has registered, the registered name."""
    name = op.name
    if name == CUSTOM:
        stored = op.attributes
        return stored["name"].value if "name" in stored else "custom"
    return name.removeprefix("rlx.")


def is_used(value: mlir.Value) -> bool:
    """Whether any op reads a value."""
    return next(iter(value.uses), None) is not None


def label_of(op: mlir.Operation) -> str:
    """The name of an op of any dialect in listings: see `Card.label`."""
    if not registry.is_ours(op):
        return op.name.rpartition(".")[2]
    return card_of(op).label({"kind": op.attributes["kind"].value} if "kind" in op.attributes else {})


def place_of(op: mlir.Operation) -> str:
    """The user's `file:line` of an op, empty when it has none."""
    return describe(op.location) or ""


def card_of(op: mlir.Operation) -> Card:
    """The card of an op.

    Raises:
        Error: There is none.
    """
    return registry.card(name_of(op))


def has_trait(op: mlir.Operation, name: TraitName) -> bool:
    """Whether an op has a trait of `dialect/RlxTraits.td`, given its attributes. Ops of other dialects have none."""
    if not registry.is_ours(op):
        return False
    trait = card_of(op).spec.trait(name)
    if trait is None or not trait.attribute:
        return trait is not None
    return trait.attribute in op.attributes and op.attributes[trait.attribute].value in trait.cases


def attributes_of(op: mlir.Operation, bindings: Mapping[str, int] | None = None) -> dict[str, Any]:
    """All attributes by name, as canonical Python values; with `bindings`, dimensions as integers.

    Raises:
        ShapeError: One is missing, unknown or of the wrong kind.
    """
    spec = card_of(op).spec
    if op.name != CUSTOM:
        return attributes.read(spec, op, bindings)
    stored = op.attributes["attributes"]
    if not isinstance(stored, mlir.ir.DictAttr):
        raise ShapeError(f"attribute 'attributes' must be a dictionary, got {stored}")
    by_name = {entry.name: entry.attr for entry in stored}
    return attributes.read_from(spec, by_name, bindings)


def operands_of(op: mlir.Operation, items: Sequence[object]) -> list[Any]:
    """One item for each operand, in the groups of the record.

    Raises:
        ShapeError: The count does not fit.
    """
    spec = card_of(op).spec
    if op.name == CUSTOM:
        return grouping.counted(spec.operands, items, "operand")
    return grouping.grouped_operands(spec, op, items)


def key(op: mlir.Operation) -> Any:
    """The op as the key of a dictionary: its first result, or itself if it has none.

    The hash of an op itself is that of what it says: it is the same for ops that are alike, so that looking for one among many
    takes long, and another one once its operands have changed.
    """
    return op.results[0] if len(op.results) else op


def block_of(region: mlir.Region) -> mlir.Block | None:
    """The block of a region, None for an empty one."""
    return next(iter(region.blocks), None)


def home_of(value: mlir.Value) -> mlir.Block:
    """The block in which a value is defined."""
    return value.owner.operation.block if isinstance(value, mlir.OpResult) else value.owner


def yielded(block: mlir.Block) -> list[mlir.Value]:
    """The values that a block returns or yields: the operands of its last op."""
    operations = block.operations
    return list(operations[len(operations) - 1].operation.operands)


def region_shapes(op: mlir.Operation) -> tuple[RegionShapes | None, ...]:
    """The shapes that each region of an op takes and yields; None for an empty region.

    Raises:
        ShapeError: A region does not end in `rlx.yield`.
    """
    result: list[RegionShapes | None] = []
    for region in op.regions:
        block = block_of(region)
        if block is None:
            result.append(None)
            continue
        operations = block.operations
        if not len(operations) or operations[len(operations) - 1].operation.name != YIELD:
            raise ShapeError(f"region {len(result)} must end in '{YIELD}'")
        arguments = tuple(shape_of(a) for a in block.arguments)
        result.append(RegionShapes(arguments, tuple(shape_of(v) for v in yielded(block))))
    return tuple(result)


def cost_of(op: mlir.Operation) -> Cost:
    """Work of an op and of its regions. The regions count as often as they run, or once if that is not known."""
    total, times = own_cost_of(op), card_of(op).runs(attributes_of(op))
    for region in op.regions:
        block = block_of(region)
        for inner in block.operations if block is not None else ():
            inner_cost = cost_of(inner.operation)
            total = Cost(total.flops + inner_cost.flops * times, total.bytes + inner_cost.bytes * times)
    return total


def own_cost_of(op: mlir.Operation) -> Cost:
    """Work of an op without that of its regions. That of a composite op whose card does not say it is its decomposition's."""
    card, attributes = card_of(op), attributes_of(op)
    groups = operands_of(op, [shape_of(v) for v in op.operands])
    own = card.cost(grouping.flat(groups), [shape_of(r) for r in op.results], attributes)
    if not card.composite or card.has_cost or card.spec.custom:
        return own
    decomposed = importlib.import_module(EVALUATOR).decomposed(card, groups, attributes)
    parts = [
        cost_of(inner.operation)
        for inner in decomposed.function.entry_block.operations
        if inner.operation.name not in TERMINATORS
    ]
    return Cost(sum((part.flops for part in parts), 0), own.bytes)


def operations(block: mlir.Block) -> Iterator[mlir.Operation]:
    """The ops of a block in order, each before the ops in its regions."""
    for view in block.operations:
        op = view.operation
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from operations(inner)
