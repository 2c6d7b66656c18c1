"""The lowering of a module of rlx functions to linalg."""

from __future__ import annotations

from dataclasses import replace

from rlx import mlir
from rlx.ir.fitting import as_array_of
from rlx.ir.interface import Argument
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.op.signature import PREPARES, bodies, declare, prepares, read_arguments, read_outputs
from rlx.ir.shape import not_addressable, shape_of
from rlx.numerics.scalars import signless
from rlx.targets.linalg.loops import LoopEmitter, tensor_type
from rlx.targets.linalg.packing import PACKED, is_packed, pack_tensor, packed_type, unpack_tensor
from rlx.targets.linalg.rules import TABLE
from rlx.targets.lowering.table import empty_module


def lower_module(module: mlir.Module) -> mlir.Module:
    """Return a new module of linalg, tensor, scf, arith, math and complex ops with the same functions.

    Inputs, parameters and states are arguments, and the new values of states are results. The attributes that distinguish
    them (`rlx.kind`, `rlx.name`, `rlx.init`, `rlx.updates`) are kept. Parameters of less than 8 bits are packed:
    `rlx.packed` names them.

    Args:
        module: A module whose ops all have rules.

    Raises:
        UnsupportedError: An op has no rule.
        ShapeError: A tensor has more bytes than an i64 counts.
    """
    TABLE.check(module)
    _check_sizes(module)
    with mlir.entered():
        lowered = empty_module(module)
        for function in bodies(module):
            _lower_function(function, lowered)
        return lowered


def _check_sizes(module: mlir.Module) -> None:
    for function in bodies(module):
        for op in opview.operations(function.entry_block):
            for shape in map(shape_of, op.results):
                if not shape.is_addressable:
                    raise not_addressable(shape, location=describe(op.location))


def _lower_function(function: mlir.FuncOp, into: mlir.Module) -> None:
    ir, func = mlir.ir, mlir.dialect("func")
    arguments, outputs = read_arguments(function), read_outputs(function)
    # The results of a function that runs when the program is loaded are parameters as well.
    packs = [prepares(function) is not None and o.shape.dtype.packed for o in outputs]
    taken = [packed_type(a.shape) if is_packed(a) else tensor_type(a.shape) for a in arguments]
    given = [packed_type(o.shape) if p else tensor_type(o.shape) for o, p in zip(outputs, packs, strict=True)]
    signature = ir.FunctionType.get(taken, given)
    target = func.FuncOp(function.name.value, signature, ip=ir.InsertionPoint(into.body), loc=function.location)
    declare(target, map(_stored, arguments), outputs)
    for name in ("sym_visibility", PREPARES):
        if name in function.attributes:
            target.attributes[name] = function.attributes[name]
    if names := [ir.StringAttr.get(a.name) for a in arguments if is_packed(a)]:
        target.attributes[PACKED] = ir.ArrayAttr.get(names)
    block = target.add_entry_block()
    low = LoopEmitter(block)
    with ir.InsertionPoint(block):
        pairs = list(zip(block.arguments, arguments, strict=True))
        low.bind_symbols([(v, a.shape) for v, a in pairs if not is_packed(a)])
        values = [unpack_tensor(low, v, a.shape) if is_packed(a) else v for v, a in pairs]
        returned = TABLE.lower_block(low, function.entry_block, values)
        results = zip(returned, packs, strict=True)
        func.ReturnOp([pack_tensor(low, r.value, r.shape) if p else r.value for r, p in results])


def _stored(argument: Argument) -> Argument:
    """An argument with its initial value converted to the stored element type."""
    dtype = argument.shape.dtype
    if argument.kind != "state" or (not dtype.storage and dtype.kind != "unsigned"):
        return argument
    return replace(argument, init=float(signless(as_array_of(argument.init, dtype), dtype)))
