// RUN: rlx-opt %s --rlx-fuse-attention-block --check-numerics | filecheck %s

// CHECK-LABEL: func.func @rotated(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_attention_block(%arg0, %arg1, %arg2, _, _, %arg3, %arg4, %arg5) {head_dim = 2, mask_kind = "causal", num_heads = 2}
// CHECK-NEXT: return %[[y]]
func.func @rotated(%x: tensor<1x3x4xf32>, %w: tensor<4x12xf32>, %o: tensor<4x4xf32>, %b: tensor<4xf32>, %cos: tensor<3x1xf32>, %sin: tensor<3x1xf32>) -> tensor<1x3x4xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<1x3x4xf32>, tensor<4x12xf32>) -> tensor<1x3x12xf32>
  %1 = rlx.narrow(%0) {axis = 2, length = [4], start = [0]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %2 = rlx.narrow(%0) {axis = 2, length = [4], start = [4]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %3 = rlx.narrow(%0) {axis = 2, length = [4], start = [8]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %4 = rlx.rope(%1, %cos, %sin) {head_dim = 2, n_rot = 2, style = "neox"} : (tensor<1x3x4xf32>, tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<1x3x4xf32>
  %5 = rlx.rope(%2, %cos, %sin) {head_dim = 2, n_rot = 2, style = "neox"} : (tensor<1x3x4xf32>, tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<1x3x4xf32>
  %6 = rlx.attention(%4, %5, %3) {num_heads = 2, head_dim = 2, mask_kind = "causal"} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %7 = rlx.fused_matmul_bias_act(%6, %o, %b) : (tensor<1x3x4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  return %7 : tensor<1x3x4xf32>
}

// The thirds stand in another order.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<1x3x4xf32>, %w: tensor<4x12xf32>, %o: tensor<4x4xf32>) -> tensor<1x3x4xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<1x3x4xf32>, tensor<4x12xf32>) -> tensor<1x3x12xf32>
  %1 = rlx.narrow(%0) {axis = 2, length = [4], start = [0]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %2 = rlx.narrow(%0) {axis = 2, length = [4], start = [4]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %3 = rlx.narrow(%0) {axis = 2, length = [4], start = [8]} : (tensor<1x3x12xf32>) -> tensor<1x3x4xf32>
  %4 = rlx.attention(%2, %1, %3) {num_heads = 2, head_dim = 2, mask_kind = "none"} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %5 = rlx.matmul(%4, %o) : (tensor<1x3x4xf32>, tensor<4x4xf32>) -> tensor<1x3x4xf32>
  return %5 : tensor<1x3x4xf32>
}
