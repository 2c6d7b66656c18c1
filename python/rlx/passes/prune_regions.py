"""`rlx-prune-regions`: control flow without what nobody reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.builder import Builder
from rlx.ir.regions import Region
from rlx.ir.signature import functions
from rlx.passes.base import Pass
from rlx.passes.rewrite import builder_before

_LOOPS = ("scan", "while")
_PRUNED = ("checkpoint", "if", *_LOOPS)


@dataclass(frozen=True)
class PruneRegions(Pass, name="rlx-prune-regions"):
    """Take out of `if`, `while` and `scan` the results, carries and slices that nobody reads.

    A carry that only its own next value depends on is one of them.
    """

    def run(self, module: mlir.Module) -> None:
        for function in functions(module):
            for block in function.body:
                _prune(block)


def _prune(block: mlir.Block) -> None:
    """Prune the ops of a block, those behind first: what they drop is unread for those before, and for those inside."""
    for op in reversed([view.operation for view in block.operations if len(view.operation.regions)]):
        name = opview.name_of(op)
        if name in _PRUNED and not any(map(_is_read, op.results)):
            op.erase()
            continue
        new = _prune_loop(op) if name in _LOOPS else _prune_plain(op) if name in _PRUNED else op
        for region in new.regions:
            for inner in region.blocks:
                _prune(inner)


def _is_read(value: mlir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def _prune_plain(op: mlir.Operation) -> Any:
    """An op whose regions have no arguments, and yield its results."""
    keep = [_is_read(r) for r in op.results]
    return op if all(keep) else _rebuilt(op, list(op.operands), keep, [keep] * len(op.regions), {})


def _prune_loop(op: mlir.Operation) -> Any:
    """Carries come first in operands, arguments, yields and results; a scan has slices and stacks behind them."""
    is_scan = opview.name_of(op) == "scan"
    count = opview.attributes_of(op)["num_carries"] if is_scan else len(op.operands)
    body = op.regions[0 if is_scan else 1].blocks[0]
    read = [_is_read(r) for r in op.results]
    carries = read[:count]
    while True:
        wanted = [v for v, keep in zip(opview.yielded(body), [*carries, *read[count:]], strict=True) if keep]
        arguments = _reached(body, wanted)
        if not is_scan:
            condition = op.regions[0].blocks[0]
            of_condition = _reached(condition, opview.yielded(condition))
            arguments = [a or b for a, b in zip(arguments, of_condition, strict=True)]
        grown = [a or b for a, b in zip(carries, arguments[:count], strict=True)]
        if grown == carries:
            break
        carries = grown
    inputs = [*carries, *arguments[count:]]
    results = [*carries, *read[count:]]
    if all(inputs) and all(results):
        return op
    operands = _kept(op.operands, inputs)
    changed = {"num_carries": sum(carries)} if is_scan else {}
    yields = [results] if is_scan else [[True], results]
    return _rebuilt(op, operands, results, yields, changed, inputs)


def _kept(values: Any, keep: Sequence[bool]) -> list[Any]:
    return [v for v, flag in zip(values, keep, strict=True) if flag]


def _reached(block: mlir.Block, wanted: Sequence[Any]) -> list[bool]:
    """Which arguments of a block the wanted values depend on."""
    live = set(wanted)
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
    operands: list[Any],
    results: Sequence[bool],
    yields: Sequence[Sequence[bool]],
    changed: dict[str, Any],
    arguments: Sequence[bool] = (),
) -> Any:
    """Put an op in place of another that has some of its operands, results, yielded values and arguments of regions."""
    b = builder_before(op, "prune")
    stored = opview.attributes_of(op) | changed
    regions: list[Region] = []
    for region, keep in zip(op.regions, yields, strict=True):
        regions.append(_region(b, region.blocks[0], arguments, keep))
    tensors = [b.tensor(v) for v in operands]
    grouped: list[Any] = [tensors] if opview.name_of(op) in _LOOPS else tensors
    new = b.emit(opview.name_of(op), grouped, regions=regions, **stored)
    for old, tensor in zip(_kept(op.results, results), new, strict=True):
        old.replace_all_uses_with(tensor.value)
    op.erase()
    return new[0].value.owner.operation


def _region(b: Builder, block: mlir.Block, arguments: Sequence[bool], keep: Sequence[bool]) -> Any:
    """A region with a copy of a block that takes and yields less."""
    taken = list(arguments) or [True] * len(block.arguments)
    kept = [b.tensor(a).shape for a in _kept(block.arguments, taken)]
    # What is not taken is not read by anything that is yielded: the ops that read it are erased at once.
    return b.region(lambda *t: _pruned(b, block, taken, t, keep), kept)


def _pruned(
    b: Builder, block: mlir.Block, taken: Sequence[bool], tensors: Sequence[Any], keep: Sequence[bool]
) -> list[Any]:
    stand_ins = iter(tensors)
    arguments = [next(stand_ins) if flag else b.tensor(a) for a, flag in zip(block.arguments, taken, strict=True)]
    before = len(b.insertion_point.block.operations)
    yielded = _kept(b.inline(block, arguments), keep)
    values = {t.value for t in yielded}
    made = [view.operation for view in list(b.insertion_point.block.operations)[before:]]
    for op in reversed(made):
        if not any(r in values or _is_read(r) for r in op.results):
            op.erase()
    return yielded
