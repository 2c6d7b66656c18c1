//===- RlxNorm.td - Normalisation -------------------------------------------------------------===//

#ifndef RLX_NORM_TD
#define RLX_NORM_TD

include "RlxEnums.td"

def RLX_LayerNorm2dOp : RLX_Op<"layer_norm2d", "norm", [RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Layer normalisation over the channels of each pixel";
  let description = [{
    `x [N, C, H, W]`, normalised over `C` at every pixel, then scaled and shifted by `scale [C]` and `bias [C]`.
    Statistics are in f32 for f16 and bf16.
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

def RLX_LayerNormOp : RLX_Op<"layer_norm", "norm", [RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Layer normalisation along one axis";
  let description = [{
    `(x - mean x) / sqrt(var x + eps) * scale + bias`, statistics over `axis` (population variance), in f32
    for f16 and bf16. `scale` and `bias` have shape `[x.dim(axis)]`.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$scale, RLX_FloatTensor:$bias,
                       I64Attr:$axis, DefaultValuedAttr<RLX_NonNegative, "1e-5">:$eps);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RmsNormOp : RLX_Op<"rms_norm", "norm", [RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded]> {
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

#endif // RLX_NORM_TD
