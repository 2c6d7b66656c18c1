"""Ops with regions: branches and loops of the function that runs the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.op.opview import name_of
from rlx.support.errors import UnsupportedError
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.rules import loops


@loops("if")
@loops("while")
@loops("scan")
def control(kernel: Any, result: Any, *operands: Any, **attributes: Any) -> None:
    """Emit nothing: the function that runs the program has the branches and loops."""
    raise AssertionError("ops with regions are not kernels")


@dataclass(frozen=True)
class RunRegion:
    """A region that the program runs.

    Attributes:
        number: The index of the region in its op.
        block: Its block.
        most: The largest number of times that it runs when its op runs; 1 if that is not known.
    """

    number: int
    block: mlir.Block
    most: int


def run_regions(op: mlir.Operation) -> list[RunRegion]:
    """Return the regions of an op that may run. A loop without iterations and an op without results have none.

    Raises:
        UnsupportedError: A `while` without a bound has a condition that no iteration changes.
    """
    if not len(op.results):
        return []
    values, kind = opview.attributes_of(op), name_of(op)
    if kind == "if":
        known = constant_of(op.operands[0])
        numbers = (0, 1) if known is None else (0,) if known else (1,)
        return [_region(op, number, 1) for number in numbers]
    if kind == "scan":
        (length,) = values["length"]
        return [_region(op, 0, length)] if length else []
    bound = values["max_iterations"]
    if bound is None:
        _check_ends(op)
    if bound == 0 or _is_false(op):
        return []
    return [_region(op, number, 1 if bound is None else bound) for number in (0, 1)]


def is_unbounded(op: mlir.Operation) -> bool:
    """Whether an op is a loop whose number of iterations has no bound."""
    return op.name == "rlx.while" and opview.attributes_of(op)["max_iterations"] is None


def run_blocks(block: mlir.Block, most: int = 1) -> Iterator[tuple[mlir.Block, int]]:
    """Yield a block, and the blocks of regions that run in it, each with the largest number of times that it runs."""
    yield block, most
    for op in ops_of(block):
        for region in run_regions(op) if len(op.regions) else ():
            yield from run_blocks(region.block, most * region.most)


def ops_of(block: mlir.Block) -> Iterator[mlir.Operation]:
    """Yield the ops of a block without its terminator."""
    for view in block.operations:
        if view.operation.name not in opview.TERMINATORS:
            yield view.operation


def _region(op: mlir.Operation, number: int, most: int) -> RunRegion:
    block = opview.block_of(op.regions[number])
    assert block is not None
    return RunRegion(number, block, most)


def condition_of(op: mlir.Operation) -> mlir.Value:
    """Return the value that decides whether the next iteration of a `while` runs."""
    return opview.yielded(_region(op, 0, 1).block)[0]


def _is_false(op: mlir.Operation) -> bool:
    known = constant_of(condition_of(op))
    return known is not None and not known


def _check_ends(op: mlir.Operation) -> None:
    """Check that the condition of a `while` without a bound may change from one iteration to the next.

    Raises:
        UnsupportedError: It is a constant, or a value from outside of the loop.
    """
    condition = condition_of(op)
    inside = opview.home_of(condition) == _region(op, 0, 1).block
    if not inside or (constant_of(condition) is not None and not _is_false(op)):
        raise UnsupportedError(
            "the condition of this while loop never changes, so the loop would never end",
            hint="compute the condition from the carries, or give max_iterations",
            location=describe(op.location) or None,
        )
