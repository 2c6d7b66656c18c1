"""Access to MLIR ops of the rlx dialect for cards: card, attributes by name, grouped operands, regions.

A user's op is an `rlx.custom` in the IR. The functions here treat it like all other ops.
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

# The only ops that this package names: the op that represents a user's op, and the terminator of a region.
CUSTOM = "rlx.custom"
YIELD = "rlx.yield"
TERMINATORS = ("func.return", YIELD)
# The attribute of an op that a kernel implements: the kernel's name (`rlx.kernels`).
KERNEL = "rlx.kernel"
DEEPEST = 48  # maximum nesting of ops with regions: transforms recurse, with about ten Python calls per level


@dataclass(frozen=True)
class RegionShapes:
    """The shapes of the values that a region takes and yields."""

    arguments: tuple[Shape, ...]
    results: tuple[Shape, ...]


def name_of(op: mlir.Operation) -> str:
    """Return the name of an op without the `rlx.` prefix; for a user's op, the registered name."""
    name = op.name
    if name == CUSTOM:
        stored = op.attributes
        return stored["name"].value if "name" in stored else "custom"
    return name.removeprefix("rlx.")


def kernel_of(op: mlir.Operation) -> str | None:
    """Return the name of the kernel that implements an op; None if the op is lowered."""
    return op.attributes[KERNEL].value if KERNEL in op.attributes else None


def is_used(value: mlir.Value) -> bool:
    """Whether any op reads a value."""
    return next(iter(value.uses), None) is not None


def label_of(op: mlir.Operation) -> str:
    """Return the name of an op of any dialect in listings: see `Card.label`."""
    if not registry.is_ours(op):
        return op.name.rpartition(".")[2]
    return card_of(op).label({"kind": op.attributes["kind"].value} if "kind" in op.attributes else {})


def place_of(op: mlir.Operation) -> str:
    """Return the user's `file:line` of an op; empty if there is none."""
    return describe(op.location) or ""


def card_of(op: mlir.Operation) -> Card:
    """Return the card of an op.

    Raises:
        Error: There is no card.
    """
    return registry.card(name_of(op))


def has_trait(op: mlir.Operation, name: TraitName) -> bool:
    """Whether an op with its attributes has a trait of `dialect/RlxTraits.td`. Ops of other dialects have none."""
    if not registry.is_ours(op):
        return False
    trait = card_of(op).spec.trait(name)
    if trait is None or not trait.attribute:
        return trait is not None
    return trait.attribute in op.attributes and op.attributes[trait.attribute].value in trait.cases


def attributes_of(op: mlir.Operation, bindings: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return all attributes by name, as canonical Python values. With `bindings`, dimensions are integers.

    Raises:
        ShapeError: An attribute is missing, unknown or of the wrong kind.
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
    """Return a list with one item per operand, grouped as in the record.

    Raises:
        ShapeError: The count does not fit.
    """
    spec = card_of(op).spec
    if op.name == CUSTOM:
        return grouping.counted(spec.operands, items, "operand")
    return grouping.grouped_operands(spec, op, items)


def key(op: mlir.Operation) -> Any:
    """Return a dictionary key for an op: its first result, or the op itself if it has none.

    The hash of an op is computed from its content. It is the same for identical ops, which makes look-ups slow, and it
    changes with the operands.
    """
    return op.results[0] if len(op.results) else op


def block_of(region: mlir.Region) -> mlir.Block | None:
    """Return the block of a region, None for an empty one."""
    return next(iter(region.blocks), None)


def home_of(value: mlir.Value) -> mlir.Block:
    """Return the block that defines a value."""
    return value.owner.operation.block if isinstance(value, mlir.OpResult) else value.owner


def yielded(block: mlir.Block) -> list[mlir.Value]:
    """Return the values that a block returns or yields: the operands of its last op."""
    operations = block.operations
    return list(operations[len(operations) - 1].operation.operands)


def region_shapes(op: mlir.Operation) -> tuple[RegionShapes | None, ...]:
    """Return the shapes that each region of an op takes and yields; None for an empty region.

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
    """Return the work of an op and its regions, which count once per run, or once if the number is unknown."""
    total, times = own_cost_of(op), card_of(op).runs(attributes_of(op))
    for region in op.regions:
        block = block_of(region)
        for inner in block.operations if block is not None else ():
            inner_cost = cost_of(inner.operation)
            total = Cost(total.flops + inner_cost.flops * times, total.bytes + inner_cost.bytes * times)
    return total


def own_cost_of(op: mlir.Operation) -> Cost:
    """Return the work of an op without its regions, from the card's cost or else from the decomposition."""
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
    """Yield the ops of a block in order, each before the ops in its regions."""
    for view in block.operations:
        op = view.operation
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from operations(inner)
