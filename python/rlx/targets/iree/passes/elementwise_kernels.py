"""`rlx-iree-elementwise-kernels`: regions of elementwise ops between kernels, as kernels."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.op.signature import functions
from rlx.kernels.choice import KernelChoice
from rlx.kernels.cpu_model import cpu_model
from rlx.kernels.regions import REGION, make_regions
from rlx.passes.rewrite import decompose_all
from rlx.targets.iree.passes.kernels import ChooseKernels, mark


@dataclass(frozen=True)
class ElementwiseKernels(ChooseKernels, name="rlx-iree-elementwise-kernels"):
    """Join elementwise ops between kernels in regions, and mark them with the name of their kernel.

    IREE compiles elementwise ops for their sizes, one executable for each, while regions of all sizes share a kernel. Other
    elementwise ops are left to IREE, which fuses them with the ops that compute their operands or read their results.
    """

    def run(self, module: mlir.Module) -> None:
        cpu, choice = cpu_model(self.cpu), KernelChoice.parse(self.choice)
        if REGION not in choice.ops():
            return
        with mlir.entered():
            blocks = [function.entry_block for function in functions(module) if not function.is_external]
            regions = [region for block in blocks for region in make_regions(block, self.name)]
            for region in regions:
                mark(region, cpu, choice)
            if any(opview.kernel_of(region) is None for region in regions):
                decompose_all(module, {REGION})
