// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-globals --rlx-iree-quantised-products \
// RUN:   | filecheck %s
// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-globals --rlx-iree-quantised-products=unsigned=true \
// RUN:   | filecheck %s --check-prefix=UNSIGNED

// The activations are in memory before the product.
// CHECK: [[X:%.+]] = "util.optimization_barrier"(%arg0)
// CHECK: linalg.matmul ins([[X]], {{%.+}} : tensor<4x8xi8>, tensor<8x3xi8>)
// CHECK-NOT: util.optimization_barrier

// They are moved by 128, and what that adds to the sums is subtracted.
// UNSIGNED: arith.xori
// UNSIGNED: "util.optimization_barrier"
// UNSIGNED: iterator_types = ["parallel", "parallel", "reduction"]
// UNSIGNED: arith.extui
// UNSIGNED: arith.extsi
// UNSIGNED: arith.muli
// UNSIGNED: iterator_types = ["reduction", "parallel"]
// UNSIGNED: "util.optimization_barrier"
// UNSIGNED: arith.subi
func.func @main(%x: tensor<4x8xi8>, %w: tensor<8x3xi8> {rlx.kind = "param", rlx.name = "w"}) -> tensor<4x3xf32> {
  %m = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %y = rlx.q_matmul(%x, %w, _, %m) {dtype = f32} : (tensor<4x8xi8>, tensor<8x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
}

// Two products of one tensor read it from one place.
// CHECK-LABEL: func.func @twice
// CHECK-COUNT-1: "util.optimization_barrier"
// CHECK-NOT: "util.optimization_barrier"
// CHECK: linalg.matmul
// CHECK: linalg.matmul
func.func @twice(%x: tensor<4x8xi8>, %w: tensor<8x3xi8> {rlx.kind = "param", rlx.name = "w"}) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %m = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %n = rlx.constant() {value = dense<0.25> : tensor<f32>} : tensor<f32>
  %y = rlx.q_matmul(%x, %w, _, %m) {dtype = f32} : (tensor<4x8xi8>, tensor<8x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  %z = rlx.q_matmul(%x, %w, _, %n) {dtype = f32} : (tensor<4x8xi8>, tensor<8x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  return %y, %z : tensor<4x3xf32>, tensor<4x3xf32>
}
