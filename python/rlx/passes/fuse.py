"""`rlx-fuse`: all fusions, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.attributes import suggestion
from rlx.ir.errors import PassError
from rlx.ir.signature import policy_of
from rlx.passes.base import Pass, option
from rlx.passes.fuse_matmul_bias_act import FuseMatmulBiasAct
from rlx.passes.fuse_residual_ln import FuseResidualLn
from rlx.passes.fuse_residual_rms_norm import FuseResidualRmsNorm
from rlx.passes.fuse_shared_input_matmul import FuseSharedInputMatmul
from rlx.passes.fuse_swiglu_dual_matmul import FuseSwigluDualMatmul
from rlx.passes.fusion import Fusion
from rlx.passes.pattern import rewrite

# The fusions of one group look for different ops, and run together. A later group looks for ops that an earlier one makes.
GROUPS: tuple[tuple[type[Fusion], ...], ...] = (
    (FuseMatmulBiasAct, FuseResidualLn, FuseResidualRmsNorm, FuseSwigluDualMatmul),
    (FuseSharedInputMatmul,),
)


@dataclass(frozen=True)
class Fuse(Pass, name="rlx-fuse"):
    """Make fused ops where their patterns match: runs every `rlx-fuse-*`.

    A module that declares the policy `fusable` (`GraphModule.with_fusion_policy`) is not changed.
    """

    only: tuple[str, ...] = option((), "the fused ops to make, such as those that a target claims; all when empty")

    def run(self, module: mlir.Module) -> None:
        fused_ops = {fusion.makes for group in GROUPS for fusion in group}
        for name in self.only:
            if name not in fused_ops:
                raise PassError(f"{self.name}: no fusion makes '{name}'{suggestion(name, fused_ops)}")
        if policy_of(module.operation) == "fusable":
            return
        for group in GROUPS:
            chosen = [fusion for fusion in group if not self.only or fusion.makes in self.only]
            patterns = [pattern for fusion in chosen for pattern in fusion.patterns]
            if patterns:
                rewrite(module, patterns, self.name)
