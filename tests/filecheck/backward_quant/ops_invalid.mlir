// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A scale for each column, and no axis.
func.func @f(%0: tensor<2x4xf32>, %1: tensor<4xf32>, %2: tensor<2x4xf32>) {
  // expected-error @+1 {{'rlx.fake_quantize_lsq_backward_x' op 'scale' must be a scalar, to go with f32[2, 4]; got f32[4]}}
  rlx.fake_quantize_lsq_backward_x(%0, %1, %2) {bits = 4} : (tensor<2x4xf32>, tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

// Too few bits.
func.func @f(%0: tensor<2x4xf32>, %1: tensor<2x4xf32>) {
  // expected-error @+1 {{'rlx.fake_quantize_backward' op attribute 'bits': 1 is not in [2, 16]}}
  rlx.fake_quantize_backward(%0, %1) {bits = 1, ste = "identity"} : tensor<2x4xf32>
  return
}
