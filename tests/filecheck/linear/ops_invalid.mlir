// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Contracted sizes that differ.
module attributes {rlx.stage = "hir"} {
  func.func @linear(%0: tensor<2x3xf32>, %1: tensor<4x5xf32>) {
    // expected-error @+1 {{'rlx.linear' op f32[2, 3] @ f32[4, 5]: 3 columns against 4 rows}}
    rlx.linear(%0, %1) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
    return
  }
}

// -----

// A bias of another size.
module attributes {rlx.stage = "hir"} {
  func.func @linear_fused(%0: tensor<2x3xf32>, %1: tensor<3x5xf32>, %2: tensor<4xf32>) {
    // expected-error @+1 {{'rlx.linear_fused' op 'bias' must have shape [5] to go with f32[2, 3], got f32[4]}}
    rlx.linear_fused(%0, %1, %2) : (tensor<2x3xf32>, tensor<3x5xf32>, tensor<4xf32>) -> tensor<2x5xf32>
    return
  }
}

// -----

// Weights for another width.
module attributes {rlx.stage = "hir"} {
  func.func @shared_linear_pair(%0: tensor<2x3xf32>, %1: tensor<3x5xf32>, %2: tensor<4x5xf32>) {
    // expected-error @+1 {{'rlx.shared_linear_pair' op f32[2, 3] @ f32[4, 5]: 3 columns against 4 rows}}
    rlx.shared_linear_pair(%0, %1, %2) : (tensor<2x3xf32>, tensor<3x5xf32>, tensor<4x5xf32>) -> (tensor<2x5xf32>, tensor<2x5xf32>)
    return
  }
}

// -----

// Up and gate of two shapes.
module attributes {rlx.stage = "hir"} {
  func.func @swiglu_ffn(%0: tensor<2x4xf32>, %1: tensor<4x6xf32>, %2: tensor<4x5xf32>, %3: tensor<6x4xf32>) {
    // expected-error @+1 {{'rlx.swiglu_ffn' op up f32[4, 6] and gate f32[4, 5] must have one shape}}
    rlx.swiglu_ffn(%0, %1, %2, %3) : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<4x5xf32>, tensor<6x4xf32>) -> tensor<2x4xf32>
    return
  }
}

// -----

// A residual of another shape.
module attributes {rlx.stage = "hir"} {
  func.func @residual_rms_norm(%0: tensor<2x8xf32>, %1: tensor<2x4xf32>, %2: tensor<8xf32>, %3: tensor<8xf32>) {
    // expected-error @+1 {{'rlx.residual_rms_norm' op x f32[2, 8] and residual f32[2, 4] must have one shape of rank 1 or more}}
    rlx.residual_rms_norm(%0, %1, %2, %3) {eps = 1.0e-5} : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
    return
  }
}
