"""Helpers of passes: collection of ops, and replacement of ops by those that a function of tensors emits."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import describe, name_of, within
from rlx.ir.op import opview, registry
from rlx.ir.op.card import as_results
from rlx.ir.op.signature import POLICY_ATTRIBUTE
from rlx.ir.shape import shape_of
from rlx.passes import rewrite_count
from rlx.support.errors import Error
from rlx.support.traces import raised_at

# Maximum depth of decomposition of composite ops into other composite ops; fewer than five are usual.
_DEEPEST = 16


def builder_before(op: mlir.Operation, note: str, location: mlir.Location | None = None) -> Builder:
    """Return a builder before an op.

    Args:
        op: New ops are inserted before it.
        note: The name of the block or pass, which is added to the location if it does not have it yet.
        location: The location of new ops; by default that of the op.
    """
    location = location or op.location
    noted = location if name_of(location) == note else within(location, note)
    return Builder(mlir.ir.InsertionPoint(op), noted)


def collect(module: mlir.Module | mlir.Operation, names: Container[str] | None = None) -> list[mlir.Operation]:
    """Return the rlx ops of a module in order; ops in the regions of an op come before it.

    Terminators are excluded: every region keeps its terminator.

    Args:
        module: A module or any other op.
        names: Op names without prefix; None for all.
    """
    ops: list[mlir.Operation] = []
    advance = mlir.ir.WalkResult.ADVANCE

    def visit(op: mlir.Operation) -> Any:
        name = op.name
        if not name.startswith("rlx.") or name in opview.TERMINATORS:
            return advance
        if names is None or opview.name_of(op) in names:
            ops.append(op)
        return advance

    mlir.walk(module, visit)
    return ops


def replace(op: mlir.Operation, values: Iterable[mlir.Value]) -> None:
    """Replace all uses of an op's results by other values, and erase the op.

    Raises:
        Error: The type of a value differs from that of the result that it replaces.
    """
    results, values = list(op.results), list(values)
    check_types(op, values)
    counter = rewrite_count.active()
    if counter is not None:
        counter.begin(op.name, op, values)
    for result, value in zip(results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
    if counter is not None:
        counter.end()


def check_types(op: mlir.Operation, values: list[mlir.Value]) -> None:
    """Check that values that will replace the results of an op have the same types.

    Raises:
        Error: The types differ.
    """
    if [v.type for v in values] != [r.type for r in op.results]:
        expected = ", ".join(str(shape_of(r)) for r in op.results)
        got = ", ".join(str(shape_of(v)) for v in values)
        message = f"'rlx.{opview.name_of(op)}' gives {expected}, its replacement {got}"
        raise Error(message, location=describe(op.location))


def replace_with(op: mlir.Operation, function: Callable[..., Any], note: str, /, **extra: Any) -> None:
    """Replace an op by the ops that a function of tensors emits before it.

    Args:
        op: An rlx op.
        function: Called with a builder and the operands in the groups of the op's record (None for an absent optional
            operand, a list for a variadic one); returns a tensor, or a tuple of tensors.
        note: The name of the pass or block, which is added to the locations of the new ops.
        extra: Keyword arguments of the function.

    Raises:
        Error: The function raised an exception, or returned different types; the location is that of the op.
    """
    builder = builder_before(op, note)
    operands = opview.operands_of(op, [builder.tensor(v) for v in op.operands])
    results = checked_replacement(op, builder, lambda: function(builder, *operands, **extra))
    replace(op, [r.value if isinstance(r, Tensor) else r for r in results])


def checked_replacement(op: mlir.Operation, builder: Builder, function: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the tensors that a function, such as a user's decomposition, returns to replace an op, after checks.

    Args:
        op: An rlx op.
        builder: The builder that the function emits with.
        function: Returns a tensor, or a tuple of tensors.

    Raises:
        Error: The function raised an exception, or its result cannot replace the op; the location is that of the op.
    """
    name, place = f"'rlx.{opview.name_of(op)}'", describe(op.location)
    try:
        results = as_results(function())
    except Error as problem:
        if problem.location is not None:
            raise
        raise problem.moved(f"{name}: {problem.message}", location=place) from None
    except Exception as problem:
        message = f"the replacement of {name} raised {type(problem).__name__}: {problem}"
        raise Error(message, location=place, hint=raised_at(problem)) from problem
    for result in results:
        if not isinstance(result, (Tensor, mlir.ir.Value)):
            raise Error(f"the replacement of {name} must be tensors, got {type(result).__name__}", location=place)
        if isinstance(result, Tensor) and result.builder is not builder:
            raise Error(f"the replacement of {name} belongs to another graph", location=place)
    check_types(op, [r.value if isinstance(r, Tensor) else r for r in results])
    return results


def decompose(op: mlir.Operation) -> None:
    """Replace a composite op by its card's decomposition."""
    card = opview.card_of(op)
    values = opview.attributes_of(op)
    if card.spec.regions:
        values["regions"] = tuple(opview.block_of(region) for region in op.regions)
    replace_with(op, card.decompose, card.name, **values)


def decompose_all(module: mlir.Module, names: Container[str]) -> int:
    """Decompose all ops with these names, also emitted ones, until none is left. Returns their number.

    Ops that a kernel implements are kept.

    Raises:
        Error: A decomposition failed, or contains the same op again.
    """
    count = 0
    level = 0
    while ops := [op for op in collect(module, names) if opview.kernel_of(op) is None]:
        if level == _DEEPEST:
            name, place = opview.name_of(ops[0]), describe(ops[0].location)
            raise Error(f"'rlx.{name}' decomposes into itself", location=place)
        for op in ops:
            decompose(op)
        count += len(ops)
        level += 1
    return count


def erase_dead(ops: Iterable[mlir.Operation]) -> None:
    """Erase rlx ops without uses, then producers of their operands and of their regions that become unused."""
    # Several Python objects may represent the same op, and all are invalid after it is erased. Therefore each op is
    # stored once.
    pending = {opview.key(op): op for op in ops}
    while pending:
        _, op = pending.popitem()
        if registry.is_ours(op) and op.name not in opview.TERMINATORS and is_unread(op):
            inside = [inner for region in op.regions for block in region.blocks for inner in opview.operations(block)]
            read = [v for user in (op, *inside) for v in user.operands if isinstance(v, mlir.ir.OpResult)]
            owners = {opview.key(v.owner.operation): v.owner.operation for v in read}
            for inner in inside:  # they are erased with the op
                pending.pop(opview.key(inner), None)
                owners.pop(opview.key(inner), None)
            op.erase()
            pending.update(owners)


def is_unread(op: mlir.Operation) -> bool:
    """Whether the results of an op are unused. No rlx op has side effects."""
    for result in op.results:
        for _ in result.uses:
            return False
    return True


def set_stage(module: mlir.Module, stage: str) -> None:
    """Set the stage of a module: `"hir"`, `"mir"` or `"lir"`. At `"lir"`, the fusion policy is removed."""
    with mlir.entered():
        attributes = module.operation.attributes
        attributes["rlx.stage"] = mlir.ir.StringAttr.get(stage)
        if stage == "lir" and POLICY_ATTRIBUTE in attributes:
            del attributes[POLICY_ATTRIBUTE]


def replace_body(module: mlir.Module, other: mlir.Module) -> None:
    """Replace the ops and the attributes of a module by those of another one, which is empty then.

    The ops are of other dialects, so all that rlx has declared of the module (stage, policy, mesh) goes.
    """
    for op in list(module.body.operations):
        op.operation.erase()
    end = mlir.ir.InsertionPoint(module.body)
    for op in list(other.body.operations):
        op.operation.detach_from_parent()
        end.insert(op)
    attributes = module.operation.attributes
    for name in [name for name, _ in attributes.items() if name.startswith("rlx.")]:
        del attributes[name]
    for name, value in other.operation.attributes.items():
        attributes[name] = value


def has_blocks(module: mlir.Module) -> bool:
    """Whether a module has blocks, the ops of HIR."""
    return bool(collect(module, block_names()))


def block_names() -> frozenset[str]:
    """Return the names of the ops that are allowed only at HIR."""
    return frozenset(name for name, spec in registry.SPECS.items() if spec.stage == "hir")
