//===- RlxFused.td - Fused ops: their decomposition is their definition -----------------------===//

#ifndef RLX_FUSED_TD
#define RLX_FUSED_TD

include "RlxEnums.td"

def RLX_FusedMatmulBiasActOp : RLX_Op<"fused_matmul_bias_act", "fused", [
      RLX_IsProduct,
      RLX_When<RLX_IsWideRange, "activation", ["exp", "log", "rsqrt", "tan"]>
    ]> {
  let summary = "activation(x·w + bias)";
  let description = [{
    `x […, M, K]`, `w [K, N]`; `bias` is `[N]`, or any shape that broadcasts to the result. Without `activation` it is
    the identity.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedMatmulResidualOp : RLX_Op<"fused_matmul_residual", "fused", [RLX_IsProduct]> {
  let summary = "x·w (+ bias) + residual";
  let description = [{`x […, M, K]`, `w [K, N]`, `residual […, M, N]`; `bias` as in `fused_matmul_bias_act`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedConvBiasActOp : RLX_Op<"fused_conv_bias_act", "fused", [
      RLX_IsProduct,
      RLX_When<RLX_IsWideRange, "activation", ["exp", "log", "rsqrt", "tan"]>
    ]> {
  let summary = "activation(conv(x, w) + bias)";
  let description = [{`conv` with a `bias [O]` for each channel of its result. Without `activation` it is the identity.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias, RLX_Steps:$stride,
                       RLX_Amounts:$padding, RLX_Steps:$dilation, DefaultValuedAttr<RLX_Count, "1">:$groups,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedAdaLayerNormOp : RLX_Op<"fused_ada_layer_norm", "fused", [RLX_IsReduction]> {
  let summary = "A layer norm along the last axis, modulated: normal(x)·(1 + scale) + shift";
  let description = [{
    `normal` is a layer norm without weights. `scale` and `shift` broadcast to `x […, E]`, for example `[B, 1, E]`
    (Peebles and Xie, Scalable diffusion models with transformers, section 3.2).
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<RLX_NonNegative, "1e-6">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedGatedResidualOp : RLX_Op<"fused_gated_residual", "fused", [RLX_IsElementwise]> {
  let summary = "residual + gate·x";
  let description = [{`x` and `residual` have one shape, to which `gate` broadcasts, for example `[B, 1, E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$gate, RLX_FloatTensor:$residual);
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

def RLX_FusedResidualLayerNormOp : RLX_Op<"fused_residual_layer_norm", "fused", [RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded]> {
  let summary = "layer_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, RLX_FloatTensor:$shift,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedResidualRmsNormOp : RLX_Op<"fused_residual_rms_norm", "fused", [
      RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded,
      AttrSizedOperandSegments
    ]> {
  let summary = "rms_norm(x + residual (+ bias)) along the last axis";
  let description = [{`x` and `residual […, E]`; `bias`, `scale` and `shift [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, Optional<RLX_FloatTensor>:$bias,
                       RLX_FloatTensor:$scale, Optional<RLX_FloatTensor>:$shift,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedAttentionBlockOp : RLX_Op<"fused_attention_block", "fused_layers", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Attention with its projections: q, k and v from one product, and the output projection";
  let description = [{
    `qkv = hidden·qkv_w (+ qkv_b)`, split into thirds q, k, v; `rope` of q and k if `cos` and `sin` are given;
    `attention` of kind `mask_kind` with `mask`, which is present for the kinds `custom` and `bias`;
    `result = attended·out_w (+ out_b)`. `hidden [B, S, E]`, `qkv_w [E, 3·H·D]`, `out_w [H·D, E]`, `mask [B, S]` or
    any mask of `attention`; `cos` and `sin [S, D/2]`.
  }];
  let arguments = (ins RLX_FloatTensor:$hidden, RLX_FloatTensor:$qkv_w, RLX_FloatTensor:$out_w,
                       Optional<RLX_OrderedTensor>:$mask,
                       Optional<RLX_FloatTensor>:$qkv_b, Optional<RLX_FloatTensor>:$out_b,
                       Optional<RLX_FloatTensor>:$cos, Optional<RLX_FloatTensor>:$sin,
                       RLX_Count:$num_heads, RLX_Count:$head_dim,
                       DefaultValuedAttr<RLX_MaskKind, "\"custom\"">:$mask_kind);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FusedTransformerLayerOp : RLX_Op<"fused_transformer_layer", "fused_layers", [
      RLX_IsProduct,
      AttrSizedOperandSegments
    ]> {
  let summary = "A post-norm encoder layer (BERT) in one op";
  let description = [{
    `h = ln1(hidden + attention_block(hidden))`; `result = ln2(h + activation(h·up_w (+ up_b))·down_w (+ down_b))`,
    `attention_block` is `fused_attention_block` without positions. `hidden [B, S, E]`, `qkv_w [E, 3·H·D]`,
    `out_w [H·D, E]`, `up_w [E, F]`, `down_w [F, E]`, scales and shifts `[E]`; either all four biases or none.
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
