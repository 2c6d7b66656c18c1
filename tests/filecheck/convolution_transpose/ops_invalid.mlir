// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Channels that differ.
func.func @f(%0: tensor<1x2x4x4xf32>, %1: tensor<3x2x2x2xf32>) {
  // expected-error @+1 {{'rlx.conv_transpose' op f32[1, 2, 4, 4] with 1 groups needs w [C = 2 = k·1, O/groups, …], got f32[3, 2, 2, 2]}}
  rlx.conv_transpose(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 0, 0>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<3x2x2x2xf32>) -> tensor<1x3x5x5xf32>
  return
}

// -----

// More is taken off than there is.
func.func @f(%0: tensor<1x2x4x4xf32>, %1: tensor<2x3x2x2xf32>) {
  // expected-error @+1 {{'rlx.conv_transpose' op spatial axis 1 has 5 positions: too few for padding 4 and 2}}
  rlx.conv_transpose(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 0, 0>, padding = array<i64: 0, 0, 4, 2>, stride = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<2x3x2x2xf32>) -> tensor<1x3x5x5xf32>
  return
}

// -----

// One number for two axes.
func.func @f(%0: tensor<1x2x4x4xf32>, %1: tensor<2x3x2x2xf32>) {
  // expected-error @+1 {{'rlx.conv_transpose' op output_padding needs 2 entries, got [1]}}
  rlx.conv_transpose(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 1>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<2x3x2x2xf32>) -> tensor<1x3x5x5xf32>
  return
}
