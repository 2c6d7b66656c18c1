"""What a lowered module needs for some targets beside the compiler's flags: IREE 3.13 gives wrong numbers without.

For CPUs see `emulation.py`. The rest was found on Vulkan (Mesa's lavapipe); the code for Metal has the same shape. Each is
checked by `tests/backends/test_vulkan.py`.
"""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.backends.iree.emulation import spell_out
from rlx.backends.iree.targets import Target

_REDUCING = ("linalg.matmul", "linalg.batch_matmul", "linalg.reduce")


def adapt(lowered: Any, target: Target) -> None:
    """Change a lowered module, in place, into what compiles rightly for a target."""
    spell_out(lowered, target.emulated)
    if not (target.device or target.fences_reductions):
        return
    with mlir.entered(), mlir.unregistered_dialects_allowed():
        if target.device:
            lowered.operation.attributes["hal.device.targets"] = mlir.ir.Attribute.parse(target.device)
        if target.fences_reductions:
            _fence_reductions(lowered)


def _fence_reductions(lowered: Any) -> None:
    """Compute the result of every reduction in memory before anything reads it.

    In the kernel of a reduction and of what is fused behind it, the threads that read the result do not wait for the
    one that writes it: `x - mean(x)` is wrong now and then.
    """
    found = []

    def visit(op: Any) -> Any:
        if _reduces(op):
            found.append(op)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(lowered, visit)
    for op in found:
        for result in op.results:
            _fence(result, op)


def _reduces(op: Any) -> bool:
    if not op.name.startswith("linalg."):
        return False
    if "iterator_types" in op.attributes:
        return "reduction" in str(op.attributes["iterator_types"])
    return op.name in _REDUCING or "conv" in op.name or "pooling" in op.name


def _fence(value: Any, owner: Any) -> None:
    """Have all that read a value read it from memory."""
    ir, create = mlir.ir, mlir.ir.Operation.create
    uses = list(value.uses)
    with owner.location, ir.InsertionPoint.after(owner):
        fenced = create("util.optimization_barrier", results=[value.type], operands=[value]).result
        axes = [i for i in range(value.type.rank) if value.type.is_dynamic_dim(i)]
        if axes:
            arith, tensor = mlir.dialect("arith"), mlir.dialect("tensor")
            sizes = [tensor.dim(value, arith.constant(ir.IndexType.get(), axis)) for axis in axes]
            fenced = create("flow.tensor.tie_shape", results=[value.type], operands=[fenced, *sizes]).result
    for use in uses:
        use.owner.operation.operands[use.operand_number] = fenced
