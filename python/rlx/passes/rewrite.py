"""What passes are made of: plain walks, and ops replaced by what a function of tensors emits."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import as_results
from rlx.ir.errors import Error
from rlx.ir.location import describe, raised_at, within
from rlx.ir.shape import shape_of
from rlx.ir.signature import POLICY_ATTRIBUTE

# Levels of ops that decompose into other composite ops: a handful is usual.
_DEEPEST = 16


def builder_before(op: mlir.Operation, note: str) -> Builder:
    """A builder in front of an op, with the op's location.

    Args:
        op: New ops go before it.
        note: What makes them: the name of a block or a pass, added to the location.
    """
    return Builder(mlir.ir.InsertionPoint(op), within(op.location, note))


def collect(module: mlir.Module, names: Container[str] | None = None) -> list[Any]:
    """The rlx ops of a module in order, those in the regions of an op before it.

    Terminators are not among them: a region has its own as long as it is there, whatever happens to the other ops.

    Args:
        module: A module or any other op.
        names: Op names without prefix; None takes all.
    """
    found: list[Any] = []
    advance = mlir.ir.WalkResult.ADVANCE

    def visit(op: mlir.Operation) -> Any:
        name = op.name
        if not name.startswith("rlx.") or name in opview.TERMINATORS:
            return advance
        if names is None or opview.name_of(op) in names:
            found.append(op)
        return advance

    mlir.walk(module, visit)
    return found


def replace(op: mlir.Operation, values: Iterable[Any]) -> None:
    """Give all uses of an op's results to other values, and erase the op.

    Raises:
        Error: A value has another type than the result that it stands for.
    """
    results, values = list(op.results), list(values)
    check_types(op, values)
    for result, value in zip(results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def check_types(op: mlir.Operation, values: list[Any]) -> None:
    """Values that are to stand for the results of an op have their types.

    Raises:
        Error: They have not.
    """
    if [v.type for v in values] != [r.type for r in op.results]:
        expected = ", ".join(str(shape_of(r)) for r in op.results)
        got = ", ".join(str(shape_of(v)) for v in values)
        message = f"'rlx.{opview.name_of(op)}' gives {expected}, its replacement {got}"
        raise Error(message, location=describe(op.location))


def replace_with(op: mlir.Operation, function: Callable[..., Any], note: str, **extra: Any) -> None:
    """Replace an op by what a function of tensors emits before it.

    Args:
        op: An rlx op.
        function: Called with a builder and the operands as the op's record groups them (None for an absent
            optional one, a list for a variadic one); gives a tensor, or a tuple of them.
        note: What does it, for the locations of the new ops.
        extra: Keyword arguments of the function.

    Raises:
        Error: The function raised, or gave other types; the location is that of the op.
    """
    builder = builder_before(op, note)
    operands = opview.operands_of(op, [builder.tensor(v) for v in op.operands])
    results = instead_of(op, builder, lambda: function(builder, *operands, **extra))
    replace(op, [r.value if isinstance(r, Tensor) else r for r in results])


def instead_of(op: mlir.Operation, builder: Builder, function: Callable[[], Any]) -> tuple[Any, ...]:
    """What a function, such as a decomposition, emits to stand for an op: looked at, as it may be a user's.

    Args:
        op: An rlx op.
        builder: Where it emits.
        function: Gives a tensor, or a tuple of them.

    Raises:
        Error: It raised, or gave something else than the op gives; the location is that of the op.
    """
    name, place = f"'rlx.{opview.name_of(op)}'", describe(op.location)
    try:
        results = as_results(function())
    except Error as problem:
        if problem.location is not None:
            raise
        raise type(problem)(f"{name}: {problem.message}", location=place, hint=problem.hint) from None
    except Exception as problem:
        message = f"what stands for {name} raised {type(problem).__name__}: {problem}"
        raise Error(message, location=place, hint=raised_at(problem)) from problem
    for result in results:
        if not isinstance(result, (Tensor, mlir.ir.Value)):
            raise Error(f"what stands for {name} must be tensors, got {type(result).__name__}", location=place)
        if isinstance(result, Tensor) and result.builder is not builder:
            raise Error(f"what stands for {name} belongs to another graph", location=place)
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
    """Decompose every op of the given names, and what that emits, until none is left; how many there were.

    Raises:
        Error: A decomposition failed, or leads to its own op again.
    """
    count = 0
    level = 0
    while found := collect(module, names):
        if level == _DEEPEST:
            name, place = opview.name_of(found[0]), describe(found[0].location)
            raise Error(f"'rlx.{name}' decomposes into itself", location=place)
        for op in found:
            decompose(op)
        count += len(found)
        level += 1
    return count


def erase_dead(ops: Iterable[Any]) -> None:
    """Erase ops of ours without uses, and what is without uses then."""
    # Several objects may stand for one op, and none of them may be asked anything once that is erased: each op is pending once.
    pending = dict.fromkeys(ops)
    while pending:
        op, _ = pending.popitem()
        if registry.is_ours(op) and op.name not in opview.TERMINATORS and is_unread(op):
            owners = [v.owner.operation for v in op.operands if isinstance(v, mlir.ir.OpResult)]
            op.erase()
            pending.update(dict.fromkeys(owners))


def is_unread(op: mlir.Operation) -> bool:
    """Whether nobody reads what an op gives; no op of ours has side effects."""
    for result in op.results:
        for _ in result.uses:
            return False
    return True


def set_stage(module: mlir.Module, stage: str) -> None:
    """Declare a module's stage: `"hir"`, `"mir"` or `"lir"`, at which nothing is left for a fusion policy to choose."""
    with mlir.entered():
        attributes = module.operation.attributes
        attributes["rlx.stage"] = mlir.ir.StringAttr.get(stage)
        if stage == "lir" and POLICY_ATTRIBUTE in attributes:
            del attributes[POLICY_ATTRIBUTE]


def replace_body(module: mlir.Module, other: Any) -> None:
    """Give a module the ops of another one, which is left empty. They are of other dialects, and of no stage of ours."""
    for op in list(module.body.operations):
        op.operation.erase()
    end = mlir.ir.InsertionPoint(module.body)
    for op in list(other.body.operations):
        op.operation.detach_from_parent()
        end.insert(op)
    attributes = module.operation.attributes
    for name in ("rlx.stage", POLICY_ATTRIBUTE):
        if name in attributes:
            del attributes[name]


def has_blocks(module: mlir.Module) -> bool:
    """Whether HIR blocks are left."""
    return bool(collect(module, block_names()))


def block_names() -> frozenset[str]:
    """Names of the ops that stand at HIR only."""
    return frozenset(name for name, spec in registry.SPECS.items() if spec.stage == "hir")
