// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A mask that is none has no gradient.
func.func @f(%0: tensor<1x2x4xf32>, %1: tensor<1x2x4xf32>, %2: tensor<1x2x4xf32>, %3: tensor<1x2x4xf32>) {
  // expected-error @+1 {{'rlx.attention_backward' op wrt 'mask' needs mask_kind 'bias': one of kind 'causal' has no gradient}}
  rlx.attention_backward(%0, %1, %2, %3) {head_dim = 4, mask_kind = "causal", num_heads = 1, wrt = "mask"} : tensor<1x2x4xf32>
  return
}

// -----

// A cotangent as wide as the queries, where the values are narrower.
func.func @f(%0: tensor<1x2x4xf32>, %1: tensor<1x2x4xf32>, %2: tensor<1x2x3xf32>, %3: tensor<1x2x4xf32>) {
  // expected-error @+1 {{'rlx.attention_backward' op 'dy' must be f32[1, 2, 3], as the result of the forward op, got f32[1, 2, 4]}}
  rlx.attention_backward(%0, %1, %2, %3) {head_dim = 4, mask_kind = "none", num_heads = 1, wrt = "key"} : (tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  return
}
