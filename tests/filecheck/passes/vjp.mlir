// RUN: rlx-opt %s --rlx-vjp="wrt=x" | filecheck %s
// RUN: rlx-opt %s --rlx-jvp="tangents=x" | filecheck %s --check-prefix=JVP
// RUN: rlx-opt %s --rlx-jacfwd="wrt=x" | filecheck %s --check-prefix=JAC
// RUN: rlx-opt %s --rlx-jacrev="wrt=x" | filecheck %s --check-prefix=JAC
// RUN: rlx-opt %s --rlx-directional-nth-grad="wrt=x order=2" | filecheck %s --check-prefix=NTH

// Three ranges of one tensor come back as one tensor, without adding up zeros.
// CHECK-LABEL: func.func @parts(
// CHECK-SAME: %[[X:.*]]: tensor<2x6xf32> {rlx.kind = "input", rlx.name = "x"}, %[[C:.*]]: tensor<2x2xf32> {rlx.kind = "input", rlx.name = "cotangent_y"}
// CHECK-SAME: {rlx.name = "y"}, tensor<2x6xf32> {rlx.name = "grad_x"}
// CHECK-NOT: dense<0.0
// CHECK-NOT: rlx.pad
// CHECK: rlx.concat(
// CHECK: %[[G:.*]] = rlx.concat(
// CHECK-NEXT: return %{{.*}}, %[[G]]
// JVP-LABEL: func.func @parts(
// JVP-SAME: {rlx.kind = "input", rlx.name = "tangent_x"}
// JVP-SAME: {rlx.name = "y"}, tensor<2x2xf32> {rlx.name = "tangent_y"}
// JAC-LABEL: func.func @parts(
// JAC-SAME: -> (tensor<2x2x2x6xf32> {rlx.name = "jacobian_y_x"})
// NTH-LABEL: func.func @parts(
// NTH-SAME: {rlx.kind = "input", rlx.name = "dir_0"}, %{{.*}}: tensor<2x6xf32> {rlx.kind = "input", rlx.name = "dir_1"}) -> (tensor<2x2xf32> {rlx.name = "dir2_y"})
func.func @parts(%x: tensor<2x6xf32> {rlx.name = "x"}) -> (tensor<2x2xf32> {rlx.name = "y"}) {
  %0 = rlx.narrow(%x) {axis = 1, start = [0], length = [2]} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %1 = rlx.narrow(%x) {axis = 1, start = [2], length = [2]} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %2 = rlx.narrow(%x) {axis = 1, start = [4], length = [2]} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %3 = rlx.binary(%0, %1) {kind = "mul"} : tensor<2x2xf32>
  %4 = rlx.binary(%3, %2) {kind = "mul"} : tensor<2x2xf32>
  return %4 : tensor<2x2xf32>
}
