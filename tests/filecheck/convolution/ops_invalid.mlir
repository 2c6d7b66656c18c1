// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Channels that differ.
func.func @conv(%0: tensor<1x3x8x8xf32>, %1: tensor<4x2x3x3xf32>) {
  // expected-error @+1 {{'rlx.conv' op f32[1, 3, 8, 8] with 1 groups needs w [k·1, 3/1, …], got f32[4, 2, 3, 3]}}
  rlx.conv(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

// Too few paddings.
func.func @conv(%0: tensor<1x3x8x8xf32>, %1: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'rlx.conv' op padding needs 4 entries for 2 spatial axes, got [0, 0]}}
  rlx.conv(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}
