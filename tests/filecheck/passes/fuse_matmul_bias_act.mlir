// RUN: rlx-opt %s --rlx-fuse-matmul-bias-act --check-numerics | filecheck %s

// CHECK-LABEL: func.func @gelu(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "gelu"}
// CHECK-NEXT: return %[[y]]
func.func @gelu(%x: tensor<?x4xf32, #rlx.dims<["n"]>>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.matmul(%x, %w) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  %1 = rlx.binary(%b, %0) {kind = "add"} : (tensor<3xf32>, tensor<?x3xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  %2 = rlx.activation(%1) {kind = "gelu"} : tensor<?x3xf32, #rlx.dims<["n"]>>
  return %2 : tensor<?x3xf32, #rlx.dims<["n"]>>
}

// Any activation, and a bias of another rank.
// CHECK-LABEL: func.func @exp(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "exp"} : (tensor<2x4xf32>, tensor<4x3xf32>, tensor<2x1xf32>)
// CHECK-NEXT: return %[[y]]
func.func @exp(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %b: tensor<2x1xf32>) -> tensor<2x3xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%1) {kind = "exp"} : tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}

// The product is read twice; a bias that is a matrix; integers.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %b: tensor<3xf32>, %m: tensor<2x3xf32>, %i: tensor<3x3xi32>, %j: tensor<3xi32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x3xi32>) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %2 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %3 = rlx.binary(%2, %m) {kind = "add"} : tensor<2x3xf32>
  %4 = rlx.matmul(%i, %i) : tensor<3x3xi32>
  %5 = rlx.binary(%4, %j) {kind = "add"} : (tensor<3x3xi32>, tensor<3xi32>) -> tensor<3x3xi32>
  return %0, %1, %3, %5 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x3xi32>
}
