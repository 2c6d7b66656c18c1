"""A module of rlx functions, lowered to StableHLO function by function."""

from __future__ import annotations

from rlx import mlir
from rlx.ir import opview
from rlx.ir.dim import symbols as symbols_of
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import shape_of
from rlx.ir.signature import bodies, read_arguments
from rlx.lower.stablehlo.emitter import Emitter, tensor_type
from rlx.lower.stablehlo.rules import TABLE
from rlx.lower.table import empty_module


def lower_module(module: mlir.Module) -> mlir.Module:
    """A new module of StableHLO ops with the same functions: all that is an argument stays one, states among them.

    Args:
        module: A module whose ops are all claimed, and whose sizes are static.

    Raises:
        UnsupportedError: An op has no rule, or a size is a symbol.
    """
    mlir.stablehlo()
    check_module(module)
    with mlir.entered():
        lowered = empty_module(module)
        for function in bodies(module):
            _lower_function(function, lowered)
        return lowered


def check_module(module: mlir.Module) -> None:
    """Every rlx op of the module has a rule, and every size is static.

    Raises:
        UnsupportedError: It lists every op that has none, with its location, or the symbols.
    """
    TABLE.check(module)
    symbols: set[str] = set()
    for function in bodies(module):
        for argument in function.arguments:
            symbols.update(shape_of(argument).symbols)
        for op in opview.operations(function.entry_block):
            if opview.name_of(op) in TABLE.rules:
                symbols.update(_symbols_in_attributes(op))
            for result in op.results:
                symbols.update(shape_of(result).symbols)
    if symbols:
        names = ", ".join(sorted(symbols))
        first = min(symbols)
        raise UnsupportedError(
            f"StableHLO is lowered to with static sizes, and the size of {names} is a symbol",
            hint=f'bind it: --bind={first}=128, bind={{"{first}": 128}}, or the pass rlx-bind{{{first}=128}}',
        )


def _symbols_in_attributes(op: mlir.Operation) -> set[str]:
    """Symbols of sizes that an op has; of some, such as `dim_size`, they need be no result's."""
    spec, given = opview.card_of(op).spec, opview.attributes_of(op)
    sizes = [d for a in spec.attributes if a.kind == "dims" for d in given[a.name] or ()]
    return set[str]().union(*map(symbols_of, sizes))


def _lower_function(function: mlir.FuncOp, into: mlir.Module) -> None:
    ir, func = mlir.ir, mlir.dialect("func")
    shapes = [a.shape for a in read_arguments(function)]
    operations = function.entry_block.operations
    results = [shape_of(v) for v in operations[len(operations) - 1].operands]
    signature = ir.FunctionType.get([tensor_type(s) for s in shapes], [tensor_type(s) for s in results])
    target = func.FuncOp(function.name.value, signature, ip=ir.InsertionPoint(into.body), loc=function.location)
    block = target.add_entry_block([ir.Location.name(a.name) for a in read_arguments(function)])
    with ir.InsertionPoint(block):
        returned = TABLE.lower_block(Emitter(), function.entry_block, list(block.arguments))
        func.ReturnOp([r.value for r in returned])
