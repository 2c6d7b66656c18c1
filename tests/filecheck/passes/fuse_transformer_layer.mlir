// RUN: rlx-opt %s --rlx-fuse-transformer-layer --check-numerics | filecheck %s

// CHECK-LABEL: func.func @layer(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_transformer_layer(%arg0, %arg2, %arg3, %arg4, %arg4, %arg5, %arg6, %arg4, %arg4, %arg1, %arg7, %arg4, %arg8, %arg4) {activation = "gelu"
// CHECK-NEXT: return %[[y]]
func.func @layer(%x: tensor<1x3x4xf32>, %m: tensor<1x3xf32>, %w: tensor<4x12xf32>, %o: tensor<4x4xf32>, %e: tensor<4xf32>, %up: tensor<4x6xf32>, %down: tensor<6x4xf32>, %bqkv: tensor<12xf32>, %bup: tensor<6xf32>) -> tensor<1x3x4xf32> {
  %0 = rlx.fused_attention_block(%x, %w, %o, %m, %bqkv, %e, _, _) {num_heads = 2, head_dim = 2} : (tensor<1x3x4xf32>, tensor<4x12xf32>, tensor<4x4xf32>, tensor<1x3xf32>, tensor<12xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  %1 = rlx.fused_residual_layer_norm(%x, %0, %e, %e) {eps = 1.0e-3} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  %2 = rlx.fused_matmul_bias_act(%1, %up, %bup) {activation = "gelu"} : (tensor<1x3x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> tensor<1x3x6xf32>
  %3 = rlx.fused_matmul_bias_act(%2, %down, %e) : (tensor<1x3x6xf32>, tensor<6x4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  %4 = rlx.fused_residual_layer_norm(%3, %1, %e, %e) {eps = 1.0e-3} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  return %4 : tensor<1x3x4xf32>
}

// Not all of the products have a bias.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: transformer
// CHECK: return
func.func @not_fused(%x: tensor<1x3x4xf32>, %m: tensor<1x3xf32>, %w: tensor<4x12xf32>, %o: tensor<4x4xf32>, %e: tensor<4xf32>, %up: tensor<4x6xf32>, %down: tensor<6x4xf32>, %bup: tensor<6xf32>) -> tensor<1x3x4xf32> {
  %0 = rlx.fused_attention_block(%x, %w, %o, %m, _, _, _, _) {num_heads = 2, head_dim = 2} : (tensor<1x3x4xf32>, tensor<4x12xf32>, tensor<4x4xf32>, tensor<1x3xf32>) -> tensor<1x3x4xf32>
  %1 = rlx.fused_residual_layer_norm(%x, %0, %e, %e) {eps = 1.0e-3} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  %2 = rlx.fused_matmul_bias_act(%1, %up, %bup) {activation = "gelu"} : (tensor<1x3x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> tensor<1x3x6xf32>
  %3 = rlx.fused_matmul_bias_act(%2, %down, %e) : (tensor<1x3x6xf32>, tensor<6x4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  %4 = rlx.fused_residual_layer_norm(%3, %1, %e, %e) {eps = 1.0e-3} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  return %4 : tensor<1x3x4xf32>
}
