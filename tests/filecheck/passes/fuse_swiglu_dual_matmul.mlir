// RUN: rlx-opt %s --rlx-fuse-swiglu-dual-matmul --check-numerics | filecheck %s

// CHECK-LABEL: func.func @parameters(
// CHECK-NEXT: %[[w:.*]] = rlx.concat(%arg1, %arg2) {axis = 1}
// CHECK-NEXT: %[[p:.*]] = rlx.matmul(%arg0, %[[w]])
// CHECK-NEXT: %[[y:.*]] = rlx.fused_swiglu(%[[p]])
// CHECK-NEXT: return %[[y]]
func.func @parameters(%x: tensor<2x4xf32>, %up: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "up"}, %gate: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "gate"}) -> tensor<2x3xf32> {
  %0 = rlx.matmul(%x, %up) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.matmul(%x, %gate) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%1) {kind = "silu"} : tensor<2x3xf32>
  %3 = rlx.binary(%2, %0) {kind = "mul"} : tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}

// To join weights that are not parameters takes time in every run.
// CHECK-LABEL: func.func @inputs(
// CHECK-NOT: fused
// CHECK: return
func.func @inputs(%x: tensor<2x4xf32>, %up: tensor<4x3xf32>, %gate: tensor<4x3xf32>) -> tensor<2x3xf32> {
  %0 = rlx.matmul(%x, %up) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.matmul(%x, %gate) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%1) {kind = "silu"} : tensor<2x3xf32>
  %3 = rlx.binary(%2, %0) {kind = "mul"} : tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}
