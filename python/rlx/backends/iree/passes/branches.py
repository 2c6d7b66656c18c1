"""`rlx-iree-branches`: loops and choices over tensors become branches between the blocks of a function.

What IREE makes of `scf` ops outside of its kernels is wrong in places: where carries share a buffer, it takes the
offset that a later step has for that of the first, and it does not know the sizes of what a choice inside a loop gives.
It does the same well for blocks with arguments. Quirk: `scf-outside-kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.signature import bodies
from rlx.passes.base import Pass


@dataclass(frozen=True)
class Branches(Pass, name="rlx-iree-branches"):
    """Make branches between blocks of the loops and choices of functions, for IREE; those inside of other ops stay."""

    def run(self, module: Any) -> None:
        for function in bodies(module):
            _to_branches(function)


def _to_branches(function: Any) -> None:
    blocks, index = function.regions[0].blocks, 0
    while index < len(blocks):  # every replacement adds blocks behind this one
        structured = (op.operation for op in blocks[index].operations if op.operation.name in _REPLACED)
        first = next(structured, None)
        if first is None:
            index += 1
        else:
            _replace(first, blocks, index)


def _replace(op: Any, blocks: Any, index: int) -> None:
    """Replace an op, which ends its block now."""
    with op.location:
        block = blocks[index]
        rest = _new_block(block, [r.type for r in op.results])
        operations = [o.operation for o in block.operations]
        for later in operations[operations.index(op) + 1 :]:
            rest.append(later)
        before = len(blocks)
        for inner in [b for region in op.regions for b in region.blocks]:
            inner.append_to(block.region)
        # The bindings take a block for the op's until it is asked for again.
        _REPLACED[op.name](op, block, [blocks[i] for i in range(before, len(blocks))], rest)
    for result, argument in zip(op.results, rest.arguments, strict=True):
        result.replace_all_uses_with(argument)
    op.erase()


def _new_block(after: Any, types: Sequence[Any]) -> Any:
    return after.create_after(*types, arg_locs=[mlir.ir.Location.current] * len(types))


def _branch(block: Any, target: Any, values: Sequence[Any]) -> None:
    with mlir.ir.InsertionPoint(block):
        mlir.dialect("cf").BranchOp(list(values), target)


def _end(block: Any) -> list[Any]:
    """Take the terminator off a block; gives its operands."""
    terminator = block.operations[len(block.operations) - 1].operation
    operands = list(terminator.operands)
    terminator.erase()
    return operands


def _for(op: Any, block: Any, inner: Sequence[Any], rest: Any) -> None:
    arith, cf = mlir.dialect("arith"), mlir.dialect("cf")
    (body,), (start, stop, stride, *initial) = inner, op.operands
    head = _new_block(block, [v.type for v in (start, *initial)])
    _branch(block, head, [start, *initial])
    with mlir.ir.InsertionPoint(head):
        step, *carries = head.arguments
        again = arith.cmpi(arith.CmpIPredicate.slt, step, stop)
        cf.CondBranchOp(again, [step, *carries], carries, body, rest)
    following = _end(body)
    with mlir.ir.InsertionPoint(body):
        step = arith.addi(body.arguments[0], stride)
    _branch(body, head, [step, *following])


def _while(op: Any, block: Any, inner: Sequence[Any], rest: Any) -> None:
    before, after = inner
    _branch(block, before, op.operands)
    condition, *carries = _end(before)
    with mlir.ir.InsertionPoint(before):
        mlir.dialect("cf").CondBranchOp(condition, carries, carries, after, rest)
    _branch(after, before, _end(after))


def _if(op: Any, block: Any, inner: Sequence[Any], rest: Any) -> None:
    for chosen in inner:
        _branch(chosen, rest, _end(chosen))
    then, otherwise = (*inner, rest)[:2]
    with mlir.ir.InsertionPoint(block):
        mlir.dialect("cf").CondBranchOp(op.operands[0], [], [], then, otherwise)


_REPLACED = {"scf.for": _for, "scf.while": _while, "scf.if": _if}
