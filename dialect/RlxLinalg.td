//===- RlxLinalg.td - Contractions, convolution, normalisation, attention ---------------------===//

#ifndef RLX_LINALG_TD
#define RLX_LINALG_TD

include "RlxEnums.td"

def RLX_MatmulOp : RLX_Op<"matmul", "contraction", [RLX_IsProduct]> {
  let summary = "Matrix product with broadcast batch axes";
  let description = [{
    `lhs […, M, K]`, `rhs […, K, N]`, result `[…, M, N]`; batch axes broadcast as in NumPy. Rank at least 2.
    f16 and bf16 accumulate in f32 and round once; integers wrap.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_DotGeneralOp : RLX_Op<"dot_general", "contraction", [RLX_IsProduct]> {
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

def RLX_GroupedMatmulOp : RLX_Op<"grouped_matmul", "linear_algebra", [RLX_IsProduct]> {
  let summary = "Each row times the matrix of its own group (mixture of experts)";
  let description = [{
    `x [M, K]`, `w [E, K, N]`, `indices [M]` of integers, clamped into `[0, E)`: `result[m] =
    x[m]·w[indices[m]]`, shape `[M, N]`.
    f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_IndexTensor:$indices);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LoraMatmulOp : RLX_Op<"lora_matmul", "linear_algebra", [RLX_IsProduct]> {
  let summary = "x·w + scale·(x·a)·b";
  let description = [{
    `x […, K]`, `w [K, N]`, `a [K, R]`, `b [R, N]`, result `[…, N]` (Hu et al., LoRA, eq. 3).
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$a, RLX_FloatTensor:$b,
                       DefaultValuedAttr<RLX_Finite, "1.0">:$scale);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_DenseSolveOp : RLX_Op<"dense_solve", "linear_algebra"> {
  let summary = "The solution of a system of linear equations";
  let description = [{
    `a [N, N]`, `b [N]` or `[N, K]`; the result `x` of the shape of `b` has `a·x = b`. Gaussian elimination with
    partial pivoting; a singular `a` gives infinities or NaN, or where rounding hides that it is singular, large
    numbers. f16 and bf16 are solved in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$a, RLX_FloatTensor:$b);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_BatchedDenseSolveOp : RLX_Op<"batched_dense_solve", "linear_algebra"> {
  let summary = "The solutions of a batch of systems of linear equations";
  let description = [{
    `a [B, N, N]`, `b [B, N]` or `[B, N, K]`; each as `dense_solve`.
  }];
  let arguments = (ins RLX_FloatTensor:$a, RLX_FloatTensor:$b);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ConvOp : RLX_Op<"conv", "convolution", [RLX_IsProduct]> {
  let summary = "Convolution (cross-correlation) in one, two or three dimensions";
  let description = [{
    `x [N, C, spatial…]`, `w [O, C/groups, kernel…]`, result `[N, O, out…]` with
    `out = (in + before + after - dilation*(kernel - 1) - 1) // stride + 1`. `padding` lists
    before and after of each spatial axis in turn; zeros are padded. f16 and bf16 accumulate in f32; integers wrap.
  }];
  let arguments = (ins RLX_RealTensor:$x, RLX_RealTensor:$w, RLX_Steps:$stride,
                       RLX_Amounts:$padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_ConvTransposeOp : RLX_Op<"conv_transpose", "convolution_transpose", [RLX_IsProduct]> {
  let summary = "Transposed convolution in one, two or three dimensions";
  let description = [{
    The transpose of `conv` as a linear map: `x [N, C, spatial…]`, `w [C, O/groups, kernel…]`, result `[N, O,
    out…]` with
    `out = (in - 1)*stride - before - after + dilation*(kernel - 1) + output_padding + 1`. `padding` lists
    before and after of each spatial
    axis in turn; `output_padding` adds positions at the end. Beyond the edges of `x` stand zeros, which count as
    in `conv`. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_Steps:$stride,
                       RLX_Amounts:$padding, RLX_Amounts:$output_padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_PoolOp : RLX_Op<"pool", "pool", [RLX_IsReduction]> {
  let summary = "Maximum or mean over windows in one, two or three dimensions";
  let description = [{
    `x [N, C, spatial…]`, result `[N, C, out…]` with `out = (in + before + after - kernel) // stride + 1`.
    `padding` lists before and after of each
    spatial axis in turn. Padding never is a maximum, and counts in a mean as zeros, or with `count_include_pad
    = false` not at all.
    NaN propagates; a window of padding alone gives -inf (max), and NaN as a mean that does not count padding.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_Pooling:$kind, RLX_Steps:$kernel,
                       RLX_Steps:$stride, RLX_Amounts:$padding,
                       DefaultValuedAttr<BoolAttr, "true">:$count_include_pad);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ResizeOp : RLX_Op<"resize", "image", [RLX_IsLocal]> {
  let summary = "Spatial axes resampled to other sizes";
  let description = [{
    `x [N, C, spatial…]`, result `[N, C, size…]`. Output position `i` reads the input at `(i + 1/2)·in/out -
    1/2` (half-pixel centres), or with
    `align_corners` at `i·(in - 1)/(out - 1)`. `nearest` takes the pixel `floor(i·in/out)`, and no `align_corners`;
    `bilinear` interpolates linearly along every spatial axis (of which there may be one, two or three), with
    positions held within the image. Interpolation weights are computed exactly from the sizes, in f64; a pixel of
    weight 0 does not count, be it NaN.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_ShapeAttr:$size, RLX_Interpolation:$mode,
                       DefaultValuedAttr<BoolAttr, "false">:$align_corners);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LayerNorm2dOp : RLX_Op<"layer_norm2d", "norm", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Layer normalisation over the channels of each pixel";
  let description = [{
    `x [N, C, H, W]`, normalised over `C` at every pixel, then scaled and shifted by `scale [C]` and `bias [C]`.
    Statistics in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_BatchNormInferenceOp : RLX_Op<"batch_norm_inference", "norm", [RLX_IsReduction]> {
  let summary = "Normalisation of channels by given statistics";
  let description = [{
    `x [N, C, spatial…]`: `(x - mean) / sqrt(variance + eps) * scale + bias`, all four of shape `[C]`. Computed
    in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       RLX_FloatTensor:$mean, RLX_FloatTensor:$variance,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LayerNormOp : RLX_Op<"layer_norm", "norm", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Layer normalisation along one axis";
  let description = [{
    `(x - mean x) / sqrt(var x + eps) * scale + bias`, statistics over `axis` (population variance), in f32
    for f16 and bf16. `scale` and `bias` have shape `[x.dim(axis)]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       I64Attr:$axis, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormOp : RLX_Op<"rms_norm", "norm", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Root-mean-square normalisation along one axis";
  let description = [{
    `x / sqrt(mean x^2 + eps) * scale (+ bias)`, statistics in f32 for f16 and bf16. `scale` and `bias`
    have shape `[x.dim(axis)]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, Optional<RLX_FloatTensor>:$bias,
                       I64Attr:$axis, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GroupNormOp : RLX_Op<"group_norm", "norm", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Normalisation over groups of channels";
  let description = [{
    `x [N, C, spatial…]`; each of `num_groups` groups of `C/num_groups` channels is normalised over its channels and
    all spatial positions, then scaled and shifted by `scale [C]` and `bias [C]`. Statistics in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       RLX_Count:$num_groups, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_AttentionOp : RLX_Op<"attention", "attention", [RLX_IsProduct]> {
  let summary = "Scaled dot-product attention";
  let description = [{
    `softmax(mask(softcap(q·kᵀ·score_scale)))·v` for each head, softmax in f32.

    Layout: `q [B, S, H·D]`, `k [B, T, Hkv·D]`, `v [B, T, Hkv·Dv]`, or `q [B, H, S, D]`,
    `k [B, Hkv, T, D]`, `v [B, Hkv, T, Dv]`; the result is laid out as `q`. `H = num_heads` is a multiple of
    `Hkv`: query head `h` reads
    key head `h // (H/Hkv)`. `score_scale` defaults to `1/sqrt(D)`; `softcap` c is `c·tanh(s/c)`.

    Masks: `causal`: query `i` sees keys `j <= i + T - S`; `sliding_window`: also `j >= i + T - S - window`;
    `custom`: `mask [B, T]` or broadcastable to `[B, H, S, T]` (rank 4), nonzero (bool, integer) or at least 0.5
    (float)
    keeps; `bias`: `mask` broadcastable to `[B, H, S, T]` is added to the scores. A query that sees no key gives
    zeros.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v,
                       Optional<RLX_OrderedTensor>:$mask,
                       RLX_Count:$num_heads, RLX_Count:$head_dim,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind,
                       OptionalAttr<RLX_Amount>:$window, OptionalAttr<RLX_Finite>:$score_scale,
                       OptionalAttr<RLX_Positive>:$softcap);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RopeOp : RLX_Op<"rope", "rope", [RLX_IsLocal]> {
  let summary = "Rotary position embedding";
  let description = [{
    Rotates the first `n_rot` lanes of every head; the others pass. `x [B, S, H·D]` or `[B, H, S, D]` with
    `D = head_dim`; `cos` and `sin` are `[S, n_rot/2]` or `[B, S, n_rot/2]`. For the pair (a, b) of lanes that
    `style` names: `a' = a·cos - b·sin`, `b' = b·cos + a·sin` (Su et al., RoFormer, eq. 34). Computed in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       RLX_Count:$head_dim, RLX_Amount:$n_rot,
                       DefaultValuedAttr<RLX_RopeStyle, "\"neox\"">:$style);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_AxialRope2dOp : RLX_Op<"axial_rope_2d", "image", [RLX_IsLocal]> {
  let summary = "Rotary embedding of two-dimensional positions";
  let description = [{
    `x [B, S, H·D]` or `[B, H, S, D]` with `D = head_dim`, `S = end_x·end_y·repeat_factor` tokens of an image of
    `end_y` rows of `end_x` pixels, `repeat_factor` times over. Token `t` stands
    at column `t mod end_x` and row `(t mod (end_x·end_y)) // end_x`. Lanes are pairs (2i, 2i + 1): the first
    `D/4` pairs turn with the column, the last `D/4` with
    the row, pair `i` of each by `position·theta^(-4i/D)` radians (Heo et al., RoPE for vision transformers,
    axial form). Computed in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_Amount:$end_x, RLX_Amount:$end_y, RLX_Count:$head_dim, RLX_Count:$num_heads,
                       DefaultValuedAttr<RLX_Positive, "10000.0">:$theta, DefaultValuedAttr<RLX_Amount, "1">:$repeat_factor);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FftOp : RLX_Op<"fft", "fft"> {
  let summary = "Discrete Fourier transform along an axis";
  let description = [{
    `result[k] = c·sum_n x[n]·exp(∓2πi·k·n/N)`, minus for the forward transform; `norm` says where `c` is not 1,
    with NumPy's names.
    Any length. The axis must not be empty. Of a length that is a symbol when a back end without transforms of its
    own compiles it, the whole matrix is multiplied with, in time and memory in proportion to `N^2`: bind it.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$inverse,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_RfftOp : RLX_Op<"rfft", "fft"> {
  let summary = "Discrete Fourier transform of real numbers";
  let description = [{The first `N//2 + 1` elements of `fft(x)` along `axis`: the others are their conjugates.}];
  let arguments = (ins RLX_F32Tensor:$x, I64Attr:$axis, DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_IrfftOp : RLX_Op<"irfft", "fft"> {
  let summary = "Inverse of the Fourier transform of real numbers";
  let description = [{
    The real inverse transform, of `length` elements along `axis`, of a spectrum of `length//2 + 1` elements
    that stands for a Hermitian one.
    The imaginary parts of its first and, for an even length, last element are not read. `length` is a list of
    one dimension.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, RLX_ShapeAttr:$length,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_F32Tensor:$result);
}

#endif // RLX_LINALG_TD
