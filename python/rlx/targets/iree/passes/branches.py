"""`rlx-iree-branches`: converts `scf` loops and `scf.if` on tensors to branches between the blocks of a function.

IREE's code for `scf` ops outside kernels is wrong in some cases: if carries share a buffer, the first step uses the offset of a
later step, and the sizes of the results of an `scf.if` inside a loop are unknown. Quirk: `scf-outside-kernels`.

IREE's code for blocks with arguments is correct except in two cases. A branch that forwards the same buffer or fence several
times may move the only reference away before the last time. `_branch` avoids this (quirk: `moved-away`). A branch that forwards
32-bit and 64-bit numbers may overwrite one before it is read. So all numbers that loops forward have type `index`, and
conditions are not forwarded (quirk: `numbers-overwritten`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op.signature import bodies
from rlx.targets.iree.passes.base import IreePass, behind_barrier, create, maker_of, source_of
from rlx.targets.iree.passes.copies import opaque_copy

_COUNT = "hal.devices.count"


@dataclass(frozen=True)
class Branches(IreePass, name="rlx-iree-branches"):
    """Convert `scf` loops and `scf.if` of functions to branches between blocks, for IREE, except inside other ops."""

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            _to_branches(function)


def _to_branches(function: Any) -> None:
    blocks, index = function.regions[0].blocks, 0
    while index < len(blocks):  # each replacement adds blocks after this one
        structured = (op.operation for op in blocks[index].operations if op.operation.name in _REPLACED)
        first = next(structured, None)
        if first is None:
            index += 1
        else:
            _replace(first, blocks, index)


def _replace(op: Any, blocks: Any, index: int) -> None:
    """Replace an op by a branch at the end of its block, and move the following ops to a new block."""
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
    for result, argument in zip(op.results, following_block.arguments, strict=False):
        result.replace_all_uses_with(argument)
    op.erase()


def _new_block(after: Any, types: Sequence[Any]) -> Any:
    return after.create_after(*types, arg_locs=[mlir.ir.Location.current] * len(types))


def _branch(block: Any, target: Any, values: Sequence[Any]) -> None:
    """Branch from the end of a block. A number and several tensors are forwarded by a branch that moves none of the tensors.

    The branch is conditional, and both destinations are the target, with different numbers. The condition always holds, but
    the compiler does not know this. IREE moves only the operands of the second destination.
    """
    cf, index = mlir.dialect("cf"), mlir.ir.IndexType.get()
    number = next((i for i, v in enumerate(values) if v.type == index), None)
    with mlir.ir.InsertionPoint(block):
        if number is None or not _are_several(values):
            cf.BranchOp(list(values), target)
            return
        arith, devices = mlir.dialect("arith"), _devices(block.owner)
        others = list(values)
        others[number] = arith.addi(devices, _index(1))
        always = arith.cmpi(arith.CmpIPredicate.ne, devices, _index(0))
        cf.CondBranchOp(always, list(values), others, target, target)


def _devices(function: Any) -> Any:
    """Return a positive number that is unknown to the compiler, from a function that is not used otherwise.

    The compiler merges blocks that differ only in the operands of their ops, and forwards these operands.
    """
    ir, module, entry = mlir.ir, function.operation.parent, function.regions[0].blocks[0]
    index = ir.IndexType.get()
    attributes = {
        "sym_name": ir.StringAttr.get("devices"),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([index], [index])),
        "inlining_policy": ir.Attribute.parse("#util.inline.never"),
    }
    identity = create("util.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.regions[0].blocks[0]))
    with ir.InsertionPoint(identity.regions[0].blocks.append(index)) as place:
        create("util.return", operands=[behind_barrier(place.block.arguments[0])])
    callee = ir.FlatSymbolRefAttr.get(ir.SymbolTable(module).insert(identity).value)
    first = entry.operations[0].operation
    if first.name != _COUNT:
        with first.location, ir.InsertionPoint.at_block_begin(entry):
            first = create(_COUNT, [index])
    return create("util.call", [index], [first.results[0]], {"callee": callee}).result


def _are_several(values: Sequence[Any]) -> bool:
    return sum(isinstance(v.type, mlir.ir.RankedTensorType) for v in values) > 1


def _index(value: int) -> Any:
    index = mlir.ir.IndexType.get()
    return mlir.dialect("arith").constant(index, mlir.ir.IntegerAttr.get(index, value))


def _end(block: Any) -> list[Any]:
    """Erase the terminator of a block, and return its operands."""
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
    number = []
    if _are_several(op.results):  # `_branch` then needs an integer, which becomes an argument of the following block
        with mlir.ir.InsertionPoint(block):
            number = [_index(0)]
        with mlir.ir.InsertionPoint.at_block_begin(following_block):
            given = following_block.add_argument(number[0].type, op.location)
            status = mlir.dialect("arith").index_cast(mlir.ir.IntegerType.get_signless(32), given)
            create("util.status.check_ok", [], [status], {"message": mlir.ir.StringAttr.get("no device")})
    for branch in inner:
        values = _end(branch)
        with mlir.ir.InsertionPoint(branch):
            # Quirk: `parts-in-branches`.
            values = [opaque_copy(v) if _is_part_of_global(v) else v for v in values]
        _branch(branch, following_block, [*values, *number])
    then, otherwise = (*inner, following_block)[:2]
    with mlir.ir.InsertionPoint(block):
        mlir.dialect("cf").CondBranchOp(op.operands[0], [], [], then, otherwise)


def _is_part_of_global(value: Any) -> bool:
    """Whether a value is a part of a parameter or state, or another view of it."""
    maker = maker_of(source_of(value))
    return source_of(value) != value and maker is not None and maker.name == "util.global.load"


_REPLACED = {"scf.for": _for, "scf.while": _while, "scf.if": _if}
