// RUN: rlx-opt %s --rlx-fuse-residual-rms-norm --check-numerics | filecheck %s

// CHECK-LABEL: func.func @with_bias(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg3)
// CHECK-NEXT: return %[[y]]
func.func @with_bias(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.rms_norm(%0, %s, %b) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @without_bias(
// CHECK: rlx.rms_norm(
func.func @without_bias(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.rms_norm(%0, %s) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
