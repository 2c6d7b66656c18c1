// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-bindings | filecheck %s

// A sine has about 240 scalar ops: after four of them, a tensor is stored.
// CHECK-LABEL: func.func @three
// CHECK-NOT: util.optimization_barrier
func.func @three(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "sin"} : tensor<4xf32>
  %1 = rlx.activation(%0) {kind = "sin"} : tensor<4xf32>
  %2 = rlx.activation(%1) {kind = "sin"} : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// CHECK-LABEL: func.func @seven
// CHECK: "util.optimization_barrier"
// CHECK-NOT: util.optimization_barrier
func.func @seven(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "sin"} : tensor<4xf32>
  %1 = rlx.activation(%0) {kind = "sin"} : tensor<4xf32>
  %2 = rlx.activation(%1) {kind = "sin"} : tensor<4xf32>
  %3 = rlx.activation(%2) {kind = "sin"} : tensor<4xf32>
  %4 = rlx.activation(%3) {kind = "sin"} : tensor<4xf32>
  %5 = rlx.activation(%4) {kind = "sin"} : tensor<4xf32>
  %6 = rlx.activation(%5) {kind = "sin"} : tensor<4xf32>
  return %6 : tensor<4xf32>
}
