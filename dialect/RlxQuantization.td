//===- RlxQuantization.td - Quantisation ------------------------------------------------------===//

#ifndef RLX_QUANTIZATION_TD
#define RLX_QUANTIZATION_TD

include "RlxEnums.td"

def RLX_QuantizeOp : RLX_Op<"quantize", "quant"> {
  let summary = "8-bit integers from floats";
  let description = [{
    `result = saturate(round(x / scale) + zero_point)`, rounding half to even; NaN becomes the zero point. `scale`
    (f32, positive) and `zero_point` (i32, saturated to the range of `dtype`) are scalars, or have shape
    `[x.dim(axis)]` with `axis`. f64 divides and adds in f64, other dtypes in f32. `dtype` is i8 or u8.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_F32Tensor:$scale, RLX_I32Tensor:$zero_point, OptionalAttr<I64Attr>:$axis,
                       RLX_DTypeAttr:$dtype);
  let results = (outs RLX_QuantizedTensor:$result);
}

def RLX_DequantizeOp : RLX_Op<"dequantize", "quant"> {
  let summary = "Floats from 8-bit integers";
  let description = [{
    `result = (x - zero_point)·scale`, f32; `scale` and `zero_point` as in `quantize`. The difference is exact
    (i32 arithmetic).
  }];
  let arguments = (ins RLX_QuantizedTensor:$x, RLX_F32Tensor:$scale, RLX_I32Tensor:$zero_point, OptionalAttr<I64Attr>:$axis);
  let results = (outs RLX_F32Tensor:$result);
}

def RLX_QMatmulOp : RLX_Op<"q_matmul", "quant_compute", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Product of 8-bit matrices: as sums, requantised or as floats";
  let description = [{
    `x […, M, K]`, `w [K, N]` i8, `bias [N]` i32: `acc = (x - x_zero_point)·(w - w_zero_point) + bias` in i32. With
    `dtype` i8, `result = saturate(round(acc·multiplier) + out_zero_point)`, the product and rounding (half to even)
    in f32; with f32, `result = acc·multiplier`, without `out_zero_point`; with i32, `result = acc`, also without
    `multiplier`, and integer-only `requantize` may follow. `multiplier` is a scalar, or `[N]`: one number per column.
    i32 wraps; zero points are in the range of i8.
  }];
  let arguments = (ins RLX_I8Tensor:$x, RLX_I8Tensor:$w, Optional<RLX_I32Tensor>:$bias, Optional<RLX_F32Tensor>:$multiplier,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$x_zero_point, DefaultValuedAttr<RLX_ZeroPoint, "0">:$w_zero_point,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$out_zero_point, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_RequantizedTensor:$result);
}

def RLX_QConv2dOp : RLX_Op<"q_conv2d", "quant_compute", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Convolution of 8-bit images: as sums, requantised or as floats";
  let description = [{
    `x [N, C, H, W]`, `w [O, C/groups, kH, kW]` i8, `bias [O]` i32, `multiplier` a scalar or `[O]`. It behaves like
    `conv` and `q_matmul`: accumulated in i32, padded with `x_zero_point`.
  }];
  let arguments = (ins RLX_I8Tensor:$x, RLX_I8Tensor:$w, Optional<RLX_I32Tensor>:$bias, Optional<RLX_F32Tensor>:$multiplier,
                       RLX_Steps:$stride, RLX_Amounts:$padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$x_zero_point, DefaultValuedAttr<RLX_ZeroPoint, "0">:$w_zero_point,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$out_zero_point, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_RequantizedTensor:$result);
}

def RLX_DequantizePackedOp : RLX_Op<"dequantize_packed", "packed"> {
  let summary = "Floats from packed blocks of bytes";
  let description = [{
    `x […, blocks·nbytes]` u8: rows of blocks in the packed format `scheme`, a key of `rlx.weights.schemes`, for example
    `"q4_k"`. The result, f32 `[…, blocks·block]`, has the elements of the blocks, computed in f32.
  }];
  let arguments = (ins RLX_U8Tensor:$x, StrAttr:$scheme);
  let results = (outs RLX_F32Tensor:$result);
}

def RLX_QuantizePackedOp : RLX_Op<"quantize_packed", "packed"> {
  let summary = "Packed blocks of bytes from floats";
  let description = [{
    `x […, blocks·block]` f32: rows that are packed into blocks of the format `scheme`, u8 `[…, blocks·nbytes]`, with the bytes
    of `rlx.weights.schemes[scheme].encode`. The inverse is `dequantize_packed`. The only format is `"q8_0"`: 32 numbers are
    integers, rounded half away from zero, with the scale `max|x|/127` in f16. A block with `max|x| < 1e-30` becomes 0. One
    with an infinity or a NaN, or whose scale is larger than the numbers of f16 (from `max|x|` of 8.3 million on), becomes NaN.
  }];
  let arguments = (ins RLX_F32Tensor:$x, StrAttr:$scheme);
  let results = (outs RLX_U8Tensor:$result);
}

def RLX_DequantMatmulOp : RLX_Op<"dequant_matmul", "packed", [RLX_IsProduct]> {
  let summary = "Product with a packed matrix: x·dequantize(w)ᵀ";
  let description = [{
    `x […, K]` f32, `w [N, K/block·nbytes]` u8: N packed rows in the format `scheme`, as in `dequantize_packed`. The result
    is f32 `[…, N]`. With `activations` `"i8"` or `"i16"`, the blocks of `x` (of the scheme's size) are rounded to
    integers first: with `limit` 127 or 32767 and `top = max|x|` of the block, `x` becomes
    `round(x·(limit/top))·(top/limit)`, rounded half to even; a block with `top < 1e-30` becomes 0, and one with an
    infinity or NaN becomes NaN. Derivatives treat the rounding as the identity.
  }];
  let arguments = (ins RLX_F32Tensor:$x, RLX_U8Tensor:$w, StrAttr:$scheme,
                       DefaultValuedAttr<RLX_Activations, "\"f32\"">:$activations);
  let results = (outs RLX_F32Tensor:$result);
}

def RLX_DequantGroupedMatmulOp : RLX_Op<"dequant_grouped_matmul", "packed", [RLX_IsProduct]> {
  let summary = "Each row times the packed matrix of its own group (mixture of experts)";
  let description = [{
    `x [M, K]` f32, `w [E, N, K/block·nbytes]` u8: E matrices of packed rows in the format `scheme`, as in
    `dequant_matmul`; integer `indices [M]`, clamped to `[0, E)`: `result[m] = x[m]·dequantize(w[indices[m]])ᵀ`, f32
    `[M, N]`. `activations` is as in `dequant_matmul`.
  }];
  let arguments = (ins RLX_F32Tensor:$x, RLX_U8Tensor:$w, RLX_IndexTensor:$indices, StrAttr:$scheme,
                       DefaultValuedAttr<RLX_Activations, "\"f32\"">:$activations);
  let results = (outs RLX_F32Tensor:$result);
}

def RLX_RequantizeOp : RLX_Op<"requantize", "requantize", [RLX_IsElementwise]> {
  let summary = "An integer multiplied by a fixed-point number, and saturated to fewer bits";
  let description = [{
    `result = saturate(round(x·multiplier·2^(shift - 31)) + zero_point)`; all three operands are i32 and broadcast as
    in NumPy. It uses integers only, so every machine returns the same bits: those of TensorFlow Lite for the same
    `mode`. `double` has three steps: `x·2^shift` for a positive shift, which wraps; the product with `multiplier`
    divided by 2^31, which rounds halves up and saturates; the division by `2^-shift` for a negative shift, which
    rounds halves away from 0. `single` is `(x·multiplier + 2^(30 - shift)) >> (31 - shift)`, which rounds halves up.
    `short` is the same with `2^(shift - 15)` and a 16-bit multiplier. Shifts are clamped to -31 and 30 (14 for
    `short`); `short` uses the last 16 bits of a multiplier, with their sign. `dtype` is i8, u8, i16 or i32;
    `zero_point` is in its range, and in that of i16.
  }];
  let arguments = (ins RLX_I32Tensor:$x, RLX_I32Tensor:$multiplier, RLX_I32Tensor:$shift,
                       DefaultValuedAttr<RLX_WideZeroPoint, "0">:$zero_point, DefaultValuedAttr<RLX_FixedPoint, "\"double\"">:$mode,
                       RLX_DTypeAttr:$dtype);
  let results = (outs RLX_IndexTensor:$result);
}

def RLX_FakeQuantizeOp : RLX_Op<"fake_quantize", "fake_quant"> {
  let summary = "Rounding to the values that a few bits can represent, as floats";
  let description = [{
    `result = clamp(round(x/scale), -qmax, qmax)·scale` with `qmax = 2^(bits-1) - 1` (127, 7, 1 for 8, 4, 2 bits; at
    most 16). `scale` is a scalar, or one number for each position of `axis`. `scale_mode` selects it: `max|x|/qmax`
    (`per_batch`); `decay·state + (1 - decay)·max|x|/qmax` (`ema`); `state` (`fixed`). The second result is the scale
    that was used; for `ema` it is the caller's next state. `state` is an operand for `ema` and `fixed` only. Where
    the scale is 0 the result is 0. `ste` selects the gradient with respect to `x`. The scale counts as a constant: it
    has no gradient, and no gradient propagates through it. f16 and bf16 are computed in f32, and `state` and `scale`
    are then f32; otherwise they have the dtype of `x`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, Optional<RLX_FloatTensor>:$state, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis,
                       DefaultValuedAttr<RLX_StraightThrough, "\"identity\"">:$ste,
                       DefaultValuedAttr<RLX_ScaleMode, "\"per_batch\"">:$scale_mode,
                       DefaultValuedAttr<RLX_Fraction, "0.99">:$decay);
  let results = (outs RLX_FloatTensor:$result, RLX_FloatTensor:$scale);
}

def RLX_FakeQuantizeLsqOp : RLX_Op<"fake_quantize_lsq", "fake_quant"> {
  let summary = "Fake quantisation with a learned step size";
  let description = [{
    `result = clamp(round(x/scale), -qmax, qmax)·scale`, `qmax = 2^(bits-1) - 1`; `scale` is a scalar, or has shape
    `[x.dim(axis)]` with `axis`, and has its own gradient (Esser et al., Learned step size quantization, eq. 3). Its
    dtype, and a scale of 0, are as in `fake_quantize`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_QUANTIZATION_TD
