"""`rlx-iree-kernels`: chooses the ops that kernels implement."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op import opview
from rlx.kernels.choice import KernelChoice
from rlx.kernels.cpu_model import CpuModel, cpu_model, cpu_models
from rlx.kernels.declaration import case_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import collect


@dataclass(frozen=True)
class ChooseKernels(Pass, name="rlx-iree-kernels", idempotent=True):
    """Mark the ops that a kernel implements with the kernel's name, in the attribute `rlx.kernel`.

    The lowering turns them into calls, and rlx-iree-emit-kernels emits the kernels.
    """

    cpu: str = option("x86-64", "the CPU: its registers and instructions", choices=cpu_models())
    choice: str = option("auto", "auto, all or off, then +NAME or -NAME for single kernels or ops")

    def run(self, module: mlir.Module) -> None:
        cpu, choice = cpu_model(self.cpu), KernelChoice.parse(self.choice)
        with mlir.entered():
            for op in collect(module, choice.ops()):
                mark(op, cpu, choice)


def mark(op: mlir.Operation, cpu: CpuModel, choice: KernelChoice) -> None:
    """Add the name of the kernel that implements an op, if one does."""
    chosen = choice.kernel_for(opview.name_of(op), case_of(op, cpu))
    if chosen is not None:
        op.attributes[opview.KERNEL] = mlir.ir.StringAttr.get(chosen.name)
