"""The lowering of a module of rlx functions to StableHLO."""

from __future__ import annotations

from contextlib import nullcontext

from rlx import mlir
from rlx.ir.dims.dim import symbols as symbols_of
from rlx.ir.op import opview
from rlx.ir.op.signature import bodies, declared_updates, mesh_of, read_arguments
from rlx.ir.shape import shape_of
from rlx.support.errors import UnsupportedError
from rlx.targets.lowering.table import empty_module
from rlx.targets.stablehlo.emitter import HloEmitter, tensor_type
from rlx.targets.stablehlo.rules import TABLE
from rlx.targets.stablehlo.sharding import Form, Shardings


def lower_module(module: mlir.Module, form: Form | None = None, *, cpu: bool = False) -> mlir.Module:
    """Return a new module of StableHLO ops with the same functions. All arguments, including states, stay arguments.

    Args:
        module: A module whose ops all have rules, and whose sizes are static.
        form: The form of the module's mesh and shardings, see `Shardings`. None omits them.
        cpu: Whether to emit the forms that XLA's CPU client runs fastest, see `HloEmitter`.

    Raises:
        UnsupportedError: An op has no rule, or a size is a symbol.
    """
    mlir.stablehlo()
    check_module(module)
    mesh = mesh_of(module.operation)
    shardings = None if form is None or mesh is None else Shardings(mesh, form)
    unknown = mlir.unregistered_dialects_allowed() if shardings and form == "sdy" else nullcontext()
    with mlir.entered(), unknown:
        lowered = empty_module(module)
        if shardings is not None:
            shardings.declare(lowered)
        for function in bodies(module):
            _lower_function(function, lowered, HloEmitter(shardings, cpu=cpu))
        return lowered


def check_module(module: mlir.Module) -> None:
    """Check that every rlx op of the module has a rule, and that every size is static.

    Raises:
        UnsupportedError: Some ops have no rule, or there are symbols. The error lists the ops with locations, or the symbols.
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
    """Symbols of sizes in the attributes of an op. In ops such as `dim_size`, they may not occur in the results."""
    spec, given = opview.card_of(op).spec, opview.attributes_of(op)
    sizes = [d for a in spec.attributes if a.kind == "dims" for d in given[a.name] or ()]
    return set[str]().union(*map(symbols_of, sizes))


def _lower_function(function: mlir.FuncOp, into: mlir.Module, emit: HloEmitter) -> None:
    ir, func = mlir.ir, mlir.dialect("func")
    arguments = read_arguments(function)
    shapes = [a.shape for a in arguments]
    operations = function.entry_block.operations
    results = [shape_of(v) for v in operations[len(operations) - 1].operands]
    signature = ir.FunctionType.get([tensor_type(s) for s in shapes], [tensor_type(s) for s in results])
    target = func.FuncOp(function.name.value, signature, ip=ir.InsertionPoint(into.body), loc=function.location)
    if "sym_visibility" in function.attributes:
        target.attributes["sym_visibility"] = function.attributes["sym_visibility"]
    block = target.add_entry_block([ir.Location.name(a.name) for a in arguments])
    with ir.InsertionPoint(block):
        returned = TABLE.lower_block(emit, function.entry_block, list(block.arguments))
        func.ReturnOp([r.value for r in returned])
    if (shardings := emit.shardings) is not None:
        by_name = {a.name: a.sharding for a in arguments}
        shardings.annotate(target, "arg_attrs", by_name.values())
        # The next value of a state has the sharding of the state.
        shardings.annotate(target, "res_attrs", [by_name.get(u or "") for u in declared_updates(function)])
