// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A cotangent of another shape.
func.func @f(%0: tensor<2x3xf32>, %1: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.relu_backward' op 'dy' must be f32[2, 3], as the result of the forward op, got f32[3]}}
  rlx.relu_backward(%0, %1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

// A table of another size than the cotangent says.
func.func @f(%0: tensor<4x3xf32>, %1: tensor<5xi32>) {
  // expected-error @+1 {{'rlx.gather_backward' op 'dy' must be f32[5, 3], as the result of the forward op, got f32[4, 3]}}
  rlx.gather_backward(%0, %1) {axis = 0, size = [7]} : (tensor<4x3xf32>, tensor<5xi32>) -> tensor<7x3xf32>
  return
}

// -----

// No room for the axes of the indices.
func.func @f(%0: tensor<4x3xf32>, %1: tensor<4x3x1xi32>) {
  // expected-error @+1 {{'rlx.gather_backward' op axis 0 of the table leaves no room in f32[4, 3] for the axes of the indices i32[4, 3, 1]}}
  rlx.gather_backward(%0, %1) {axis = 0, size = [7]} : (tensor<4x3xf32>, tensor<4x3x1xi32>) -> tensor<7xf32>
  return
}

// -----

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

// -----

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
  // expected-error @+1 {{'rlx.max_pool2d_backward' op 'x' must have rank 4, got f32[2, 4, 4]}}
  rlx.max_pool2d_backward(%0, %1) {kernel = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<2x4x4xf32>, tensor<2x2x2xf32>) -> tensor<2x4x4xf32>
  return
}

// -----

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

// -----

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
