// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A scale of another size.
func.func @layer_norm(%0: tensor<2x8xf32>, %1: tensor<7xf32>, %2: tensor<8xf32>) {
  // expected-error @+1 {{'rlx.layer_norm' op 'scale' must have shape [8] to go with f32[2, 8], got f32[7]}}
  rlx.layer_norm(%0, %1, %2) {axis = 1, eps = 1.0e-5} : (tensor<2x8xf32>, tensor<7xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// A scale of another dtype.
func.func @rms_norm(%0: tensor<2x8xf32>, %1: tensor<8xf16>) {
  // expected-error @+1 {{'rlx.rms_norm' op operands have different dtypes: f32, f16}}
  rlx.rms_norm(%0, %1) {axis = 1, eps = 1.0e-5} : (tensor<2x8xf32>, tensor<8xf16>) -> tensor<2x8xf32>
  return
}

// -----

// Groups that do not divide the channels.
func.func @group_norm(%0: tensor<2x4x3xf32>, %1: tensor<4xf32>, %2: tensor<4xf32>) {
  // expected-error @+1 {{'rlx.group_norm' op 4 channels do not divide into 3 groups}}
  rlx.group_norm(%0, %1, %2) {eps = 1.0e-5, num_groups = 3} : (tensor<2x4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4x3xf32>
  return
}
