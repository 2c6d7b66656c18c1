// RUN: rlx-opt %s --rlx-promote-params --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-promote-params="names=w" | filecheck %s --check-prefix=ONE
// RUN: not rlx-opt %s --rlx-promote-params="names=x" 2>&1 | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: error: rlx-promote-params: there is no parameter 'x'

// CHECK-LABEL: func.func @main(
// CHECK-SAME: {rlx.kind = "input", rlx.name = "x"}
// CHECK-SAME: {rlx.kind = "input", rlx.name = "w"}
// CHECK-SAME: {rlx.kind = "input", rlx.name = "b"}
// CHECK-SAME: {rlx.init = 2.000000e+00 : f64, rlx.kind = "state", rlx.name = "s"}
// CHECK-SAME: {rlx.name = "y"}
// ONE-LABEL: func.func @main(
// ONE-SAME: {rlx.kind = "input", rlx.name = "w"}
// ONE-SAME: {rlx.kind = "param", rlx.name = "b"}
func.func @main(%x: tensor<2xf32> {rlx.name = "x", rlx.kind = "input"}, %w: tensor<2xf32> {rlx.name = "w", rlx.kind = "param"},
                %b: tensor<2xf32> {rlx.name = "b", rlx.kind = "param"}, %s: tensor<2xf32> {rlx.name = "s", rlx.kind = "state", rlx.init = 2.0 : f64})
    -> (tensor<2xf32> {rlx.name = "y"}, tensor<2xf32> {rlx.name = "next", rlx.updates = "s"}) {
  return %x, %s : tensor<2xf32>, tensor<2xf32>
}

// A declaration has nothing to promote.
// CHECK: func.func private @elsewhere
func.func private @elsewhere(tensor<2xf32>)
