//===- RlxBlocks.td - HIR: blocks of models ---------------------------------------------------===//
// A block is one op that `rlx-lower-blocks` replaces by tensor ops. Weights are operands, so they
// stay named parameters of the function.
//
//===------------------------------------------------------------------------------------------===//

#ifndef RLX_BLOCKS_TD
#define RLX_BLOCKS_TD

include "RlxEnums.td"

def RLX_LinearOp : RLX_Block<"linear", "linear", [RLX_IsProduct]> {
  let summary = "activation(x·w (+ bias))";
  let description = [{`x […, K]`, `w [K, N]`, `bias [N]`, result `[…, N]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, Optional<RLX_FloatTensor>:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LinearFusedOp : RLX_Block<"linear_fused", "linear", [RLX_IsProduct]> {
  let summary = "activation(x·w + bias), always as one fused op";
  let description = [{
    `x […, K]`, `w [K, N]`, `bias [N]`, result `[…, N]`. Lowers to `fused_matmul_bias_act` under every fusion
    policy.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$bias,
                       OptionalAttr<RLX_Activation>:$activation);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_SharedLinearPairOp : RLX_Block<"shared_linear_pair", "linear", [RLX_IsProduct]> {
  let summary = "x·w_first and x·w_second as one product";
  let description = [{`x […, K]`, `w_first [K, N]`, `w_second [K, P]`; results `[…, N]` and `[…, P]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w_first, RLX_FloatTensor:$w_second);
  let results = (outs RLX_FloatTensor:$first, RLX_FloatTensor:$second);
}

def RLX_SwigluFfnOp : RLX_Block<"swiglu_ffn", "linear", [RLX_IsProduct]> {
  let summary = "((x·up)·silu(x·gate))·down";
  let description = [{`x […, E]`, `up` and `gate [E, F]`, `down [F, E]`; result `[…, E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$up, RLX_FloatTensor:$gate,
                       RLX_FloatTensor:$down);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ResidualRmsNormOp : RLX_Block<"residual_rms_norm", "linear", [RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded]> {
  let summary = "rms_norm(x + residual) along the last axis";
  let description = [{`x` and `residual […, E]`, `scale` and `bias [E]`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$residual, RLX_FloatTensor:$scale,
                       RLX_FloatTensor:$bias, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_DepthwiseConv1dCausalOp : RLX_Block<"depthwise_conv1d_causal", "sequence", [RLX_IsProduct]> {
  let summary = "Causal convolution of every channel with its own kernel";
  let description = [{
    `x [B, S, C]`, `w [C, 1, 1, K]`, `left_pad [B, K-1, C]` (the inputs before the first);
    `result[b, s, c] = sum_k w[c, 0, 0, k]·concat(left_pad, x)[b, s + k, c]`, shape `[B, S, C]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$left_pad,
                       RLX_Count:$kernel_size);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LlamaDecoderBlockOp : RLX_Block<"llama_decoder_block", "transformer", [RLX_IsProduct]> {
  let summary = "Pre-norm decoder layer with rotary positions, grouped heads and SwiGLU";
  let description = [{
    `h = x + attention(rope(rms(x)·wq), rope(rms(x)·wk), rms(x)·wv)·wo`;
    `result = h + ((rms(h)·up)·silu(rms(h)·gate))·down`.

    `x [B, S, E]`; norm weights `[E]`; `wq [E, H·D]`, `wk` and `wv [E, Hkv·D]`, `wo [H·D, E]`; `gate` and `up [E, F]`,
    `down [F, E]`; `cos` and `sin [S, D/2]`. There are 14 operands; the kinds `custom` and `bias` add `mask` as the
    15th.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$ln1_scale, RLX_FloatTensor:$ln1_bias,
                       RLX_FloatTensor:$wq, RLX_FloatTensor:$wk, RLX_FloatTensor:$wv, RLX_FloatTensor:$wo,
                       RLX_FloatTensor:$ln2_scale, RLX_FloatTensor:$ln2_bias,
                       RLX_FloatTensor:$gate, RLX_FloatTensor:$up, RLX_FloatTensor:$down,
                       RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       Optional<RLX_OrderedTensor>:$mask,
                       RLX_Count:$num_heads, RLX_Count:$head_dim, RLX_Count:$num_kv_heads,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps,
                       DefaultValuedAttr<RLX_MaskKind, "\"causal\"">:$mask_kind,
                       OptionalAttr<RLX_Amount>:$window);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_TransformerEncoderBlockOp : RLX_Block<"transformer_encoder_block", "transformer", [RLX_IsProduct]> {
  let summary = "Post-norm encoder layer (BERT)";
  let description = [{
    `h = ln1(x + attention(x·wq + bq, x·wk + bk, x·wv + bv)·wo + bo)`;
    `result = ln2(h + activation(h·w_up + b_up)·w_down + b_down)` (Devlin et al., BERT; Vaswani et al., §3).

    `x [B, S, E]`; `wq`, `wk`, `wv`, `wo [E, E]` with biases `[E]`; `w_up [E, F]`, `b_up [F]`, `w_down [F, E]`,
    `b_down [E]`; norm scales and biases `[E]`. `mask` is as in `attention`, and present for the kinds `custom` and
    `bias`.
  }];
  let arguments = (ins RLX_FloatTensor:$x,
                       RLX_FloatTensor:$wq, RLX_FloatTensor:$bq, RLX_FloatTensor:$wk, RLX_FloatTensor:$bk,
                       RLX_FloatTensor:$wv, RLX_FloatTensor:$bv, RLX_FloatTensor:$wo, RLX_FloatTensor:$bo,
                       RLX_FloatTensor:$ln1_scale, RLX_FloatTensor:$ln1_bias,
                       RLX_FloatTensor:$w_up, RLX_FloatTensor:$b_up,
                       RLX_FloatTensor:$w_down, RLX_FloatTensor:$b_down,
                       RLX_FloatTensor:$ln2_scale, RLX_FloatTensor:$ln2_bias,
                       Optional<RLX_OrderedTensor>:$mask,
                       RLX_Count:$num_heads,
                       DefaultValuedAttr<RLX_Activation, "\"gelu\"">:$activation,
                       DefaultValuedAttr<RLX_NonNegative, "1e-12">:$eps,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_Qwen35MtpHeadOp : RLX_Block<"qwen35_mtp_head", "mtp", [RLX_IsProduct]> {
  let summary = "Multi-token prediction head of Qwen 3.5";
  let description = [{
    Embeds `input_ids [B, S]`, normalises both streams, joins them as `[token ; hidden]` on the last axis and projects
    with `eh_w [2E, E]`. One layer of causal attention follows. Its query projection `q_gate_w [E, H·2D]` contains the
    query and then the gate of every head. It applies `rms_norm` to every head's query and key, `rope` to `n_rot`
    lanes, uses grouped keys, and computes `attention·sigmoid(gate)` before `o_w [H·D, E]`. Then follow a residual,
    `rms_norm`, SwiGLU, and a residual; finally the row `last_token_idx [B, 1]` of each sequence, `rms_norm`, and
    `lm_head_w [E, V]`.

    `h_pre_norm [B, S, E]`, `cos` and `sin [S, n_rot/2]`, `embed_w [vocabulary, E]`, `k_w` and `v_w [E, Hkv·D]`, head
    norms `[D]`, other norms `[E]`, `gate_w` and `up_w [E, F]`, `down_w [F, E]`; result `[B, 1, V]`.
  }];
  let arguments = (ins RLX_FloatTensor:$h_pre_norm, RLX_IndexTensor:$input_ids, RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       RLX_IndexTensor:$last_token_idx, RLX_FloatTensor:$embed_w,
                       RLX_FloatTensor:$hnorm_w, RLX_FloatTensor:$hnorm_b, RLX_FloatTensor:$enorm_w, RLX_FloatTensor:$enorm_b,
                       RLX_FloatTensor:$eh_w, RLX_FloatTensor:$attn_norm_w, RLX_FloatTensor:$attn_norm_b,
                       RLX_FloatTensor:$q_gate_w, RLX_FloatTensor:$k_w, RLX_FloatTensor:$v_w,
                       RLX_FloatTensor:$q_norm_w, RLX_FloatTensor:$q_norm_b, RLX_FloatTensor:$k_norm_w, RLX_FloatTensor:$k_norm_b,
                       RLX_FloatTensor:$o_w, RLX_FloatTensor:$post_norm_w, RLX_FloatTensor:$post_norm_b,
                       RLX_FloatTensor:$gate_w, RLX_FloatTensor:$up_w, RLX_FloatTensor:$down_w,
                       RLX_FloatTensor:$head_norm_w, RLX_FloatTensor:$head_norm_b, RLX_FloatTensor:$lm_head_w,
                       RLX_Count:$num_heads, RLX_Count:$num_kv_heads, RLX_Count:$head_dim, RLX_Amount:$n_rot,
                       DefaultValuedAttr<RLX_NonNegative, "1e-6">:$eps);
  let results = (outs RLX_FloatTensor:$logits);
}

def RLX_MambaBlockOp : RLX_Block<"mamba_block", "recurrent", [RLX_IsProduct]> {
  let summary = "Mamba layer: projection, causal convolution, selective scan, gate";
  let description = [{
    `[u, z] = x·in_w`; `u = silu(conv(u) + conv_b)`; `[r, b, c] = u·x_w`; `delta = log(1 + exp(r·dt_w + dt_b))`;
    `y = selective_scan(u, delta, -exp(a_log), b, c) + d·u`; `result = (y·silu(z))·out_w` (Gu and Dao, Mamba, §3.4).
    `x [B, S, E]`, `in_w [E, 2I]`, `conv_w [I, 1, 1, K]` (causal, one kernel per channel), `x_w [I, R + 2N]`,
    `dt_w [R, I]`, `a_log [I, N]`, `conv_b`, `dt_b` and `d [I]`, `out_w [I, E]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$in_w, RLX_FloatTensor:$conv_w, RLX_FloatTensor:$conv_b,
                       RLX_FloatTensor:$x_w, RLX_FloatTensor:$dt_w, RLX_FloatTensor:$dt_b, RLX_FloatTensor:$a_log,
                       RLX_FloatTensor:$d, RLX_FloatTensor:$out_w);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_UnetResidualBlockOp : RLX_Block<"unet_residual_block", "image", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Residual block of a U-Net";
  let description = [{
    `h = conv1(silu(group_norm(x))) (+ silu(embedding)·embedding_w + embedding_b at every pixel)`;
    `result = skip(x) + conv2(silu(group_norm(h)))` (Ho et al., Denoising diffusion, appendix B). `x [N, C, H, W]`,
    `conv1_w [O, C, 3, 3]`, `conv2_w [O, O, 3, 3]` with padding 1; `embedding [N, T]` with `embedding_w [T, O]` and
    `embedding_b [O]`: all three or none. `skip(x)` is `conv(x, skip_w) + skip_b` with `skip_w [O, C, 1, 1]` and
    `skip_b [O]`, or `x` itself; `skip_w` is required if `O` is not `C`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$norm1_scale, RLX_FloatTensor:$norm1_bias,
                       RLX_FloatTensor:$conv1_w, RLX_FloatTensor:$conv1_b,
                       RLX_FloatTensor:$norm2_scale, RLX_FloatTensor:$norm2_bias,
                       RLX_FloatTensor:$conv2_w, RLX_FloatTensor:$conv2_b,
                       Optional<RLX_FloatTensor>:$embedding, Optional<RLX_FloatTensor>:$embedding_w,
                       Optional<RLX_FloatTensor>:$embedding_b,
                       Optional<RLX_FloatTensor>:$skip_w, Optional<RLX_FloatTensor>:$skip_b,
                       RLX_Count:$num_groups, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_BLOCKS_TD
