//===- RlxQuantization.td - Quantisation ------------------------------------------------------===//

#ifndef RLX_QUANTIZATION_TD
#define RLX_QUANTIZATION_TD

include "RlxEnums.td"

def RLX_QuantizeOp : RLX_Op<"quantize", "quant"> {
  let summary = "8-bit integers from floats";
  let description = [{
    `result = saturate(round(x / scale) + zero_point)`, rounding half to even, NaN to the zero point. `scale`
    (f32, positive) and `zero_point` (i32, saturated to the range of `dtype`) are scalars, or
    with `axis` of shape `[x.dim(axis)]`. f64 divides and adds in f64, the others in f32. `dtype` is i8 or u8.
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
    `x […, M, K]`, `w [K, N]` i8, `bias [N]` i32: `acc = (x - x_zero_point)·(w - w_zero_point) + bias` in i32.
    With `dtype` i8, `result = saturate(round(acc·multiplier) + out_zero_point)`, the product and
    rounding (half to even) in f32; with f32, `result = acc·multiplier`, and there is no `out_zero_point`; with i32,
    `result = acc`, and there is no `multiplier` either: `requantize` may follow, which takes no floats.
    `multiplier` is a scalar, or `[N]`: one number for each column. i32 wraps; zero points lie in the range of i8.
  }];
  let arguments = (ins RLX_I8Tensor:$x, RLX_I8Tensor:$w, Optional<RLX_I32Tensor>:$bias, Optional<RLX_F32Tensor>:$multiplier,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$x_zero_point, DefaultValuedAttr<RLX_ZeroPoint, "0">:$w_zero_point,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$out_zero_point, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_RequantizedTensor:$result);
}

def RLX_QConv2dOp : RLX_Op<"q_conv2d", "quant_compute", [RLX_IsProduct, AttrSizedOperandSegments]> {
  let summary = "Convolution of 8-bit images: as sums, requantised or as floats";
  let description = [{
    `x [N, C, H, W]`, `w [O, C/groups, kH, kW]` i8, `bias [O]` i32, `multiplier` a scalar or `[O]`; as `conv` and
    `q_matmul`: accumulated in i32, padded with `x_zero_point`.
  }];
  let arguments = (ins RLX_I8Tensor:$x, RLX_I8Tensor:$w, Optional<RLX_I32Tensor>:$bias, Optional<RLX_F32Tensor>:$multiplier,
                       RLX_Steps:$stride, RLX_Amounts:$padding, RLX_Steps:$dilation,
                       DefaultValuedAttr<RLX_Count, "1">:$groups,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$x_zero_point, DefaultValuedAttr<RLX_ZeroPoint, "0">:$w_zero_point,
                       DefaultValuedAttr<RLX_ZeroPoint, "0">:$out_zero_point, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_RequantizedTensor:$result);
}

def RLX_RequantizeOp : RLX_Op<"requantize", "requantize", [RLX_IsElementwise]> {
  let summary = "An integer multiplied by a fixed-point number, and saturated to fewer bits";
  let description = [{
    `result = saturate(round(x·multiplier·2^(shift - 31)) + zero_point)`; all three operands are i32 and broadcast as in NumPy.
    No float is involved, so that every machine gives the same bits: those of TensorFlow Lite for the same `mode`.
    `double`: `x·2^shift` for a positive shift, which wraps; the product with `multiplier`, halved 31 times, of which halves are
    rounded up, and which saturates; the division by `2^-shift` for a negative shift, of which halves are rounded away from 0.
    `single`: `(x·multiplier + 2^(30 - shift)) >> (31 - shift)`, which rounds halves up. `short`: likewise, with
    `2^(shift - 15)` for a multiplier of 16 bits.
    A shift counts as -31 below and as 30 above (14 for `short`), a multiplier of `short` by its last 16 bits, with their sign.
    `dtype` is i8, u8, i16 or i32; `zero_point` lies in its range, and in that of i16.
  }];
  let arguments = (ins RLX_I32Tensor:$x, RLX_I32Tensor:$multiplier, RLX_I32Tensor:$shift,
                       DefaultValuedAttr<RLX_WideZeroPoint, "0">:$zero_point, DefaultValuedAttr<RLX_FixedPoint, "\"double\"">:$mode,
                       RLX_DTypeAttr:$dtype);
  let results = (outs RLX_IndexTensor:$result);
}

def RLX_FakeQuantizeOp : RLX_Op<"fake_quantize", "fake_quant"> {
  let summary = "Rounded to the values that a few bits represent, as floats";
  let description = [{
    `result = clamp(round(x/scale), -qmax, qmax)·scale` with `qmax = 2^(bits-1) - 1` (127, 7, 1 for 8, 4, 2
    bits; at most 16). `scale` is a scalar, or one for each position of `axis`:
    `max|x|/qmax` (`per_batch`); `decay·state + (1 - decay)·max|x|/qmax` (`ema`); `state` (`fixed`). The second
    result is the scale that was used: with `ema` the caller's next state.
    `state` is an operand with `ema` and `fixed` only. Where the scale is 0 the result is 0. `ste` says what the
    gradient of `x` is, at the scale that was used, which counts as a constant: there is no gradient of it or through it.
    f16 and bf16 are computed in f32, and `state` and `scale` are then f32; else they have the dtype of `x`.
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
    `result = clamp(round(x/scale), -qmax, qmax)·scale`, `qmax = 2^(bits-1) - 1`; `scale` is a scalar, or with
    `axis` of shape `[x.dim(axis)]`, and has a gradient of its own
    (Esser et al., Learned step size quantization, eq. 3). Its dtype, and a scale of 0, are as in `fake_quantize`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_QUANTIZATION_TD
