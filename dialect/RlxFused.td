//===- RlxFused.td - Fused ops: their decomposition is their definition -----------------------===//

#ifndef RLX_FUSED_TD
#define RLX_FUSED_TD

include "RlxEnums.td"

def RLX_FusedMatmulBiasActOp : RLX_Op<"fused_matmul_bias_act", "fused"> {
  let summary = "activation(x·w + bias)";
  let description = [{`x […, M, K]`, `w [K, N]`, `bias [N]`; no `activation` is the identity.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedSwigluOp : RLX_Op<"fused_swiglu", "fused"> {
  let summary = "up·silu(gate) of the two halves of the last axis";
  let description = [{`x […, 2N]` gives `[…, N]`. The first half is `up`, the second `gate`; `gate_first` swaps them.}];
  let arguments = (ins RLX_FloatTensor:$x, DefaultValuedAttr<BoolAttr, "false">:$gate_first);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedResidualLayerNormOp : RLX_Op<"fused_residual_layer_norm", "fused"> {
  let summary = "layer_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedResidualRmsNormOp : RLX_Op<"fused_residual_rms_norm", "fused"> {
  let summary = "rms_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_FUSED_TD
