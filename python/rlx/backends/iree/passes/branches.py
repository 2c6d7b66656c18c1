"""`rlx-iree-branches`: turns loops and choices over tensors into branches between the blocks of a function.

IREE's code for `scf` ops outside of its kernels is wrong in some cases: if carries share a buffer, the first step uses the
offset of a later step, and the sizes of the results of a choice inside of a loop are not known. Its code for blocks with
arguments is correct. Quirk: `scf-outside-kernels`.
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
    """Turn the loops and choices of functions into branches between blocks, for IREE; those inside of other ops stay."""

    def run(self, module: Any) -> None:
        for function in bodies(module):
            _to_branches(function)


def _to_branches(function: Any) -> None:
    blocks, index = function.regions[0].blocks, 0
    while index < len(blocks):  # every replacement adds blocks after this one
        structured = (op.operation for op in blocks[index].operations if op.operation.name in _REPLACED)
        first = next(structured, None)
        if first is None:
            index += 1
        else:
            _replace(first, blocks, index)


def _replace(op: Any, blocks: Any, index: int) -> None:
    """Replace an op by a branch at the end of its block; the ops after it are moved to a new block."""
    with op.location:
        block = blocks[index]
        following_block = _new_block(block, [r.type for r in op.results])
        operations = [o.operation for o in block.operations]
        for following_op in operations[operations.index(op) + 1 :]:
            following_block.append(following_op)
        num_blocks = len(blocks)
        for inner in [b for region in op.regions for b in region.blocks]:
            inner.append_to(block.region)
        # The bindings still treat `inner` as a block of the op, so take the blocks from the function again.
        _REPLACED[op.name](op, block, [blocks[i] for i in range(num_blocks, len(blocks))], following_block)
    for result, argument in zip(op.results, following_block.arguments, strict=True):
        result.replace_all_uses_with(argument)
    op.erase()


def _new_block(after: Any, types: Sequence[Any]) -> Any:
    return after.create_after(*types, arg_locs=[mlir.ir.Location.current] * len(types))


def _branch(block: Any, target: Any, values: Sequence[Any]) -> None:
    with mlir.ir.InsertionPoint(block):
        mlir.dialect("cf").BranchOp(list(values), target)


def _end(block: Any) -> list[Any]:
    """Erase the terminator of a block; returns its operands."""
    terminator = block.operations[len(block.operations) - 1].operation
    operands = list(terminator.operands)
    terminator.erase()
    return operands


def _for(op: Any, block: Any, inner: Sequence[Any], following_block: Any) -> None:
    arith, cf = mlir.dialect("arith"), mlir.dialect("cf")
    (body,), (start, stop, stride, *initial) = inner, op.operands
    head = _new_block(block, [v.type for v in (start, *initial)])
    _branch(block, head, [start, *initial])
    with mlir.ir.InsertionPoint(head):
        step, *carries = head.arguments
        continues = arith.cmpi(arith.CmpIPredicate.slt, step, stop)
        cf.CondBranchOp(continues, [step, *carries], carries, body, following_block)
    next_carries = _end(body)
    with mlir.ir.InsertionPoint(body):
        step = arith.addi(body.arguments[0], stride)
    _branch(body, head, [step, *next_carries])


def _while(op: Any, block: Any, inner: Sequence[Any], following_block: Any) -> None:
    condition_block, body = inner
    _branch(block, condition_block, op.operands)
    condition, *carries = _end(condition_block)
    with mlir.ir.InsertionPoint(condition_block):
        mlir.dialect("cf").CondBranchOp(condition, carries, carries, body, following_block)
    _branch(body, condition_block, _end(body))


def _if(op: Any, block: Any, inner: Sequence[Any], following_block: Any) -> None:
    for branch in inner:
        _branch(branch, following_block, _end(branch))
    then, otherwise = (*inner, following_block)[:2]
    with mlir.ir.InsertionPoint(block):
        mlir.dialect("cf").CondBranchOp(op.operands[0], [], [], then, otherwise)


_REPLACED = {"scf.for": _for, "scf.while": _while, "scf.if": _if}
