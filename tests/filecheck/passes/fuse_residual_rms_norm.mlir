// RUN: rlx-opt %s --rlx-fuse-residual-rms-norm --check-numerics | filecheck %s

// CHECK-LABEL: func.func @with_bias(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, %arg3)
// CHECK-NEXT: return %[[y]]
func.func @with_bias(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.rms_norm(%0, %s, %b) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @without_bias(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, _)
// CHECK-NEXT: return %[[y]]
func.func @without_bias(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.rms_norm(%0, %s) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// A bias of the sum, wherever it is added.
// CHECK-LABEL: func.func @bias_of_the_sum(
// CHECK-NEXT: rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg2, _)
// CHECK-NEXT: rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg2, _)
// CHECK-NEXT: return
func.func @bias_of_the_sum(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %0 = rlx.binary(%x, %s) {kind = "add"} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %1 = rlx.binary(%0, %r) {kind = "add"} : tensor<2x4xf32>
  %2 = rlx.rms_norm(%1, %s) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %3 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %4 = rlx.binary(%s, %3) {kind = "add"} : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %5 = rlx.rms_norm(%4, %s) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %2, %5 : tensor<2x4xf32>, tensor<2x4xf32>
}
