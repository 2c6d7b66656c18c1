// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-splats | filecheck %s

// The sum of a function of one number everywhere is that of a tensor in memory.
// CHECK-LABEL: func.func @same
// CHECK: [[ALL:%.*]] = "util.optimization_barrier"
// CHECK: linalg.generic {{.*}}"reduction"{{.*}} ins([[ALL]]
func.func @same() -> tensor<f32> {
  %c = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %e = rlx.expand(%c) {shape = [10]} : (tensor<f32>) -> tensor<10xf32>
  %f = rlx.activation(%e) {kind = "sqrt"} : tensor<10xf32>
  %s = rlx.reduce(%f) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<10xf32>) -> tensor<f32>
  return %s : tensor<f32>
}

// One of other numbers is not kept apart, nor one of positions.
// CHECK-LABEL: func.func @others
// CHECK-NOT: util.optimization_barrier
func.func @others(%x: tensor<10xf32>) -> (tensor<f32>, tensor<f32>) {
  %c = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %e = rlx.expand(%c) {shape = [10]} : (tensor<f32>) -> tensor<10xf32>
  %y = rlx.binary(%x, %e) {kind = "mul"} : tensor<10xf32>
  %s = rlx.reduce(%y) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<10xf32>) -> tensor<f32>
  %i = rlx.iota() {axis = 0, dtype = f32, shape = [10]} : tensor<10xf32>
  %t = rlx.reduce(%i) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<10xf32>) -> tensor<f32>
  return %s, %t : tensor<f32>, tensor<f32>
}
