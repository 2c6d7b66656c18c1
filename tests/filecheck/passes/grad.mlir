// RUN: rlx-opt %s --rlx-grad="wrt=w" | filecheck %s
// RUN: rlx-opt %s --rlx-grad="wrt=w,x with-loss=true" | filecheck %s --check-prefix=LOSS
// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-grad{wrt=w},rlx-jvp{tangents=x})" | filecheck %s --check-prefix=TWICE
// RUN: not rlx-opt %s --rlx-grad="wrt=unused unused=error" 2>&1 | filecheck %s --check-prefix=UNUSED
// RUN: not rlx-opt %s --rlx-grad="wrt=v" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --rlx-grad="wrt=w loss=y" 2>&1 | filecheck %s --check-prefix=SCALAR

// UNUSED: error: rlx-grad: 'unused' does not reach the loss of graph 'main'
// UNKNOWN: error: rlx-grad: the graph has no argument 'v'
// SCALAR: grad.mlir:{{[0-9]+}}:{{.*}} error: rlx-grad: the loss 'y' must be a scalar of floats, got f32[2, 4]

// CHECK-LABEL: func.func @main(
// CHECK-SAME: -> (tensor<3x4xf32> {rlx.name = "grad_w"})
// CHECK: rlx.matmul
// CHECK-NOT: rlx.activation(
// CHECK: %[[DY:.*]] = rlx.activation_backward(
// CHECK-NEXT: %[[DW:.*]] = rlx.dot_general(%arg0, %[[DY]])
// CHECK-NEXT: return %[[DW]]
// LOSS-LABEL: func.func @main(
// LOSS-SAME: {rlx.name = "loss"}, tensor<3x4xf32> {rlx.name = "grad_w"}, tensor<2x3xf32> {rlx.name = "grad_x"}, tensor<2x4xf32> {rlx.name = "y"}
// TWICE-LABEL: func.func @main(
// TWICE-SAME: {rlx.kind = "input", rlx.name = "tangent_x"}
// TWICE-SAME: {rlx.name = "grad_w"}, tensor<3x4xf32> {rlx.name = "tangent_grad_w"}
func.func @main(%x: tensor<2x3xf32> {rlx.name = "x", rlx.kind = "input"}, %w: tensor<3x4xf32> {rlx.name = "w", rlx.kind = "param"},
                %u: tensor<4xf32> {rlx.name = "unused", rlx.kind = "param"})
    -> (tensor<f32> {rlx.name = "loss"}, tensor<2x4xf32> {rlx.name = "y"}) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %1 = rlx.activation(%0) {kind = "tanh"} : tensor<2x4xf32>
  %2 = rlx.reduce(%1) {kind = "sum", axes = array<i64: 0, 1>, keep_dims = false} : (tensor<2x4xf32>) -> tensor<f32>
  return %2, %1 : tensor<f32>, tensor<2x4xf32>
}
