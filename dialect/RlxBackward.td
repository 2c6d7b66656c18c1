//===- RlxBackward.td - Gradients as ops ----------------------------------------------------===//

#ifndef RLX_BACKWARD_TD
#define RLX_BACKWARD_TD

include "RlxEnums.td"

// Each op is a name for one cotangent of the vjp of its forward op, and decomposes into that cotangent: see the table in
// ops/backward/backward.py. Operands and attributes have the names of the forward op; the cotangent is dy or dloss.

def RLX_ReluBackwardOp : RLX_Op<"relu_backward", "backward", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Gradient of relu";
  let description = [{`dy` where `x > 0`, else 0.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ActivationBackwardOp : RLX_Op<"activation_backward", "backward", [
      RLX_IsElementwise,
      RLX_When<RLX_IsWideRange, "kind", ["exp", "log", "rsqrt", "tan"]>
    ]> {
  let summary = "Gradient of an activation";
  let description = [{`dy·kind'(x)`; `round` is straight-through, and `relu'(0) = 0`, `abs'(0) = 0`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Activation:$kind);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_ComplexNormSqBackwardOp : RLX_Op<"complex_norm_sq_backward", "backward", [RLX_IsElementwise]> {
  let summary = "Gradient of complex_norm_sq";
  let description = [{
    `2·x·dy`: the gradient with respect to the real part plus i times the gradient with respect to the imaginary part.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, RLX_PartTensor:$dy);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_RopeBackwardOp : RLX_Op<"rope_backward", "backward", [RLX_IsLocal]> {
  let summary = "Gradient of rope";
  let description = [{`rope` with the negative angle; shapes and attributes are those of `rope`.}];
  let arguments = (ins RLX_FloatTensor:$dy, RLX_FloatTensor:$cos, RLX_FloatTensor:$sin, RLX_Count:$head_dim, RLX_Amount:$n_rot,
                       DefaultValuedAttr<RLX_RopeStyle, "\"neox\"">:$style);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LayerNormBackwardInputOp : RLX_Op<"layer_norm_backward_input", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of layer_norm with respect to its input";
  let description = [{
    `(w - mean w - x̂·mean(w·x̂))/sqrt(var x + eps)` with `w = dy·scale` and `x̂` the normalised input, means
    over `axis`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$dy, I64Attr:$axis,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LayerNormBackwardGammaOp : RLX_Op<"layer_norm_backward_gamma", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of layer_norm with respect to its scale";
  let description = [{`sum dy·x̂` over all axes except `axis`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, I64Attr:$axis, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormBackwardInputOp : RLX_Op<"rms_norm_backward_input", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of rms_norm with respect to its input";
  let description = [{
    `(w - x·mean(w·x)/(mean x^2 + eps))/sqrt(mean x^2 + eps)` with `w = dy·scale`, means over `axis`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, Optional<RLX_FloatTensor>:$bias, RLX_FloatTensor:$dy, I64Attr:$axis,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormBackwardGammaOp : RLX_Op<"rms_norm_backward_gamma", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of rms_norm with respect to its scale";
  let description = [{`sum dy·x/sqrt(mean x^2 + eps)` over all axes except `axis`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, Optional<RLX_FloatTensor>:$bias, RLX_FloatTensor:$dy, I64Attr:$axis,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormBackwardBetaOp : RLX_Op<"rms_norm_backward_beta", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of rms_norm with respect to its bias";
  let description = [{`sum dy` over all axes except `axis`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias, RLX_FloatTensor:$dy, I64Attr:$axis,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GroupNormBackwardInputOp : RLX_Op<"group_norm_backward_input", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of group_norm with respect to its input";
  let description = [{As `layer_norm_backward_input`, with means over the channels and positions of a group.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias, RLX_FloatTensor:$dy, RLX_Count:$num_groups,
                       DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GroupNormBackwardGammaOp : RLX_Op<"group_norm_backward_gamma", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of group_norm with respect to its scale";
  let description = [{`sum dy·x̂` over all axes except the channels.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Count:$num_groups, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GroupNormBackwardBetaOp : RLX_Op<"group_norm_backward_beta", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of group_norm with respect to its bias";
  let description = [{`sum dy` over all axes except the channels.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Count:$num_groups, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_AttentionBackwardOp : RLX_Op<"attention_backward", "backward", [RLX_IsProduct]> {
  let summary = "Gradient of attention with respect to one of its inputs";
  let description = [{
    The vector-Jacobian product of `attention` with `dy`, for the operand `wrt`; `mask` is allowed if its kind is
    `bias`. Operands and attributes are those of `attention`, including scale, softcap, masks and grouped heads.
    Queries that see no key contribute to no gradient. Computed in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v, RLX_FloatTensor:$dy, Optional<RLX_OrderedTensor>:$mask,
                       RLX_Count:$num_heads, RLX_Count:$head_dim, RLX_AttentionInput:$wrt,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind, OptionalAttr<RLX_Amount>:$window,
                       OptionalAttr<RLX_Finite>:$score_scale, OptionalAttr<RLX_Positive>:$softcap,
                       DefaultValuedAttr<RLX_EmptyRows, "\"zeros\"">:$empty_rows);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_CumsumBackwardOp : RLX_Op<"cumsum_backward", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of cumsum";
  let description = [{The running sum of `dy` from the end; with `exclusive`, without the element itself.}];
  let arguments = (ins RLX_NumberTensor:$dy, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$exclusive);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_GatherBackwardOp : RLX_Op<"gather_backward", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of gather with respect to its table";
  let description = [{
    The slices of `dy`, added at their indices along `axis` of a table of zeros with `size` elements on that axis.
    Indices are clamped as in `gather`. `size` is a list of one dimension.
  }];
  let arguments = (ins RLX_InexactTensor:$dy, RLX_IndexTensor:$indices, I64Attr:$axis, RLX_ShapeAttr:$size);
  let results = (outs RLX_InexactTensor:$result);
}

def RLX_MaxPool2dBackwardOp : RLX_Op<"max_pool2d_backward", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of the maximum over windows of images";
  let description = [{
    Each element of `dy` goes to the first largest element of its window of `x [N, C, H, W]`, in row-major order. NaN
    counts as the largest, padding never does. The element of a window that contains only padding is dropped.
    Attributes are those of `pool`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Steps:$kernel, RLX_Steps:$stride,
                       RLX_Amounts:$padding);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_Conv2dBackwardInputOp : RLX_Op<"conv2d_backward_input", "backward", [RLX_IsProduct]> {
  let summary = "Gradient of conv with respect to its input";
  let description = [{
    `dy [N, O, h, w]`, `w [O, C/groups, kH, kW]`; the result is an image `[N, C, H, W]` with `size = [H, W]`. The
    other attributes are those of `conv`.
  }];
  let arguments = (ins RLX_FloatTensor:$dy, RLX_FloatTensor:$w, RLX_ShapeAttr:$size, RLX_Steps:$stride, RLX_Amounts:$padding,
                       RLX_Steps:$dilation, DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_Conv2dBackwardWeightOp : RLX_Op<"conv2d_backward_weight", "backward", [RLX_IsProduct]> {
  let summary = "Gradient of conv with respect to its kernel";
  let description = [{
    `x [N, C, H, W]`, `dy [N, O, h, w]`; the result is `[O, C/groups, kH, kW]` with `kernel = [kH, kW]`. The other
    attributes are those of `conv`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Steps:$kernel, RLX_Steps:$stride, RLX_Amounts:$padding,
                       RLX_Steps:$dilation, DefaultValuedAttr<RLX_Count, "1">:$groups);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_SoftmaxCrossEntropyBackwardOp : RLX_Op<"softmax_cross_entropy_backward", "backward", [RLX_IsReduction]> {
  let summary = "Gradient of softmax_cross_entropy_with_logits";
  let description = [{`(softmax(logits) - onehot(labels))·dloss`; 0 where the label is out of range.}];
  let arguments = (ins RLX_FloatTensor:$logits, RLX_IndexTensor:$labels, RLX_FloatTensor:$dloss);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FakeQuantizeBackwardOp : RLX_Op<"fake_quantize_backward", "backward"> {
  let summary = "Gradient of fake_quantize with a scale of the tensor itself";
  let description = [{`dy` times the factor of the estimator `ste`, with the scale `max|x|/qmax` of `x`.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$dy, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis,
                       DefaultValuedAttr<RLX_StraightThrough, "\"identity\"">:$ste);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FakeQuantizeLsqBackwardXOp : RLX_Op<"fake_quantize_lsq_backward_x", "backward"> {
  let summary = "Gradient of fake_quantize_lsq with respect to x";
  let description = [{`dy` where `|x/scale| <= qmax`, else 0.}];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$dy, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_FakeQuantizeLsqBackwardScaleOp : RLX_Op<"fake_quantize_lsq_backward_scale", "backward"> {
  let summary = "Gradient of fake_quantize_lsq with respect to its scale";
  let description = [{
    `sum dy·psi(x/scale)` over all elements that share the scale, with `psi(z) = round(z) - z` where `|z| <= qmax`,
    else `sign(z)·qmax`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$dy, RLX_Bits:$bits, OptionalAttr<I64Attr>:$axis);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_BACKWARD_TD
