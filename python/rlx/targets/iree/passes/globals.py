"""`rlx-iree-globals`: converts parameters and states to globals of the module.

Weights that are arguments are packed for products in every call. Globals are packed once, when the program is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import from_mlir
from rlx.ir.op.attributes import elements_to_mlir
from rlx.ir.op.signature import (
    Declared,
    bodies,
    declared_arguments,
    declared_result_names,
    declared_updates,
    prepares,
)
from rlx.support.errors import CompileError, Error
from rlx.targets.iree.names import PARAMETER_SCOPE, state_getter, state_setter, symbol_of
from rlx.targets.iree.passes.base import IreePass, behind_barrier, create, maker_of, source_of
from rlx.targets.iree.passes.copies import opaque_copy
from rlx.targets.linalg.packing import PACKED


@dataclass(frozen=True)
class Globals(IreePass, name="rlx-iree-globals"):
    """Convert parameters and states to globals, for IREE.

    Functions load them at their start, and store the new values of states at their end. For each state, two functions are
    added that return and set its value.
    The results of functions of rlx-outline-weights are globals as well; rlx-iree-initializers stores them.
    """

    def run(self, module: mlir.Module) -> None:
        globals_ = _ModuleGlobals(module)
        for function in bodies(module):
            _rewrite(function, globals_)
        globals_.declare_accessors()


class _ModuleGlobals:
    """The globals of a module."""

    def __init__(self, module: Any):
        self.module = module
        self.types: dict[str, Any] = {}
        self.states: dict[str, Any] = {}  # the types of states, by the user's names
        # The parameters that are computed when the module is loaded.
        self.prepared = {name for f in bodies(module) if prepares(f) for name in declared_result_names(f)}

    def load(self, declared: Declared, type_: Any) -> Any:
        """Load a parameter or state. The first use declares its global."""
        name = symbol_of(declared.kind, declared.name)
        declared_type = self.types.get(name)
        if declared_type is None:
            self._declare(name, declared, type_)
        elif declared_type != type_:
            raise Error(f"{declared.kind} '{declared.name}' has two shapes: {declared_type} and {type_}")
        return _load(name, type_)

    def _declare(self, name: str, declared: Declared, type_: Any) -> None:
        ir = mlir.ir
        if not type_.has_static_shape:
            raise CompileError(
                f"parameter '{declared.name}' has a symbolic size, but IREE keeps parameters of known sizes only",
                hint="fix the symbol: Session.compile(bind={…}), --bind=SYMBOL=SIZE, or make it an input",
            )
        self.types[name] = type_
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(type_),
        }
        if declared.kind == "param" and declared.name not in self.prepared:
            scope, key = map(ir.StringAttr.get, (PARAMETER_SCOPE, declared.name))  # printed with escape sequences
            attributes["initial_value"] = ir.Attribute.parse(f"#flow.parameter.named<{scope}::{key}> : {type_}")
        elif declared.kind == "state":
            self.states[declared.name] = type_
            attributes["is_mutable"] = ir.UnitAttr.get()
            attributes["initial_value"] = _splat(declared.init, type_)
        create("util.global", attributes=attributes, ip=ir.InsertionPoint.at_block_begin(self.module.body))

    def declare_accessors(self) -> None:
        """Add the functions that the runtime uses to read and set states."""
        ir, func = mlir.ir, mlir.dialect("func")
        end = ir.InsertionPoint(self.module.body)
        for name, type_ in self.states.items():
            symbol = symbol_of("state", name)
            getter = func.FuncOp(state_getter(name), ir.FunctionType.get([], [type_]), ip=end)
            with ir.InsertionPoint(getter.add_entry_block()):
                func.ReturnOp([_load(symbol, type_)])
            setter = func.FuncOp(state_setter(name), ir.FunctionType.get([type_], []), ip=end)
            with ir.InsertionPoint(setter.add_entry_block()):
                _store(symbol, setter.entry_block.arguments[0])
                func.ReturnOp([])


def _load(name: str, type_: Any) -> Any:
    return create("util.global.load", [type_], attributes={"global": mlir.ir.FlatSymbolRefAttr.get(name)}).result


def _store(name: str, value: Any) -> None:
    create("util.global.store", operands=[value], attributes={"global": mlir.ir.FlatSymbolRefAttr.get(name)})


def _splat(value: float, type_: Any) -> Any:
    ir = mlir.ir
    element = type_.element_type
    if isinstance(element, ir.FloatType):
        return ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, value))
    if isinstance(element, ir.ComplexType):
        dtype = from_mlir(str(element))
        return elements_to_mlir(np.broadcast_to(np.array(value, dtype.numpy), type_.shape))
    return ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(element, int(value)))


def _rewrite(function: Any, globals_: _ModuleGlobals) -> None:
    """Remove all arguments except inputs from a function, and all results that update a state."""
    ir, block = mlir.ir, function.entry_block
    arguments, updates = declared_arguments(function), declared_updates(function)
    packed = [name.value for name in function.attributes[PACKED]] if PACKED in function.attributes else []
    with ir.InsertionPoint.at_block_begin(block):
        for argument, declared in zip(block.arguments, arguments, strict=True):
            if declared.kind != "input":
                loaded = globals_.load(declared, argument.type)
                # Otherwise the compiler would unpack it once, and keep both versions.
                argument.replace_all_uses_with(behind_barrier(loaded) if declared.name in packed else loaded)
    end = block.operations[len(block.operations) - 1].operation
    returned = list(end.operands)
    with end.location, ir.InsertionPoint(end):
        in_states = set[Any]()
        results = {source_of(value) for value, state in zip(returned, updates, strict=True) if state is None}
        for value, state in zip(returned, updates, strict=True):
            if state is None:
                continue
            symbol = symbol_of("state", state)
            # A copy, if the value is also a result and is not computed. Quirk: `stored-results`.
            if source_of(value) in results and _is_given(value, symbol):
                value = opaque_copy(value)
            in_states.add(value)
            _store(symbol, value)
        given = _without(returned, [u is not None for u in updates])
        # A copy, if the value is also stored in a state. Quirk: `stored-results`.
        mlir.dialect("func").ReturnOp([opaque_copy(v) if v in in_states else v for v in given])
    end.erase()
    is_global = [a.kind != "input" for a in arguments]
    for i in reversed(range(len(is_global))):
        if is_global[i]:
            block.erase_argument(i)
    results = _without(list(function.type.results), [u is not None for u in updates])
    type_ = ir.FunctionType.get([a.type for a in block.arguments], results)
    function.attributes["function_type"] = ir.TypeAttr.get(type_)
    for name in (
        "arg_attrs",
        PACKED,
        *(() if prepares(function) else ("res_attrs",)),
    ):  # the globals now have this information
        if name in function.attributes:
            del function.attributes[name]


def _is_given(value: Any, state: str) -> bool:
    """Whether a new value of a state may be an argument, a parameter or another state, or a part of one."""
    value = source_of(value)
    maker = maker_of(value)
    if maker is None:
        return True
    if maker.name == "scf.if":
        ends = (region.blocks[0].operations[-1].operation for region in maker.regions)
        return any(_is_given(end.operands[value.result_number], state) for end in ends)
    return maker.name == "util.global.load" and maker.attributes["global"].value != state


def _without(values: Iterable[Any], left_out: Iterable[bool]) -> list[Any]:
    return [value for value, is_left_out in zip(values, left_out, strict=True) if not is_left_out]
