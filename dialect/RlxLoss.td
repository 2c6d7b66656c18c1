//===- RlxLoss.td - Losses --------------------------------------------------------------------===//

#ifndef RLX_LOSS_TD
#define RLX_LOSS_TD

include "RlxEnums.td"

def RLX_SoftmaxCrossEntropyWithLogitsOp : RLX_Op<"softmax_cross_entropy_with_logits", "loss", [RLX_IsReduction]> {
  let summary = "Cross entropy of softmax(logits) against integer labels";
  let description = [{
    `logits […, C]`, integer `labels […]`; `result[…] = log(sum exp(logits)) - logits[label]`. A label outside
    `[0, C)` is ignored: its loss is 0. Computed in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$logits, RLX_IndexTensor:$labels);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_BinaryCrossEntropyWithLogitsOp : RLX_Op<"binary_cross_entropy_with_logits", "loss", [RLX_IsReduction]> {
  let summary = "Cross entropy of sigmoid(logits) against probabilities";
  let description = [{
    `max(x, 0) - x·t + log(1 + exp(-|x|))` for `logits` x and `targets` t of one shape; `reduction` selects the mean
    or sum.
  }];
  let arguments = (ins RLX_FloatTensor:$logits, RLX_FloatTensor:$targets,
                       DefaultValuedAttr<RLX_LossReduction, "\"mean\"">:$reduction);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_MseLossOp : RLX_Op<"mse_loss", "loss", [RLX_IsReduction]> {
  let summary = "Squared difference";
  let description = [{`(prediction - target)^2` for tensors of one shape; `reduction` selects the mean or sum.}];
  let arguments = (ins RLX_FloatTensor:$prediction, RLX_FloatTensor:$target,
                       DefaultValuedAttr<RLX_LossReduction, "\"mean\"">:$reduction);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_HuberLossOp : RLX_Op<"huber_loss", "loss", [RLX_IsReduction]> {
  let summary = "Squared difference that grows linearly where it is large";
  let description = [{
    With `d = |prediction - target|`: `d^2/2` where `d <= delta`, else `delta·(d - delta/2)`; `reduction` selects the
    mean or sum (Huber 1964).
  }];
  let arguments = (ins RLX_FloatTensor:$prediction, RLX_FloatTensor:$target, DefaultValuedAttr<RLX_Positive, "1.0">:$delta,
                       DefaultValuedAttr<RLX_LossReduction, "\"mean\"">:$reduction);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_LOSS_TD
