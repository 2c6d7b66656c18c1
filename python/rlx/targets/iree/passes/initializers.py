"""`rlx-iree-initializers`: moves the computation of parameters to load time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op.signature import bodies, declared_result_names, prepares
from rlx.targets.iree.names import symbol_of
from rlx.targets.iree.passes.base import IreePass, create


@dataclass(frozen=True)
class Initializers(IreePass, name="rlx-iree-initializers"):
    """Convert each function of rlx-outline-weights to an initializer that stores its results in their globals.

    This is one of the last passes, because the others work on functions. Initializers are placed before all functions: with
    initializers after functions, IREE 3.13 compiles a program that cannot be loaded ("slot 0 is out range of the declared
    binding capacity").
    """

    def run(self, module: mlir.Module) -> None:
        others = [function for function in bodies(module) if not prepares(function)]
        for function in filter(prepares, bodies(module) if others else ()):
            _initialize(function, mlir.ir.InsertionPoint(others[0]))


def _initialize(function: Any, place: Any) -> None:
    ir = mlir.ir
    names = declared_result_names(function)
    signature = ir.TypeAttr.get(ir.FunctionType.get([], []))
    with function.location:
        initializer = create("util.initializer", attributes={"function_type": signature}, regions=1, ip=place)
    for block in list(function.regions[0].blocks):
        block.append_to(initializer.regions[0])
    for block in initializer.regions[0].blocks:
        last = block.operations[len(block.operations) - 1].operation
        if last.name != "func.return":
            continue
        with last.location, ir.InsertionPoint(last):
            for name, value in zip(names, last.operands, strict=True):
                symbol = ir.FlatSymbolRefAttr.get(symbol_of("param", name))
                create("util.global.store", operands=[value], attributes={"global": symbol})
            create("util.return")
        last.erase()
    function.erase()
