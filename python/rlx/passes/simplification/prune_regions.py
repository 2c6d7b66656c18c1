"""`rlx-prune-regions`: removal of unused values from control flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.regions import Region
from rlx.ir.op import opview
from rlx.ir.op.signature import functions
from rlx.passes.base import Pass
from rlx.passes.rewrite import builder_before

T = TypeVar("T")

_LOOPS = ("scan", "while")
_PRUNED = ("checkpoint", "if", *_LOOPS)


@dataclass(frozen=True)
class PruneRegions(Pass, name="rlx-prune-regions", exact=True, idempotent=True):
    """Remove results, carries and slices of `if`, `while` and `scan` that are not used.

    A carry is unused if only the next value of the same carry depends on it.
    """

    def run(self, module: mlir.Module) -> None:
        for function in functions(module):
            for block in function.body:
                while _prune(block):  # after an inner loop is pruned, the outer one may have more unused values
                    pass


def _prune(block: mlir.Block) -> bool:
    """Prune the ops of a block.

    Returns whether anything has changed. The last op is pruned first, because values that an op no longer uses may
    become unused.
    """
    changed = False
    for op in reversed([view.operation for view in block.operations if len(view.operation.regions)]):
        name = opview.name_of(op)
        if name in _PRUNED and not any(map(opview.is_used, op.results)):
            op.erase()
            changed = True
            continue
        new = _prune_loop(op) if name in _LOOPS else _prune_plain(op) if name in _PRUNED else op
        changed |= new is not op
        for region in new.regions:
            for inner in region.blocks:
                changed |= _prune(inner)
    return changed


def _prune_plain(op: mlir.Operation) -> mlir.Operation:
    """Prune an op whose regions have no arguments and yield its results."""
    keep = [opview.is_used(r) for r in op.results]
    return op if all(keep) else _rebuilt(op, list(op.operands), keep, [keep] * len(op.regions), {})


def _prune_loop(op: mlir.Operation) -> mlir.Operation:
    """Prune a loop. Operands, arguments, yields and results begin with the carries; slices and stacks of a scan follow."""
    is_scan = opview.name_of(op) == "scan"
    count = opview.attributes_of(op)["num_carries"] if is_scan else len(op.operands)
    body = op.regions[0 if is_scan else 1].blocks[0]
    used = [opview.is_used(r) for r in op.results]
    carries = used[:count]
    while True:
        needed = [v for v, keep in zip(opview.yielded(body), [*carries, *used[count:]], strict=True) if keep]
        arguments = _needed_arguments(body, needed)
        if not is_scan:
            condition = op.regions[0].blocks[0]
            in_condition = _needed_arguments(condition, opview.yielded(condition))
            arguments = [a or b for a, b in zip(arguments, in_condition, strict=True)]
        more_carries = [a or b for a, b in zip(carries, arguments[:count], strict=True)]
        if more_carries == carries:
            break
        carries = more_carries
    inputs = [*carries, *arguments[count:]]
    results = [*carries, *used[count:]]
    if all(inputs) and all(results):
        return op
    operands = _selected(op.operands, inputs)
    changed = {"num_carries": sum(carries)} if is_scan else {}
    yields = [results] if is_scan else [[True], results]
    return _rebuilt(op, operands, results, yields, changed, inputs)


def _selected(values: Iterable[T], keep: Sequence[bool]) -> list[T]:
    return [v for v, flag in zip(values, keep, strict=True) if flag]


def _needed_arguments(block: mlir.Block, values: Sequence[mlir.Value]) -> list[bool]:
    """Return for each argument of a block whether it is needed to compute some values of the block."""
    live = set(values)
    for view in reversed(list(block.operations)[:-1]):
        op = view.operation
        if any(r in live for r in op.results):
            live.update(op.operands)
            for region in op.regions:
                for inner in region.blocks:
                    for nested in opview.operations(inner):
                        live.update(nested.operands)
    return [a in live for a in block.arguments]


def _rebuilt(
    op: mlir.Operation,
    operands: list[mlir.Value],
    results: Sequence[bool],
    yields: Sequence[Sequence[bool]],
    changed: dict[str, Any],
    arguments: Sequence[bool] = (),
) -> mlir.Operation:
    """Replace an op by one with only some of its operands, results, yielded values and region arguments."""
    b = builder_before(op, "prune")
    stored = opview.attributes_of(op) | changed
    regions: list[Region] = []
    for region, keep in zip(op.regions, yields, strict=True):
        regions.append(_region(b, region.blocks[0], arguments, keep))
    tensors = [b.tensor(v) for v in operands]
    grouped: list[Any] = [tensors] if opview.name_of(op) in _LOOPS else tensors
    new = b.emit(opview.name_of(op), grouped, regions=regions, **stored)
    for old, tensor in zip(_selected(op.results, results), new, strict=True):
        old.replace_all_uses_with(tensor.value)
    op.erase()
    return new[0].value.owner.operation


def _region(b: Builder, block: mlir.Block, arguments: Sequence[bool], keep: Sequence[bool]) -> Region:
    """Return a region with a copy of a block that takes and yields only some of the values."""
    is_taken = list(arguments) or [True] * len(block.arguments)
    shapes = [b.tensor(a).shape for a in _selected(block.arguments, is_taken)]
    # The yielded values do not depend on dropped arguments, so `_pruned` erases the ops that use these.
    return b.region(lambda *t: _pruned(b, block, is_taken, t, keep), shapes)


def _pruned(
    b: Builder, block: mlir.Block, is_taken: Sequence[bool], tensors: Sequence[Tensor], keep: Sequence[bool]
) -> list[Tensor]:
    new_arguments = iter(tensors)
    arguments = [
        next(new_arguments) if flag else b.tensor(a) for a, flag in zip(block.arguments, is_taken, strict=True)
    ]
    first = len(b.insertion_point.block.operations)
    yielded = _selected(b.inline(block, arguments), keep)
    values = {t.value for t in yielded}
    copies = [view.operation for view in list(b.insertion_point.block.operations)[first:]]
    for op in reversed(copies):
        if not any(r in values or opview.is_used(r) for r in op.results):
            op.erase()
    return yielded
