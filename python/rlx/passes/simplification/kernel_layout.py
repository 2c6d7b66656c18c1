"""`rlx-kernel-layout`: storage of convolution kernels in the order of axes that is fastest to read."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.op.signature import bodies
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass
from rlx.passes.rewrite import builder_before, collect
from rlx.passes.simplification.invariants import WeightValues, undoes_transpose

_KERNEL = 1  # the operand of `conv`


@dataclass(frozen=True)
class KernelLayout(Pass, name="rlx-kernel-layout", exact=True, idempotent=True):
    """Transpose kernels that depend only on parameters to `[spatial…, input, output]`, and back where they are used.

    Run it before rlx-outline-weights, which moves the first transpose into the function that runs at load time, and
    leaves the second in place. XLA reads kernels in that order: it adds another transpose, which cancels the second
    one. Without this pass, XLA transposes `[output, input, spatial…]` in every call, which takes two thirds of the time
    of ResNet-18.
    """

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            weights, block = WeightValues(function), function.entry_block
            kept: dict[mlir.Value, mlir.Value] = {}
            for op in collect(function.operation, ("conv",)):
                kernel = op.operands[_KERNEL]
                if kernel in weights and weights.roots(kernel) and opview.home_of(kernel) == block and _is_free(kernel):
                    _transpose(op, block, kept)


def _is_free(kernel: mlir.Value) -> bool:
    """Whether a kernel can be stored in another order, and is not yet."""
    is_back = isinstance(kernel, mlir.ir.OpResult) and undoes_transpose(kernel.owner.operation)
    return shape_of(kernel).is_static and not is_back


def _transpose(op: mlir.Operation, block: mlir.Block, kept: dict[mlir.Value, mlir.Value]) -> None:
    """Make a convolution read its kernel through the stored order, which is computed before all enclosing regions.

    Args:
        op: The convolution.
        block: The block of the function.
        kept: The kernels that are already stored in the other order.
    """
    kernel, outermost = op.operands[_KERNEL], op
    while outermost.parent is not None and outermost.block != block:
        outermost = outermost.parent.operation
    rank = len(op.results[0].type.shape)
    if kernel not in kept:
        before = builder_before(outermost, KernelLayout.name)
        kept[kernel] = before.emit("transpose", (before.tensor(kernel),), perm=(*range(2, rank), 1, 0)).value
    at = builder_before(op, KernelLayout.name)
    back = at.emit("transpose", (at.tensor(kept[kernel]),), perm=(rank - 1, rank - 2, *range(rank - 2)))
    op.operands[_KERNEL] = back.value
