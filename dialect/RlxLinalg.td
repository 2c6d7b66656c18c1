//===- RlxLinalg.td - Contractions, convolution, normalisation, attention ---------------------===//

#ifndef RLX_LINALG_TD
#define RLX_LINALG_TD

include "RlxEnums.td"

def RLX_MatmulOp : RLX_Op<"matmul", "contraction"> {
  let summary = "Matrix product with broadcast batch axes";
  let description = [{
    `lhs […, M, K]`, `rhs […, K, N]`, result `[…, M, N]`; batch axes broadcast as in NumPy. Rank at least 2.
    f16 and bf16 accumulate in f32 and round once; integers wrap.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_DotGeneralOp : RLX_Op<"dot_general", "contraction"> {
  let summary = "Contraction over any axes with any batch axes";
  let description = [{
    The result's axes are the batch axes, then the free axes of `lhs`, then those of `rhs`. Batch and contracting
    axes pair up in the order in which they are listed. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs,
                       DenseI64ArrayAttr:$lhs_contracting, DenseI64ArrayAttr:$rhs_contracting,
                       DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_ConvOp : RLX_Op<"conv", "convolution"> {
  let summary = "Convolution (cross-correlation) in one, two or three dimensions";
  let description = [{
    `x [N, C, spatial…]`, `w [O, C/groups, kernel…]`, result `[N, O, out…]` with
    `out = (in + before + after - dilation*(kernel - 1) - 1) // stride + 1`. `padding` lists
    before and after of each spatial axis in turn; zeros are padded. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, DenseI64ArrayAttr:$stride,
                       DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation,
                       DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LayerNormOp : RLX_Op<"layer_norm", "norm"> {
  let summary = "Layer normalisation along one axis";
  let description = [{
    `(x - mean x) / sqrt(var x + eps) * scale + bias`, statistics over `axis` (population variance), in f32
    for f16 and bf16. `scale` and `bias` have shape `[x.dim(axis)]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       I64Attr:$axis, DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormOp : RLX_Op<"rms_norm", "norm"> {
  let summary = "Root-mean-square normalisation along one axis";
  let description = [{
    `x / sqrt(mean x^2 + eps) * scale (+ bias)`, statistics in f32 for f16 and bf16. `scale` and `bias`
    have shape `[x.dim(axis)]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, Optional<RLX_FloatTensor>:$bias,
                       I64Attr:$axis, DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GroupNormOp : RLX_Op<"group_norm", "norm"> {
  let summary = "Normalisation over groups of channels";
  let description = [{
    `x [N, C, spatial…]`; each of `num_groups` groups of `C/num_groups` channels is normalised over its channels and
    all spatial positions, then scaled and shifted by `scale [C]` and `bias [C]`. Statistics in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       I64Attr:$num_groups, DefaultValuedAttr<F64Attr, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_AttentionOp : RLX_Op<"attention", "attention"> {
  let summary = "Scaled dot-product attention";
  let description = [{
    `softmax(mask(softcap(q·kᵀ·score_scale)))·v` for each head, softmax in f32.

    Layout: `q [B, S, H·D]`, `k [B, T, Hkv·D]`, `v [B, T, Hkv·Dv]`, or `q [B, H, S, D]`,
    `k [B, Hkv, T, D]`, `v [B, Hkv, T, Dv]`; the result is laid out as `q`. `H = num_heads` is a multiple of `Hkv`: query head `h` reads
    key head `h // (H/Hkv)`. `score_scale` defaults to `1/sqrt(D)`; `softcap` c is `c·tanh(s/c)`.

    Masks: `causal`: query `i` sees keys `j <= i + T - S`; `sliding_window`: also `j >= i + T - S - window`;
    `custom`: `mask [B, T]` or broadcastable to `[B, H, S, T]` (rank 4), nonzero (bool, integer) or at least 0.5 (float)
    keeps; `bias`: `mask` broadcastable to `[B, H, S, T]` is added to the scores. A query that sees no key gives zeros.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v,
                       Optional<RLX_OrderedTensor>:$mask,
                       I64Attr:$num_heads, I64Attr:$head_dim,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind,
                       OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$score_scale,
                       OptionalAttr<F64Attr>:$softcap);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RopeOp : RLX_Op<"rope", "attention"> {
  let summary = "Rotary position embedding";
  let description = [{
    Rotates the first `n_rot` lanes of every head; the others pass. `x [B, S, H·D]` or `[B, H, S, D]` with
    `D = head_dim`; `cos` and `sin` are `[S, n_rot/2]` or `[B, S, n_rot/2]`. For the pair (a, b) of lanes that
    `style` names: `a' = a·cos - b·sin`, `b' = b·cos + a·sin` (Su et al., RoFormer, eq. 34). Computed in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       I64Attr:$head_dim, I64Attr:$n_rot,
                       DefaultValuedAttr<RLX_RopeStyle, "\"neox\"">:$style);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_LINALG_TD
