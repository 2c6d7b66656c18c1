"""`rlx-fuse`: all fusions in their order."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op.signature import policy_of
from rlx.passes.base import Pass, option
from rlx.passes.fusion.base import Fusion, fuse, misses, selected_fusions
from rlx.passes.fusion.fuse_ada_layer_norm import FuseAdaLayerNorm
from rlx.passes.fusion.fuse_attention_block import FuseAttentionBlock
from rlx.passes.fusion.fuse_conv_bias_act import FuseConvBiasAct
from rlx.passes.fusion.fuse_gated_residual import FuseGatedResidual
from rlx.passes.fusion.fuse_matmul_bias_act import FuseMatmulBiasAct
from rlx.passes.fusion.fuse_matmul_residual import FuseMatmulResidual
from rlx.passes.fusion.fuse_residual_layer_norm import FuseResidualLayerNorm
from rlx.passes.fusion.fuse_residual_rms_norm import FuseResidualRmsNorm
from rlx.passes.fusion.fuse_rms_norm_reshape import FuseRmsNormReshape
from rlx.passes.fusion.fuse_shared_input_matmul import FuseSharedInputMatmul
from rlx.passes.fusion.fuse_swiglu import FuseSwiglu
from rlx.passes.fusion.fuse_swiglu_dual_matmul import FuseSwigluDualMatmul
from rlx.passes.fusion.fuse_transformer_layer import FuseTransformerLayer
from rlx.passes.fusion.remarks import remark

# The fusions of a group match different ops and run together. A later group matches ops that an earlier one creates or
# leaves.
GROUPS: tuple[tuple[type[Fusion], ...], ...] = (
    (
        *(FuseMatmulBiasAct, FuseConvBiasAct, FuseResidualLayerNorm, FuseResidualRmsNorm, FuseRmsNormReshape),
        *(FuseAdaLayerNorm, FuseGatedResidual, FuseSwigluDualMatmul, FuseSwiglu),
    ),
    (FuseSharedInputMatmul,),
    (FuseAttentionBlock,),
    (FuseTransformerLayer,),
    (FuseMatmulResidual,),
)
FUSIONS: dict[str, type[Fusion]] = {fusion.title(): fusion for group in GROUPS for fusion in group}


@dataclass(frozen=True)
class Fuse(Pass, name="rlx-fuse", idempotent=True):
    """Create fused ops where their patterns match.

    The pass runs every `rlx-fuse-*` except `rlx-fuse-elementwise-regions`, or only those that pay off on a target, or
    only those that are named. A module with the policy `fusable` (`GraphModule.with_fusion_policy`) is not changed.
    """

    target: str = option("", "the target whose fusions to apply, where they pay off")
    only: tuple[str, ...] = option((), "the fusions to apply, such as swiglu or matmul-bias-act; all when empty")
    remarks: bool = option(False, "whether to report near misses as remarks")

    def run(self, module: mlir.Module) -> None:
        wanted, costs = selected_fusions(self.name, FUSIONS, self.only, self.target)
        if policy_of(module.operation) == "fusable":
            return
        groups = [[fusion for fusion in group if fusion in wanted] for group in GROUPS]
        off = [fusion for fusion in FUSIONS.values() if fusion not in wanted]
        fuse(module, groups, self.name, off, costs)
        if self.remarks:
            for location, miss in misses(module, wanted):
                remark(location, f"{miss.fusion}: {miss.reason}", miss.hint)
