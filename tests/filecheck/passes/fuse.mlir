// RUN: rlx-opt %s --rlx-lower-blocks --rlx-fuse --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-lower-blocks --rlx-fuse=only=residual-layer-norm | filecheck %s --check-prefix=ONLY
// RUN: not rlx-opt %s --rlx-fuse=only=swiglo 2>&1 | filecheck %s --check-prefix=WRONG

// WRONG: error: rlx-fuse: there is no fusion 'swiglo' (did you mean 'swiglu'?)

module attributes {rlx.stage = "hir"} {
  // CHECK-LABEL: func.func @encoder(
  // CHECK-NOT: rlx.matmul
  // CHECK: rlx.attention(
  // CHECK-NEXT: rlx.fused_matmul_bias_act(
  // CHECK-NEXT: rlx.fused_residual_layer_norm(
  // CHECK-NEXT: rlx.fused_matmul_bias_act({{.*}} {activation = "gelu"}
  // CHECK-NEXT: rlx.fused_matmul_bias_act(
  // CHECK-NEXT: rlx.fused_residual_layer_norm(
  // CHECK-NEXT: return
  // ONLY-LABEL: func.func @encoder(
  // ONLY-NOT: fused_matmul
  // ONLY: rlx.fused_residual_layer_norm(
  func.func @encoder(%x: tensor<1x2x4xf32>, %w: tensor<4x4xf32>, %b: tensor<4xf32>, %up: tensor<4x6xf32>, %bup: tensor<6xf32>, %down: tensor<6x4xf32>) -> tensor<1x2x4xf32> {
    %0 = rlx.transformer_encoder_block(%x, %w, %b, %w, %b, %w, %b, %w, %b, %b, %b, %up, %bup, %down, %b, %b, %b) {num_heads = 2} : (tensor<1x2x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x6xf32>, tensor<6xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
    return %0 : tensor<1x2x4xf32>
  }
}
