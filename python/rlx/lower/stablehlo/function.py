"""A module of rlx functions, lowered to StableHLO function by function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.dim import symbols as symbols_of
from rlx.ir.errors import UnsupportedError
from rlx.ir.location import describe
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import bodies, read_arguments
from rlx.lower.stablehlo.emitter import Emitter, tensor_type
from rlx.lower.stablehlo.rules import RULES, Lowered


def claimed_ops() -> frozenset[str]:
    """Names of the ops that have a rule here; all others must be decomposed first."""
    return frozenset(RULES)


def lower_module(module: Any) -> Any:
    """A new module of StableHLO ops with the same functions: all that is an argument stays one, states among them.

    Args:
        module: A module whose ops are all claimed, and whose sizes are static.

    Raises:
        UnsupportedError: An op has no rule, or a size is a symbol.
    """
    mlir.stablehlo()
    check_module(module)
    ir = mlir.ir
    with mlir.entered():
        lowered = ir.Module.create(loc=module.operation.location)
        symbol = module.operation.attributes
        if "sym_name" in symbol:
            lowered.operation.attributes["sym_name"] = symbol["sym_name"]
        for function in bodies(module):
            _lower_function(function, lowered)
        return lowered


def check_module(module: Any) -> None:
    """Every rlx op of the module has a rule, and every size is static.

    Raises:
        UnsupportedError: It lists every op that has none, with its location, or the symbols.
    """
    missing: list[str] = []
    symbols: set[str] = set()
    for function in bodies(module):
        for argument in function.arguments:
            symbols.update(shape_of(argument).symbols)
        for op in opview.operations(function.entry_block):
            name = opview.name_of(op)
            if name not in (*RULES, "func.return", "yield"):
                missing.append(f"  {describe(op.location) or '<unknown>'}: rlx.{name}")
            elif name in RULES:
                symbols.update(_symbols_in_attributes(op))
            for result in op.results:
                symbols.update(shape_of(result).symbols)
    if missing:
        raise UnsupportedError(f"{len(missing)} ops have no lowering to StableHLO:\n" + "\n".join(missing))
    if symbols:
        names = ", ".join(sorted(symbols))
        first = min(symbols)
        raise UnsupportedError(
            f"StableHLO is lowered to with static sizes, and the size of {names} is a symbol",
            hint=f'bind it: --bind={first}=128, bind={{"{first}": 128}}, or the pass rlx-bind{{{first}=128}}',
        )


def _symbols_in_attributes(op: Any) -> set[str]:
    """Symbols of sizes that an op has; of some, such as `dim_size`, they need be no result's."""
    spec, given = opview.card_of(op).spec, opview.attributes_of(op)
    sizes = [d for a in spec.attributes if a.kind == "dims" for d in given[a.name] or ()]
    return set().union(*map(symbols_of, sizes))


def _lower_function(function: Any, into: Any) -> None:
    ir, func = mlir.ir, mlir.dialect("func")
    shapes = [a.shape for a in read_arguments(function)]
    operations = function.entry_block.operations
    results = [shape_of(v) for v in operations[len(operations) - 1].operands]
    signature = ir.FunctionType.get([tensor_type(s) for s in shapes], [tensor_type(s) for s in results])
    target = func.FuncOp(function.name.value, signature, ip=ir.InsertionPoint(into.body), loc=function.location)
    block = target.add_entry_block([ir.Location.name(a.name) for a in read_arguments(function)])
    arguments = [Lowered(v, s) for v, s in zip(block.arguments, shapes, strict=True)]
    with ir.InsertionPoint(block):
        returned = _lower_block(Emitter(), function.entry_block, arguments, {})
        func.ReturnOp([r.value for r in returned])


def _lower_block(emit: Emitter, block: Any, arguments: Sequence[Lowered], values: dict[Any, Lowered]) -> list[Lowered]:
    """Emit a block's ops at the insertion point, and give what it returns or yields.

    Args:
        emit: Builds.
        block: The block.
        arguments: What stands for its arguments.
        values: Lowered values by their rlx values; those of the block are added.
    """
    values.update(zip(block.arguments, arguments, strict=True))
    *body, end = block.operations
    for op in body:
        with op.location:
            _lower_op(emit, op.operation, values)
    return [values[v] for v in end.operation.operands]


def _lower_op(emit: Emitter, op: Any, values: dict[Any, Lowered]) -> None:
    operands = opview.operands_of(op, [values[v] for v in op.operands])
    shapes: list[Shape] = [shape_of(r) for r in op.results]
    given = opview.attributes_of(op)
    if len(op.regions):
        blocks = [opview.block_of(region) for region in op.regions]
        given["regions"] = tuple(b and partial(_lower_region, emit, b, values) for b in blocks)
    lowered = RULES[opview.name_of(op)](emit, shapes, *operands, **given)
    lowered = lowered if isinstance(lowered, tuple) else (lowered,)
    for shape, result in zip(shapes, lowered, strict=True):
        assert result.shape == shape, f"{op.name}: the rule gives {result.shape}, not {shape}"
    values.update(zip(op.results, lowered, strict=True))


def _lower_region(emit: Emitter, block: Any, values: dict[Any, Lowered], *arguments: Lowered) -> list[Lowered]:
    # A rule may lower a region more than once; each time its values are new.
    return _lower_block(emit, block, arguments, dict(values))
