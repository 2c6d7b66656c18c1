"""Lowering of ops that a kernel implements: calls of functions without a body, which passes of the target implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.shape import Shape
from rlx.kernels.case import unknown_dims
from rlx.kernels.declaration import CASE, FUNCTION_PREFIX, encoded_case

if TYPE_CHECKING:
    from rlx.targets.linalg.loops import LoopEmitter
    from rlx.targets.lowering.table import Lowered


def call_kernel(
    low: LoopEmitter, op: mlir.Operation, results: Sequence[Shape], operands: Sequence[Lowered]
) -> list[mlir.Value]:
    """Emit a call of the function of a kernel, and declare the function if the module lacks it.

    The function takes the operands, then each different size that is not known, as an index.

    Args:
        low: The emitter.
        op: The op, with the name of its kernel.
        results: The result shapes.
        operands: The lowered operands, and the lowered values from outside that the regions of the op use.
    """
    func = mlir.dialect("func")
    sizes = [low.size(d) for d in unknown_dims([*(v.shape for v in operands), *results])]
    values, types = [*(v.value for v in operands), *sizes], [low.type_of(shape) for shape in results]
    name = _declared(low, op, mlir.ir.FunctionType.get([v.type for v in values], types))
    return list(func.CallOp(types, name, values).results)


def _declared(low: LoopEmitter, op: mlir.Operation, signature: mlir.Type) -> str:
    """Return the name of the function for a kernel's case. Ops of the same case share one function."""
    case, names = encoded_case(op), set[str]()
    module: Any = low.entry.owner
    while module.operation.parent is not None:
        module = module.operation.parent
    block = module.operation.regions[0].blocks[0]
    for function in block.operations:
        attributes = function.operation.attributes
        if CASE in attributes and attributes[CASE] == case:
            return attributes["sym_name"].value
        if "sym_name" in attributes:
            names.add(attributes["sym_name"].value)
    kernel = "".join(c if c.isalnum() else "_" for c in opview.kernel_of(op) or "")
    name = next(n for i in range(len(names) + 1) if (n := f"{FUNCTION_PREFIX}{kernel}_{i}") not in names)
    point = mlir.ir.InsertionPoint.at_block_begin(block)
    function = mlir.dialect("func").FuncOp(name, signature, visibility="private", ip=point)
    function.attributes[CASE] = case
    return name
