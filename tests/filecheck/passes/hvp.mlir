// RUN: rlx-opt %s --rlx-hvp="wrt=x" | filecheck %s
// RUN: rlx-opt %s --rlx-hessian="wrt=x" | filecheck %s --check-prefix=HESSIAN
// RUN: rlx-opt %s --rlx-nth-order-grad="wrt=s order=3" | filecheck %s --check-prefix=NTH
// RUN: not rlx-opt %s --rlx-nth-order-grad="wrt=x order=2" 2>&1 | filecheck %s --check-prefix=SCALAR

// CHECK-LABEL: func.func @main(
// CHECK-SAME: {rlx.kind = "input", rlx.name = "tangent_x"}
// CHECK-SAME: -> (tensor<f32> {rlx.name = "loss"}, tensor<3xf32> {rlx.name = "grad_x"}, tensor<3xf32> {rlx.name = "hvp_x"})
// HESSIAN-LABEL: func.func @main(
// HESSIAN-SAME: -> (tensor<3x3xf32> {rlx.name = "hessian_x_x"})
// NTH-LABEL: func.func @main(
// NTH-SAME: -> (tensor<f32> {rlx.name = "grad3_s"})
// SCALAR: error: rlx-nth-order-grad: 'x' must be a scalar of floats, got f32[3]
func.func @main(%x: tensor<3xf32> {rlx.name = "x"}, %s: tensor<f32> {rlx.name = "s"}) -> (tensor<f32> {rlx.name = "loss"}) {
  %0 = rlx.binary(%x, %s) {kind = "mul"} : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  %1 = rlx.activation(%0) {kind = "sin"} : tensor<3xf32>
  %2 = rlx.reduce(%1) {kind = "sum", axes = array<i64: 0>, keep_dims = false} : (tensor<3xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}
