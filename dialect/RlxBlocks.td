//===- RlxBlocks.td - HIR: blocks of models ---------------------------------------------------===//
//
// A block is one op that `rlx-lower-blocks` replaces by tensor ops. Weights are operands, so that
// they stay named parameters of the function.
//
//===------------------------------------------------------------------------------------------===//

#ifndef RLX_BLOCKS_TD
#define RLX_BLOCKS_TD

include "RlxEnums.td"

def RLX_LinearOp : RLX_Block<"linear", "linear"> {
  let summary = "activation(x·w (+ bias))";
  let description = [{`x […, K]`, `w [K, N]`, `bias [N]`, result `[…, N]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, Optional<RLX_FloatTensor>:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LinearFusedOp : RLX_Block<"linear_fused", "linear"> {
  let summary = "activation(x·w + bias), always as one fused op";
  let description = [{`x […, K]`, `w [K, N]`, `bias [N]`, result `[…, N]`. Lowers to `fused_matmul_bias_act` under every fusion policy.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_SharedLinearPairOp : RLX_Block<"shared_linear_pair", "linear"> {
  let summary = "x·w_first and x·w_second as one product";
  let description = [{`x […, K]`, `w_first [K, N]`, `w_second [K, P]`; results `[…, N]` and `[…, P]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w_first, RLX_FloatTensor:$w_second);
  let results = (outs RLX_FloatTensor:$first, RLX_FloatTensor:$second);
}

def RLX_SwigluFfnOp : RLX_Block<"swiglu_ffn", "linear"> {
  let summary = "((x·up)·silu(x·gate))·down";
  let description = [{`x […, E]`, `up` and `gate [E, F]`, `down [F, E]`; result `[…, E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$up, RLX_FloatTensor:$gate,
                       RLX_FloatTensor:$down);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ResidualRmsNormOp : RLX_Block<"residual_rms_norm", "linear"> {
  let summary = "rms_norm(x + residual) along the last axis";
  let description = [{`x` and `residual […, E]`, `scale` and `bias [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, RLX_FloatTensor:$scale,
                       RLX_FloatTensor:$bias, DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_DepthwiseConv1dCausalOp : RLX_Block<"depthwise_conv1d_causal", "sequence"> {
  let summary = "Causal convolution of every channel with its own kernel";
  let description = [{
    `x [B, S, C]`, `w [C, 1, 1, K]`, `left_pad [B, K-1, C]` (the inputs before the first);
    `result[b, s, c] = sum_k w[c, 0, 0, k]·concat(left_pad, x)[b, s + k, c]`, shape `[B, S, C]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$left_pad,
                       I64Attr:$kernel_size);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LlamaDecoderBlockOp : RLX_Block<"llama_decoder_block", "transformer"> {
  let summary = "Pre-norm decoder layer with rotary positions, grouped heads and SwiGLU";
  let description = [{
    `h = x + attention(rope(rms(x)·wq), rope(rms(x)·wk), rms(x)·wv)·wo`;
    `result = h + ((rms(h)·up)·silu(rms(h)·gate))·down`.

    `x [B, S, E]`; norm weights `[E]`; `wq [E, H·D]`, `wk` and `wv [E, Hkv·D]`, `wo [H·D, E]`; `gate` and `up [E, F]`,
    `down [F, E]`; `cos` and `sin [S, D/2]`. 14 operands, and `mask` as the 15th with the kinds `custom` and `bias`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$ln1_scale, RLX_FloatTensor:$ln1_bias,
                       RLX_FloatTensor:$wq, RLX_FloatTensor:$wk, RLX_FloatTensor:$wv, RLX_FloatTensor:$wo,
                       RLX_FloatTensor:$ln2_scale, RLX_FloatTensor:$ln2_bias,
                       RLX_FloatTensor:$gate, RLX_FloatTensor:$up, RLX_FloatTensor:$down,
                       RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       Optional<RLX_OrderedTensor>:$mask,
                       I64Attr:$num_heads, I64Attr:$head_dim, I64Attr:$num_kv_heads,
                       DefaultValuedAttr<F64Attr, "1e-5">:$eps,
                       DefaultValuedAttr<RLX_MaskKind, "\"causal\"">:$mask_kind,
                       OptionalAttr<I64Attr>:$window);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_TransformerEncoderBlockOp : RLX_Block<"transformer_encoder_block", "transformer"> {
  let summary = "Post-norm encoder layer (BERT)";
  let description = [{
    `h = ln1(x + attention(x·wq + bq, x·wk + bk, x·wv + bv)·wo + bo)`;
    `result = ln2(h + activation(h·w_up + b_up)·w_down + b_down)` (Devlin et al., BERT; Vaswani et al., §3).

    `x [B, S, E]`; `wq`, `wk`, `wv`, `wo [E, E]` with biases `[E]`; `w_up [E, F]`, `b_up [F]`, `w_down [F, E]`, `b_down [E]`;
    norm scales and biases `[E]`. `mask` is that of `attention`, present with the kinds `custom` and `bias`.
  }];
  let arguments = (ins RLX_FloatTensor:$x,
                       RLX_FloatTensor:$wq, RLX_FloatTensor:$bq, RLX_FloatTensor:$wk, RLX_FloatTensor:$bk,
                       RLX_FloatTensor:$wv, RLX_FloatTensor:$bv, RLX_FloatTensor:$wo, RLX_FloatTensor:$bo,
                       RLX_FloatTensor:$ln1_scale, RLX_FloatTensor:$ln1_bias,
                       RLX_FloatTensor:$w_up, RLX_FloatTensor:$b_up,
                       RLX_FloatTensor:$w_down, RLX_FloatTensor:$b_down,
                       RLX_FloatTensor:$ln2_scale, RLX_FloatTensor:$ln2_bias,
                       Optional<RLX_OrderedTensor>:$mask,
                       I64Attr:$num_heads,
                       DefaultValuedAttr<RLX_Activation, "\"gelu\"">:$activation,
                       DefaultValuedAttr<F64Attr, "1e-12">:$eps,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_BLOCKS_TD
