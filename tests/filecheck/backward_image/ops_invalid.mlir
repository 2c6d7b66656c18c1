// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A height that does not lead to that of the cotangent.
func.func @f(%0: tensor<1x4x3x3xf32>, %1: tensor<4x2x2x2xf32>) {
  // expected-error @+1 {{'rlx.conv2d_backward_input' op 'dy' must be f32[1, 4, 4, 3], as the result of the forward op, got f32[1, 4, 3, 3]}}
  rlx.conv2d_backward_input(%0, %1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, size = [5, 4], stride = array<i64: 1, 1>} : (tensor<1x4x3x3xf32>, tensor<4x2x2x2xf32>) -> tensor<1x2x5x4xf32>
  return
}

// -----

// Channels that do not divide.
func.func @f(%0: tensor<1x3x4x4xf32>, %1: tensor<1x4x3x3xf32>) {
  // expected-error @+1 {{'rlx.conv2d_backward_weight' op the 3 channels of f32[1, 3, 4, 4] do not divide into 2 groups}}
  rlx.conv2d_backward_weight(%0, %1) {dilation = array<i64: 1, 1>, groups = 2, kernel = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x3x4x4xf32>, tensor<1x4x3x3xf32>) -> tensor<4x1x2x2xf32>
  return
}

// -----

// Not an image.
func.func @f(%0: tensor<2x4x4xf32>, %1: tensor<2x2x2xf32>) {
  // expected-error @+1 {{'rlx.max_pool2d_backward' op 'x' must have rank 4, [N, C, H, W] or [O, C/groups, kH, kW], got f32[2, 4, 4]}}
  rlx.max_pool2d_backward(%0, %1) {kernel = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<2x4x4xf32>, tensor<2x2x2xf32>) -> tensor<2x4x4xf32>
  return
}
