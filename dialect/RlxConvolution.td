//===- RlxConvolution.td - Windows over images ------------------------------------------------===//

#ifndef RLX_CONVOLUTION_TD
#define RLX_CONVOLUTION_TD

include "RlxEnums.td"

def RLX_ConvOp : RLX_Op<"conv", "convolution", [RLX_IsProduct]> {
  let summary = "Convolution (cross-correlation) in one, two or three dimensions";
  let description = [{
    `x [N, C, spatial…]`, `w [O, C/groups, kernel…]`, result `[N, O, out…]` with
    `out = (in + before + after - dilation*(kernel - 1) - 1) // stride + 1`. `padding` lists the zeros before and
    after each spatial axis in order. f16 and bf16 accumulate in f32; integers wrap.
  }];
  let arguments = (ins RLX_RealTensor:$x, RLX_RealTensor:$w, RLX_Steps:$stride,
                       RLX_Amounts:$padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_ConvTransposeOp : RLX_Op<"conv_transpose", "convolution_transpose", [RLX_IsProduct]> {
  let summary = "Transposed convolution in one, two or three dimensions";
  let description = [{
    The transpose of `conv` as a linear map: `x [N, C, spatial…]`, `w [C, O/groups, kernel…]`, result `[N, O, out…]`
    with `out = (in - 1)*stride - before - after + dilation*(kernel - 1) + output_padding + 1`. `padding` lists the
    positions cut before and after each spatial axis in order; `output_padding` adds positions at the end. `x` is
    extended by zeros beyond its edges, which are multiplied by weights as in `conv`. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_Steps:$stride,
                       RLX_Amounts:$padding, RLX_Amounts:$output_padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_PoolOp : RLX_Op<"pool", "pool", [RLX_IsReduction]> {
  let summary = "Maximum, mean or sum over windows in one, two or three dimensions";
  let description = [{
    `x [N, C, spatial…]`, result `[N, C, out…]` with `out = (in + before + after - kernel) // stride + 1`. `padding`
    lists the padding before and after each spatial axis in order. Padding is never a maximum and counts as zero in a
    sum. In a mean it counts as zeros, or not at all with `count_include_pad = false`. NaN propagates. A window of
    padding alone gives -inf as a maximum (for integers the least value), and NaN as a mean that does not count
    padding. Integers have no mean; their sums wrap.
  }];
  let arguments = (ins RLX_RealTensor:$x, RLX_Pooling:$kind, RLX_Steps:$kernel,
                       RLX_Steps:$stride, RLX_Amounts:$padding,
                       DefaultValuedAttr<BoolAttr, "true">:$count_include_pad);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_ResizeOp : RLX_Op<"resize", "image", [RLX_IsLocal]> {
  let summary = "Resampling of spatial axes to other sizes";
  let description = [{
    `x [N, C, spatial…]`, result `[N, C, size…]`. Output position `i` reads the input at `(i + 1/2)·in/out - 1/2`
    (half-pixel centres), or with `align_corners` at `i·(in - 1)/(out - 1)`. `nearest` takes the pixel
    `floor(i·in/out)` and does not support `align_corners`. `bilinear` interpolates linearly along every spatial axis
    (one, two or three), with positions clamped to the image. Interpolation weights are computed exactly from the
    sizes, in f64. A pixel of weight 0 does not count, even if it is NaN.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_ShapeAttr:$size, RLX_Interpolation:$mode,
                       DefaultValuedAttr<BoolAttr, "false">:$align_corners);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_AxialRope2dOp : RLX_Op<"axial_rope_2d", "image", [RLX_IsLocal]> {
  let summary = "Rotary embedding of two-dimensional positions";
  let description = [{
    `x [B, S, H·D]` or `[B, H, S, D]` with `D = head_dim`, `S = end_x·end_y·repeat_factor` tokens: an image of `end_y`
    rows and `end_x` columns, repeated `repeat_factor` times. Token `t` is at column `t mod end_x` and row
    `(t mod (end_x·end_y)) // end_x`. Lanes form pairs (2i, 2i + 1): the first `D/4` pairs rotate with the column, the
    last `D/4` with the row, pair `i` of each by `position·theta^(-4i/D)` radians (Heo et al., RoPE for vision
    transformers, axial form). Computed in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_Amount:$end_x, RLX_Amount:$end_y, RLX_Count:$head_dim, RLX_Count:$num_heads,
                       DefaultValuedAttr<RLX_Positive, "10000.0">:$theta, DefaultValuedAttr<RLX_Amount, "1">:$repeat_factor);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_CONVOLUTION_TD
