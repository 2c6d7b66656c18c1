// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Heads that do not fill the width.
func.func @attention(%0: tensor<2x3x8xf32>, %1: tensor<2x3x8xf32>, %2: tensor<2x3x8xf32>) {
  // expected-error @+1 {{'rlx.attention' op q f32[2, 3, 8] does not hold 2 heads of 3}}
  rlx.attention(%0, %1, %2) {head_dim = 3, mask_kind = "none", num_heads = 2} : tensor<2x3x8xf32>
  return
}

// -----

// A mask that is missing.
func.func @attention(%0: tensor<2x3x8xf32>, %1: tensor<2x3x8xf32>, %2: tensor<2x3x8xf32>) {
  // expected-error @+1 {{'rlx.attention' op mask_kind 'custom' needs mask operand}}
  rlx.attention(%0, %1, %2) {head_dim = 4, mask_kind = "custom", num_heads = 2} : tensor<2x3x8xf32>
  return
}

// -----

// An odd number of rotated elements.
func.func @rope(%0: tensor<2x3x8xf32>, %1: tensor<3x2xf32>, %2: tensor<3x2xf32>) {
  // expected-error @+1 {{'rlx.rope' op n_rot = 3 must be even and at most head_dim = 4}}
  rlx.rope(%0, %1, %2) {head_dim = 4, n_rot = 3, style = "neox"} : (tensor<2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x8xf32>
  return
}
