// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A bias of another size.
func.func @fused_matmul_bias_act(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>, %2: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.fused_matmul_bias_act' op bias f32[3] must broadcast to the product f32[2, 4]}}
  rlx.fused_matmul_bias_act(%0, %1, %2) : (tensor<2x3xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x4xf32>
  return
}

// -----

// An odd width.
func.func @fused_swiglu(%0: tensor<2x5xf32>) {
  // expected-error @+1 {{'rlx.fused_swiglu' op the last axis of f32[2, 5] does not split into two halves}}
  rlx.fused_swiglu(%0) {gate_first = false} : (tensor<2x5xf32>) -> tensor<2x2xf32>
  return
}

// -----

// A residual of another shape.
func.func @fused_residual_layer_norm(%0: tensor<2x8xf32>, %1: tensor<3x8xf32>, %2: tensor<8xf32>, %3: tensor<8xf32>) {
  // expected-error @+1 {{'rlx.fused_residual_layer_norm' op x f32[2, 8] and residual f32[3, 8] must have one shape of rank 1 or more}}
  rlx.fused_residual_layer_norm(%0, %1, %2, %3) {eps = 1.0e-5} : (tensor<2x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// A shift of another size.
func.func @fused_residual_rms_norm(%0: tensor<2x8xf32>, %1: tensor<2x8xf32>, %2: tensor<8xf32>, %3: tensor<7xf32>) {
  // expected-error @+1 {{'rlx.fused_residual_rms_norm' op 'shift' must have shape [8] to go with f32[2, 8], got f32[7]}}
  rlx.fused_residual_rms_norm(%0, %1, _, %2, %3) {eps = 1.0e-5} : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<7xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @conv_bias(%x: tensor<1x2x4xf32>, %w: tensor<3x2x1xf32>, %b: tensor<2xf32>) -> tensor<1x3x4xf32> {
  // expected-error @+1 {{'rlx.fused_conv_bias_act' op 'bias' must have shape [3] to go with f32[1, 2, 4], got f32[2]}}
  %0 = rlx.fused_conv_bias_act(%x, %w, %b) {stride = array<i64: 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1>, groups = 1} : (tensor<1x2x4xf32>, tensor<3x2x1xf32>, tensor<2xf32>) -> tensor<1x3x4xf32>
  return %0 : tensor<1x3x4xf32>
}

// -----

func.func @product_residual(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{'rlx.fused_matmul_residual' op residual f32[2, 3] must have the shape of the product, f32[2, 4]}}
  %0 = rlx.fused_matmul_residual(%x, %w, %x) : (tensor<2x3xf32>, tensor<3x4xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

func.func @modulation(%x: tensor<2x3xf32>, %s: tensor<2xf32>) -> tensor<2x3xf32> {
  // expected-error @+1 {{'rlx.fused_ada_layer_norm' op scale f32[2] and shift f32[2] must broadcast to x f32[2, 3], of rank 1 or more}}
  %0 = rlx.fused_ada_layer_norm(%x, %s, %s) {eps = 1.0e-5} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @gate(%x: tensor<2x3xf32>, %g: tensor<2xf32>) -> tensor<2x3xf32> {
  // expected-error @+1 {{'rlx.fused_gated_residual' op x f32[2, 3] and residual f32[2, 3] must have one shape, to which gate f32[2] broadcasts}}
  %0 = rlx.fused_gated_residual(%x, %g, %x) : (tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
