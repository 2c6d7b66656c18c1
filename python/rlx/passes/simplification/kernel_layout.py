"""`rlx-kernel-layout`: keeps the kernels of convolutions in the order of axes in which they are read fastest."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import opview
from rlx.ir.signature import bodies, read_arguments
from rlx.passes.base import Pass
from rlx.passes.rewrite import builder_before, collect
from rlx.passes.simplification.invariants import undoes_transpose

_KERNEL = 1  # the operand of `conv`


@dataclass(frozen=True)
class KernelLayout(Pass, name="rlx-kernel-layout", exact=True, idempotent=True):
    """Transpose kernels that depend on parameters alone to `[spatial…, input, output]` and, where they are read, back.

    It is run before rlx-outline-weights, which computes the first transpose once, when a program is loaded, and leaves the
    second one where it is. XLA reads kernels in that order: it transposes them back once more, and both together are nothing.
    Without it, XLA transposes `[output, input, spatial…]` in every call, which took half of the time of ResNet-18.
    """

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            weights = _weights(function)
            kernels: dict[mlir.Value, mlir.Value] = {}
            for op in collect(function.operation, ("conv",)):
                kernel = op.operands[_KERNEL]
                if kernel in weights and not (isinstance(kernel, mlir.ir.OpResult) and undoes_transpose(kernel.owner)):
                    _transpose(op, function.entry_block, kernels)


def _weights(function: mlir.FuncOp) -> set[mlir.Value]:
    """What depends on parameters alone, in the block of a function."""
    block = function.entry_block
    arguments = zip(block.arguments, read_arguments(function), strict=True)
    weights = {value for value, a in arguments if a.kind == "param" and a.shape.is_static}
    for op in block.operations:
        if len(op.operands) and not len(op.regions) and all(v in weights for v in op.operands):
            weights |= set(op.results)
    return weights


def _transpose(op: mlir.Operation, block: mlir.Block, kernels: dict[mlir.Value, mlir.Value]) -> None:
    """Let a convolution read its kernel by way of the other order, which is made in front of all regions that it is in."""
    kernel, outermost = op.operands[_KERNEL], op
    while outermost.parent is not None and opview.home_of(outermost.results[0]) != block:
        outermost = outermost.parent.operation
    rank = len(op.results[0].type.shape)
    if kernel not in kernels:
        before = builder_before(outermost, KernelLayout.name)
        kernels[kernel] = before.emit("transpose", (before.tensor(kernel),), perm=(*range(2, rank), 1, 0)).value
    at = builder_before(op, KernelLayout.name)
    back = at.emit("transpose", (at.tensor(kernels[kernel]),), perm=(rank - 1, rank - 2, *range(rank - 2)))
    op.operands[_KERNEL] = back.value
