// RUN: rlx-opt %s --rlx-fuse-ada-layer-norm --check-numerics | filecheck %s

// CHECK-LABEL: func.func @modulated(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_ada_layer_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-05}
// CHECK-NEXT: return %[[y]]
func.func @modulated(%x: tensor<2x3x4xf32>, %scale: tensor<2x1x4xf32>, %shift: tensor<2x1x4xf32>) -> tensor<2x3x4xf32> {
  %one = rlx.constant() {value = dense<1.0> : tensor<4xf32>} : tensor<4xf32>
  %zero = rlx.constant() {value = dense<0.0> : tensor<4xf32>} : tensor<4xf32>
  %unit = rlx.constant() {value = dense<1.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.layer_norm(%x, %one, %zero) {axis = 2, eps = 1.0e-5} : (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  %1 = rlx.binary(%unit, %scale) {kind = "add"} : (tensor<f32>, tensor<2x1x4xf32>) -> tensor<2x1x4xf32>
  %2 = rlx.binary(%1, %0) {kind = "mul"} : (tensor<2x1x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %3 = rlx.binary(%shift, %2) {kind = "add"} : (tensor<2x1x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %3 : tensor<2x3x4xf32>
}

// The norm has weights; the factor is not one more than something.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<3x4xf32>, %s: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %one = rlx.constant() {value = dense<1.0> : tensor<4xf32>} : tensor<4xf32>
  %zero = rlx.constant() {value = dense<0.0> : tensor<4xf32>} : tensor<4xf32>
  %0 = rlx.layer_norm(%x, %s, %zero) {axis = 1} : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %1 = rlx.binary(%one, %s) {kind = "add"} : tensor<4xf32>
  %2 = rlx.binary(%0, %1) {kind = "mul"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %3 = rlx.binary(%2, %s) {kind = "add"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %4 = rlx.layer_norm(%x, %one, %zero) {axis = 1} : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %5 = rlx.binary(%4, %s) {kind = "mul"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %6 = rlx.binary(%5, %s) {kind = "add"} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %3, %6 : tensor<3x4xf32>, tensor<3x4xf32>
}
