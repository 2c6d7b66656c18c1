// RUN: rlx-opt %s --rlx-checkpoint --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-checkpoint="memory-limit=1000000" | filecheck %s --check-prefix=FITS
// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-checkpoint,rlx-grad{wrt=w})" | filecheck %s --check-prefix=GRAD
// RUN: not rlx-opt %s --rlx-checkpoint="memory-limit=16" 2>&1 | filecheck %s --check-prefix=LIMIT

// LIMIT: error: rlx-checkpoint: the forward pass needs {{[0-9]+}} bytes at least

// CHECK-LABEL: func.func @main(
// CHECK: rlx.checkpoint() : tensor<f32> {
// CHECK-NEXT: rlx.matmul(
// CHECK-NEXT: rlx.activation(
// CHECK-NEXT: rlx.reduce(
// CHECK-NEXT: rlx.yield
// FITS-NOT: rlx.checkpoint
// GRAD-LABEL: func.func @main(
// GRAD: rlx.optimization_barrier(
// GRAD: rlx.matmul(
// GRAD: rlx.activation_backward(
func.func @main(%x: tensor<2x3xf32> {rlx.name = "x"}, %w: tensor<3x4xf32> {rlx.name = "w", rlx.kind = "param"}) -> tensor<f32> {
  %0 = rlx.matmul(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %1 = rlx.activation(%0) {kind = "exp"} : tensor<2x4xf32>
  %2 = rlx.reduce(%1) {kind = "sum", axes = array<i64: 0, 1>, keep_dims = false} : (tensor<2x4xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}
