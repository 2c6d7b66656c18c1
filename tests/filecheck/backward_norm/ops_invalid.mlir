// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A scale of another size.
func.func @f(%0: tensor<2x8xf32>, %1: tensor<7xf32>, %2: tensor<2x8xf32>) {
  // expected-error @+1 {{'rlx.layer_norm_backward_input' op 'scale' must have shape [8] to go with f32[2, 8], got f32[7]}}
  rlx.layer_norm_backward_input(%0, %1, %2) {axis = 1, eps = 1.0e-5} : (tensor<2x8xf32>, tensor<7xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// A cotangent of another dtype.
func.func @f(%0: tensor<2x4x3xf32>, %1: tensor<2x4x3xf16>) {
  // expected-error @+1 {{'rlx.group_norm_backward_beta' op 'dy' must be f32[2, 4, 3], as the result of the forward op, got f16[2, 4, 3]}}
  rlx.group_norm_backward_beta(%0, %1) {eps = 1.0e-5, num_groups = 2} : (tensor<2x4x3xf32>, tensor<2x4x3xf16>) -> tensor<4xf32>
  return
}
