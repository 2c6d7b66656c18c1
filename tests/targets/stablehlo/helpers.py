"""Running functions that are built with an `HloEmitter`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx import mlir
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter, tensor_type
from rlx.targets.stablehlo.rules import Lowered
from rlx.targets.xla.client import XlaExecutable, to_device, to_host
from rlx.targets.xla.portable import to_portable


def run(function: Callable[..., Lowered], *arrays: np.ndarray) -> np.ndarray:
    """Compile a function of an emitter and values, and run it on arrays."""
    ir, func = mlir.ir, mlir.dialect("func")
    shapes = [Shape(a.shape, a.dtype) for a in arrays]
    types = [tensor_type(s) for s in shapes]
    with mlir.entered():
        module = ir.Module.create()
        main = func.FuncOp("main", ir.FunctionType.get(types, []), ip=ir.InsertionPoint(module.body))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            operands = [Lowered(v, s) for v, s in zip(block.arguments, shapes, strict=True)]
            result = function(HloEmitter(), *operands)
            func.ReturnOp([result.value])
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [result.value.type]))
    (found,) = XlaExecutable(to_portable(module))(to_device(arrays))
    return to_host(found)
