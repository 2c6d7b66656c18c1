// RUN: rlx-opt %s --rlx-fuse-matmul-residual --check-numerics | filecheck %s

// CHECK-LABEL: func.func @residual(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_matmul_residual(%arg0, %arg1, %arg3)
// CHECK-NEXT: %[[z:.*]] = rlx.fused_matmul_residual(%[[y]], %arg1, %arg0, %arg2)
// CHECK-NEXT: return %[[z]]
func.func @residual(%x: tensor<?x4xf32, #rlx.dims<["n"]>>, %w: tensor<4x4xf32>, %b: tensor<4xf32>, %r: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.matmul(%x, %w) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x4xf32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %1 = rlx.binary(%r, %0) {kind = "add"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  %2 = rlx.fused_matmul_bias_act(%1, %w, %b) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x4xf32>, tensor<4xf32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %3 = rlx.binary(%2, %x) {kind = "add"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %3 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// The product is read elsewhere; an activation is between; the other one is a bias.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: matmul_residual
// CHECK: return
func.func @not_fused(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %b: tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = rlx.matmul(%x, %w) : tensor<4x4xf32>
  %1 = rlx.binary(%0, %x) {kind = "add"} : tensor<4x4xf32>
  %2 = rlx.fused_matmul_bias_act(%x, %w, %b) {activation = "relu"} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %3 = rlx.binary(%2, %x) {kind = "add"} : tensor<4x4xf32>
  %4 = rlx.matmul(%w, %x) : tensor<4x4xf32>
  %5 = rlx.binary(%4, %b) {kind = "add"} : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %0, %1, %3, %5 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
