//===- RlxFused.td - Fused ops: their decomposition is their definition -----------------------===//

#ifndef RLX_FUSED_TD
#define RLX_FUSED_TD

include "RlxEnums.td"

def RLX_FusedMatmulBiasActOp : RLX_Op<"fused_matmul_bias_act", "fused", [RLX_IsProduct]> {
  let summary = "activation(x·w + bias)";
  let description = [{`x […, M, K]`, `w [K, N]`, `bias [N]`; no `activation` is the identity.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedSwigluOp : RLX_Op<"fused_swiglu", "fused", [RLX_IsLocal]> {
  let summary = "up·silu(gate) of the two halves of the last axis";
  let description = [{
    `x […, 2N]` gives `[…, N]`. The first half is `up`, the second `gate`; `gate_first` swaps them.
  }];
  let arguments = (ins RLX_FloatTensor:$x, DefaultValuedAttr<BoolAttr, "false">:$gate_first);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedResidualLayerNormOp : RLX_Op<"fused_residual_layer_norm", "fused", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "layer_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedResidualRmsNormOp : RLX_Op<"fused_residual_rms_norm", "fused", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "rms_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedAttentionBlockOp : RLX_Op<"fused_attention_block", "fused", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Attention with its projections: q, k and v from one product, and the way out";
  let description = [{
    `qkv = hidden·qkv_w (+ qkv_b)`, split into thirds q, k, v; `rope` of q and k where `cos` and `sin` are
    given; `attention` of kind `custom` with `mask`;
    `result = attended·out_w (+ out_b)`. `hidden [B, S, E]`, `qkv_w [E, 3·H·D]`, `out_w [H·D, E]`, `mask [B, S]`
    or as `attention` has it; both biases or none;
    `cos` and `sin [S, D/2]`.
  }];
  let arguments = (ins RLX_FloatTensor:$hidden, RLX_FloatTensor:$qkv_w, RLX_FloatTensor:$out_w, RLX_OrderedTensor:$mask,
                       Optional<RLX_FloatTensor>:$qkv_b, Optional<RLX_FloatTensor>:$out_b,
                       Optional<RLX_FloatTensor>:$cos, Optional<RLX_FloatTensor>:$sin,
                       RLX_Count:$num_heads, RLX_Count:$head_dim);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedTransformerLayerOp : RLX_Op<"fused_transformer_layer", "fused", [
      RLX_IsProduct,
      AttrSizedOperandSegments
    ]> {
  let summary = "A post-norm encoder layer (BERT) in one op";
  let description = [{
    `h = ln1(hidden + attention_block(hidden))`; `result = ln2(h + activation(h·up_w (+ up_b))·down_w (+
    down_b))`, `attention_block` as `fused_attention_block`
    without positions. `hidden [B, S, E]`, `qkv_w [E, 3·H·D]`, `out_w [H·D, E]`, `up_w [E, F]`, `down_w [F, E]`,
    scales and shifts `[E]`; all four biases or none.
  }];
  let arguments = (ins RLX_FloatTensor:$hidden, RLX_FloatTensor:$qkv_w, RLX_FloatTensor:$out_w,
                       RLX_FloatTensor:$ln1_scale, RLX_FloatTensor:$ln1_shift,
                       RLX_FloatTensor:$up_w, RLX_FloatTensor:$down_w,
                       RLX_FloatTensor:$ln2_scale, RLX_FloatTensor:$ln2_shift, RLX_OrderedTensor:$mask,
                       Optional<RLX_FloatTensor>:$qkv_b, Optional<RLX_FloatTensor>:$out_b,
                       Optional<RLX_FloatTensor>:$up_b, Optional<RLX_FloatTensor>:$down_b,
                       RLX_Count:$num_heads, RLX_Count:$head_dim,
                       DefaultValuedAttr<RLX_NonNegative, "1e-12">:$eps1, DefaultValuedAttr<RLX_NonNegative, "1e-12">:$eps2,
                       DefaultValuedAttr<RLX_Activation, "\"gelu\"">:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_FUSED_TD
