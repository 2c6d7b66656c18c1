// RUN: rlx-opt %s --rlx-to-linalg | filecheck %s
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-to-linalg,rlx-to-linalg{for-me})' 2>&1 | filecheck %s --check-prefix=OPTION

// OPTION: rlx-to-linalg has no option 'for-me'; it takes none

// Parameters and states stay arguments, which say what they are.
// CHECK: func.func @step(%arg0: tensor<?x4xf32> {rlx.kind = "input", rlx.name = "x"}
// CHECK-SAME: %arg1: tensor<4xf32> {rlx.init = 1.000000e+00 : f64, rlx.kind = "state", rlx.name = "m"}
// CHECK-SAME: rlx.updates = "m"
// CHECK: linalg.generic
// CHECK-NOT: rlx.reduce
// CHECK: return
func.func @step(%x: tensor<?x4xf32, #rlx.dims<["n"]>> {rlx.name = "x"},
                %m: tensor<4xf32> {rlx.init = 1.0 : f64, rlx.kind = "state", rlx.name = "m"})
    -> (tensor<4xf32> {rlx.updates = "m"}) {
  %s = rlx.reduce(%x) {kind = "sum", axes = array<i64: 0>} : (tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<4xf32>
  %y = rlx.binary(%m, %s) {kind = "add"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
