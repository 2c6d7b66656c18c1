"""A module of rlx functions, lowered function by function."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.dim import LARGEST
from rlx.ir.errors import Error, ShapeError, UnsupportedError
from rlx.ir.location import describe
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import Argument, bodies, read_arguments, read_outputs
from rlx.lower.linalg.branches import to_branches
from rlx.lower.linalg.complex_products import meets_complex_numbers
from rlx.lower.linalg.kept import is_kept
from rlx.lower.linalg.loops import Loops, tensor_type
from rlx.lower.linalg.rules import RULES, Lowered
from rlx.lower.linalg.updates import overwritten, update_in_place

PARAMETER_SCOPE = "model"


def claimed_ops() -> frozenset[str]:
    """Names of the ops that have a rule here; all others must be decomposed first."""
    return frozenset(RULES)


def check_claimed(module: Any, claimed: Collection[str]) -> None:
    """Every rlx op of the module is claimed, and gives no more than can be addressed.

    Raises:
        UnsupportedError: It lists every op that is not, with its location.
        ShapeError: A tensor has more bytes than an i64 counts.
    """
    missing = []
    for function in bodies(module):
        for op in opview.operations(function.entry_block):
            if op.name not in ("func.return", "rlx.yield") and opview.name_of(op) not in claimed:
                missing.append(f"  {describe(op.location) or '<unknown>'}: rlx.{opview.name_of(op)}")
            for result in op.results:
                _check_size(shape_of(result), op.location)
    if missing:
        raise UnsupportedError(f"{len(missing)} ops have no lowering to linalg:\n" + "\n".join(missing))


def _check_size(shape: Shape, location: Any) -> None:
    if shape.is_static and prod(shape.static) * shape.dtype.itemsize > LARGEST:
        raise ShapeError(f"{shape} has more than {LARGEST} bytes", location=describe(location))


def lower_module(module: Any, *, for_iree: bool = False) -> Any:
    """A new module of linalg, tensor, arith and math ops with the same functions.

    Args:
        module: A module whose ops are all claimed.
        for_iree: Use IREE's `util` dialect: parameters and states become globals instead of arguments.

    Raises:
        UnsupportedError: An op has no rule.
    """
    check_claimed(module, claimed_ops())
    ir = mlir.ir
    with mlir.entered(), mlir.unregistered_dialects_allowed():
        lowered = ir.Module.create(loc=module.operation.location)
        symbol = module.operation.attributes
        if "sym_name" in symbol:
            lowered.operation.attributes["sym_name"] = symbol["sym_name"]
        global_names: dict[str, Any] = {}
        states: dict[str, Argument] = {}
        made = []
        for function in bodies(module):
            made.append(_lower_function(function, lowered, global_names if for_iree else None))
            states |= {a.name: a for a in read_arguments(function) if a.kind == "state"}
        if for_iree:
            in_place = update_in_place(lowered, made)
            for target in made:
                to_branches(target)
            for state in states.values():
                _declare_accessors(state, lowered, symbol_of(state) in in_place)
        return lowered


class _Environment:
    """Where lowered arguments come from: the function's own, or globals."""

    def __init__(self, module: Any, block: Any, globals_: dict[str, Any] | None):
        self.module, self.block, self.globals = module, block, globals_

    def is_global(self, argument: Argument) -> bool:
        return self.globals is not None and argument.kind != "input"

    def load(self, argument: Argument) -> Any:
        type_ = tensor_type(argument.shape)
        self.declare(argument, type_)
        return mlir.ir.Operation.create(
            "util.global.load",
            results=[type_],
            attributes={"global": mlir.ir.FlatSymbolRefAttr.get(symbol_of(argument))},
        ).result

    def store(self, argument: Argument, value: Any) -> None:
        mlir.ir.Operation.create(
            "util.global.store",
            operands=[value],
            attributes={"global": mlir.ir.FlatSymbolRefAttr.get(symbol_of(argument))},
        )

    def declare(self, argument: Argument, type_: Any) -> None:
        assert self.globals is not None
        name = symbol_of(argument)
        if name in self.globals:
            if self.globals[name] != type_:
                raise Error(f"{argument.kind} '{argument.name}' has two shapes: {self.globals[name]} and {type_}")
            return
        self.globals[name] = type_
        ir = mlir.ir
        declared = {
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(type_),
        }
        if argument.kind == "param":
            key = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"{argument.name}">'
            declared["initial_value"] = ir.Attribute.parse(f"{key} : {type_}")
        else:
            declared["is_mutable"] = ir.UnitAttr.get()
            declared["initial_value"] = _splat(argument, type_)
        ir.Operation.create("util.global", attributes=declared, ip=ir.InsertionPoint.at_block_begin(self.module.body))


def symbol_of(argument: Argument) -> str:
    """The global that holds a parameter or state."""
    return f"{argument.kind}.{argument.name}"


def state_getter(name: str) -> str:
    """The function that returns a state."""
    return f"rlx.get.{name}"


def state_setter(name: str) -> str:
    """The function that sets a state."""
    return f"rlx.set.{name}"


def _declare_accessors(state: Argument, into: Any, in_place: bool) -> None:
    """Functions by which the runtime reads and sets a state: in its place, if that is what the program does."""
    ir, func = mlir.ir, mlir.dialect("func")
    type_ = tensor_type(state.shape)
    for name, inputs, results in ((state_getter(state.name), [], [type_]), (state_setter(state.name), [type_], [])):
        accessor = func.FuncOp(name, ir.FunctionType.get(inputs, results), ip=ir.InsertionPoint(into.body))
        block = accessor.add_entry_block()
        environment = _Environment(into, block, {symbol_of(state): type_})
        with ir.InsertionPoint(block):
            if inputs:
                value = block.arguments[0]
                environment.store(state, overwritten(environment.load(state), value) if in_place else value)
                func.ReturnOp([])
            else:
                func.ReturnOp([environment.load(state)])


def _splat(argument: Argument, type_: Any) -> Any:
    ir = mlir.ir
    element = type_.element_type
    if isinstance(element, ir.FloatType):
        return ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, argument.init))
    if isinstance(element, ir.ComplexType):
        return ir.Attribute.parse(f"dense<({argument.init:e}, 0.0)> : {type_}")
    return ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(element, int(argument.init)))


def _lower_function(function: Any, into: Any, globals_: dict[str, Any] | None) -> Any:
    ir = mlir.ir
    arguments, outputs = read_arguments(function), read_outputs(function)
    kept = [a for a in arguments if globals_ is None or a.kind == "input"]
    results = [o for o in outputs if globals_ is None or o.updates is None]
    signature = ir.FunctionType.get([tensor_type(a.shape) for a in kept], [tensor_type(o.shape) for o in results])
    target = mlir.dialect("func").FuncOp(
        function.name.value, signature, ip=ir.InsertionPoint(into.body), loc=function.location
    )
    block = target.add_entry_block()
    low = Loops(block, for_iree=globals_ is not None)
    environment = _Environment(into, block, globals_)
    values: dict[Any, Any] = {}
    with ir.InsertionPoint(block):
        own = iter(block.arguments)
        loaded = [environment.load(a) if environment.is_global(a) else next(own) for a in arguments]
        low.bind_symbols([(v, a.shape) for v, a in zip(loaded, arguments, strict=True)])
        returned = _lower_block(low, function.entry_block, loaded, values)
        _finish(environment, arguments, outputs, returned)
    return target


def _finish(environment: _Environment, arguments: list[Argument], outputs: list[Any], returned: list[Any]) -> None:
    results = []
    for output, value in zip(outputs, returned, strict=True):
        state = next((a for a in arguments if a.name == output.updates), None)
        if state is not None and environment.is_global(state):
            environment.store(state, value)
        else:
            results.append(value)
    mlir.dialect("func").ReturnOp(results)


def _lower_block(low: Loops, block: Any, arguments: Sequence[Any], values: dict[Any, Any]) -> list[Any]:
    """Emit a block's ops at the insertion point, and give what it returns or yields.

    Args:
        low: Builds.
        block: The block.
        arguments: What stands for its arguments.
        values: Lowered values by their rlx values; those of the block are added.
    """
    values.update(zip(block.arguments, arguments, strict=True))
    *body, end = block.operations
    for op in body:
        with op.location:
            _lower_op(low, op.operation, values)
    return [values[v] for v in end.operation.operands]


def _lower_op(low: Loops, op: Any, values: dict[Any, Any]) -> None:
    operands = opview.operands_of(op, [Lowered(values[v], shape_of(v)) for v in op.operands])
    shapes: list[Shape] = [shape_of(r) for r in op.results]
    given = opview.attributes_of(op)
    if len(op.regions):
        # A rule may lower a region more than once; each time its values are new.
        given["regions"] = tuple(partial(_lower_region, low, opview.block_of(region), values) for region in op.regions)
    results = RULES[opview.name_of(op)](low, shapes, *operands, **given)
    results = results if isinstance(results, tuple) else (results,)
    if meets_complex_numbers(op) or is_kept(op):
        results = (low.materialised(results[0], shapes[0].dims),)
    values.update(zip(op.results, results, strict=True))


def _lower_region(low: Loops, block: Any, values: dict[Any, Any], *arguments: Any) -> list[Any]:
    return _lower_block(low, block, arguments, dict(values))
