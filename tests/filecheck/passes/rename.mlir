// RUN: rlx-opt %s --rlx-rename=to=stem | filecheck %s
// RUN: rlx-opt %s --rlx-rename=to=main | filecheck %s --check-prefix=SAME
// RUN: not rlx-opt %s --rlx-rename=to= 2>&1 | filecheck %s --check-prefix=EMPTY
// RUN: not rlx-opt %s --rlx-rename=to=helper 2>&1 | filecheck %s --check-prefix=TAKEN

// EMPTY: error: rlx-rename: the name is a non-empty string, not ''
// TAKEN: error: rlx-rename: the module has another function 'helper'

// CHECK: func.func @stem(
// SAME: func.func @main(
func.func @main(%x: tensor<4xf32> {rlx.name = "x"}) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "relu"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @helper(%x: tensor<4xf32> {rlx.name = "x"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
