// RUN: rlx-opt %s --rlx-fuse-residual-layer-norm --check-numerics | filecheck %s

// CHECK-LABEL: func.func @post_norm(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3) {eps = {{.*}}}
// CHECK-NEXT: return %[[y]]
func.func @post_norm(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.layer_norm(%0, %s, %b) {axis = 1, eps = 1.0e-3} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// The sum is read elsewhere; it broadcasts; the norm is along another axis.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<4x4xf32>, %r: tensor<4x4xf32>, %s: tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = rlx.binary(%x, %r) {kind = "add"} : tensor<4x4xf32>
  %1 = rlx.layer_norm(%0, %s, %s) {axis = 1} : (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %2 = rlx.binary(%x, %s) {kind = "add"} : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %3 = rlx.layer_norm(%2, %s, %s) {axis = 1} : (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %4 = rlx.binary(%r, %r) {kind = "add"} : tensor<4x4xf32>
  %5 = rlx.layer_norm(%4, %s, %s) {axis = 0} : (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %0, %1, %3, %5 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
