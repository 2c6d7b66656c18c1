"""`rlx-iree-lend-weights`: lets kernels read large weights in the caller's memory, wherever it begins.

IREE imports the memory of a parameter only at multiples of 64 bytes, and copies what begins elsewhere: about half of all GGUF
files, whose tensors are at multiples of 32 bytes of the file. A buffer that the caller passes can be a part of another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.dtype import from_mlir
from rlx.ir.op.signature import functions, prepares
from rlx.kernels.declaration import CASE
from rlx.kernels.registry import find_kernel
from rlx.passes.base import option
from rlx.targets.iree.memory import COPY_LIMIT
from rlx.targets.iree.names import LENT_KEY, LENT_WEIGHTS, PARAMETER_SCOPE
from rlx.targets.iree.passes.base import IreePass, create, every
from rlx.targets.iree.passes.execution_order import KERNEL_CALL

_PARAMETER = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::'
_BUFFER_VIEW = "!hal.buffer_view"


@dataclass(frozen=True)
class LendWeights(IreePass, name="rlx-iree-lend-weights"):
    """Turn parameters that only kernels read into buffers that the runtime passes once, when the module is loaded.

    They are globals of the type `!hal.buffer_view`, and functions import them as they import arguments: without a copy. The
    function `LENT_WEIGHTS` stores all of them; its `iree.reflection` has their names in order. No other function may be called
    before, so IREE's own tools cannot run the module. Parameters that other ops read, or that are small, stay parameters of
    IREE, and so do those of modules without a kernel for weights as files store them.
    """

    limit: int = option(COPY_LIMIT, "the size in bytes up to which weights stay parameters", least=0)

    def run(self, module: mlir.Module) -> None:
        if not any(_reads_stored_weights(function) for function in functions(module)):
            return
        loads = _loads(module)
        lent = [
            op.operation
            for op in module.body.operations
            if _is_parameter(op.operation) and self._can_lend(op.operation, loads)
        ]
        if not lent:
            return
        names = [_key(declaration) for declaration in lent]
        for declaration in lent:
            _convert(declaration, loads[declaration.attributes["sym_name"].value])
        _add_setter(module, [declaration.attributes["sym_name"].value for declaration in lent], names)

    def _can_lend(self, declaration: Any, loads: dict[str, list[Any]]) -> bool:
        type_ = declaration.attributes["type"].value
        element = from_mlir(str(type_.element_type))
        if element.packed or element.nbytes(prod(type_.shape)) <= self.limit:
            return False
        users = loads.get(declaration.attributes["sym_name"].value, [])
        return all(_only_kernels_read(load) for load in users)


def _reads_stored_weights(function: mlir.FuncOp) -> bool:
    if CASE not in function.attributes:
        return False
    return find_kernel(function.attributes[CASE]["kernel"].value).stored_weights


def _is_parameter(op: Any) -> bool:
    return op.name == "util.global" and str(op.attributes.get("initial_value", "")).startswith(_PARAMETER)


def _loads(module: mlir.Module) -> dict[str, list[Any]]:
    """Return the ops that load each global, by its symbol."""
    result: dict[str, list[Any]] = {}
    for op in every(module, lambda op: op.name == "util.global.load"):
        result.setdefault(op.attributes["global"].value, []).append(op)
    return result


def _only_kernels_read(load: Any) -> bool:
    """Whether a load is at the start of a function that runs, and all uses of its value are kernels."""
    parent = load.parent
    if parent.name != "func.func" or prepares(parent.opview):
        return False
    return all(use.owner.operation.name == KERNEL_CALL for use in load.results[0].uses)


def _key(declaration: Any) -> str:
    """Return the name of a parameter."""
    text = str(declaration.attributes["initial_value"]).removeprefix(_PARAMETER)
    return mlir.ir.StringAttr(mlir.ir.Attribute.parse(text[: text.rindex('"') + 1])).value


def _convert(declaration: Any, loads: Sequence[Any]) -> None:
    """Change the type of a global to a buffer, and import it where it is loaded."""
    ir = mlir.ir
    view = ir.Type.parse(_BUFFER_VIEW)
    type_ = declaration.attributes["type"].value
    del declaration.attributes["initial_value"]
    declaration.attributes["type"] = ir.TypeAttr.get(view)
    declaration.attributes["is_mutable"] = ir.UnitAttr.get()
    for load in loads:
        with load.location, ir.InsertionPoint(load):
            buffer = create("util.global.load", [view], attributes={"global": load.attributes["global"]}).result
            attributes = {
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
                "target_encoding": ir.TypeAttr.get(type_),
            }
            tensor = create("hal.tensor.import", [type_], [buffer], attributes)
        load.results[0].replace_all_uses_with(tensor.result)
        load.erase()


def _add_setter(module: mlir.Module, symbols: Sequence[str], names: Sequence[str]) -> None:
    """Add the function `LENT_WEIGHTS`, which stores a buffer in each of these globals."""
    ir, func = mlir.ir, mlir.dialect("func")
    view = ir.Type.parse(_BUFFER_VIEW)
    with module.operation.location:
        place = ir.InsertionPoint(module.body)
        function = func.FuncOp(LENT_WEIGHTS, ir.FunctionType.get([view] * len(symbols), []), ip=place)
        function.attributes["iree.reflection"] = ir.DictAttr.get({LENT_KEY: ir.StringAttr.get(json.dumps(names))})
        with ir.InsertionPoint(function.add_entry_block()):
            for symbol, argument in zip(symbols, function.entry_block.arguments, strict=True):
                create(
                    "util.global.store", operands=[argument], attributes={"global": ir.FlatSymbolRefAttr.get(symbol)}
                )
            func.ReturnOp([])
