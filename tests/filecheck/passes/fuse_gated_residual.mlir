// RUN: rlx-opt %s --rlx-fuse-gated-residual --check-numerics | filecheck %s

// CHECK-LABEL: func.func @gated(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_gated_residual(%arg0, %arg1, %arg2)
// CHECK-NEXT: return %[[y]]
func.func @gated(%x: tensor<2x3x4xf32>, %g: tensor<2x1x4xf32>, %r: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = rlx.binary(%g, %x) {kind = "mul"} : (tensor<2x1x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %1 = rlx.binary(%r, %0) {kind = "add"} : tensor<2x3x4xf32>
  return %1 : tensor<2x3x4xf32>
}

// The gate is as large as the branch, or a number; the sum is of a row.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<3x4xf32>, %b: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %half = rlx.constant() {value = dense<0.5> : tensor<4xf32>} : tensor<4xf32>
  %0 = rlx.binary(%x, %x) {kind = "mul"} : tensor<3x4xf32>
  %1 = rlx.binary(%x, %0) {kind = "add"} : tensor<3x4xf32>
  %2 = rlx.binary(%x, %half) {kind = "mul"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %3 = rlx.binary(%x, %2) {kind = "add"} : tensor<3x4xf32>
  %4 = rlx.binary(%x, %b) {kind = "mul"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %5 = rlx.binary(%4, %b) {kind = "add"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %1, %3, %5 : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}
