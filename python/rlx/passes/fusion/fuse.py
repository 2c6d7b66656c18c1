"""`rlx-fuse`: the fusions, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op.signature import policy_of
from rlx.passes.base import Pass, option
from rlx.passes.fusion.base import Fusion, chosen, fuse, misses
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

# Those of one group look for different ops, and run at once; a later group looks for what an earlier one makes, or leaves.
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
    """Make fused ops where their patterns are.

    It runs every `rlx-fuse-*` but `rlx-fuse-elementwise-regions`, or those that pay on a target, or those that are named. A
    module that declares the policy `fusable` (`GraphModule.with_fusion_policy`) stays as it is.
    """

    target: str = option("", "the target whose fusions to make, where they pay there")
    only: tuple[str, ...] = option((), "the fusions to make, such as swiglu or matmul-bias-act; all when empty")
    remarks: bool = option(False, "whether to say what is nearly there and does not fuse, as remarks")

    def run(self, module: mlir.Module) -> None:
        wanted, costs = chosen(self.name, FUSIONS, self.only, self.target)
        if policy_of(module.operation) == "fusable":
            return
        groups = [[fusion for fusion in group if fusion in wanted] for group in GROUPS]
        off = [fusion for fusion in FUSIONS.values() if fusion not in wanted]
        fuse(module, groups, self.name, off, costs)
        if self.remarks:
            for location, miss in misses(module, wanted):
                remark(location, f"{miss.fusion}: {miss.reason}", miss.hint)
