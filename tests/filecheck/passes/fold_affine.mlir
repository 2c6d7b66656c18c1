// RUN: rlx-opt %s --rlx-fold-affine --canonicalize | filecheck %s

// A batch norm behind a convolution: its factor goes into the weights, the rest is one bias.
// CHECK-LABEL: func.func @norm
// CHECK: [[F:%.+]] = rlx.reshape(%arg2) {shape = [3, 1, 1, 1]}
// CHECK: [[W:%.+]] = rlx.binary(%arg1, [[F]]) {kind = "mul"}
// CHECK: [[Y:%.+]] = rlx.conv(%arg0, [[W]])
// CHECK: [[B:%.+]] = rlx.binary({{.+}}, %arg4) {kind = "add"} {{.*}}tensor<3x1x1xf32>
// CHECK: [[S:%.+]] = rlx.binary([[Y]], [[B]]) {kind = "add"}
// CHECK: return [[S]]
func.func @norm(%x: tensor<1x2x5x5xf32>, %w: tensor<3x2x3x3xf32> {rlx.kind = "param"}, %f: tensor<3x1x1xf32> {rlx.kind = "param"},
                %m: tensor<3x1x1xf32> {rlx.kind = "param"}, %b: tensor<3x1x1xf32> {rlx.kind = "param"}) -> tensor<1x3x3x3xf32> {
  %0 = rlx.conv(%x, %w) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x3x3xf32>
  %1 = rlx.binary(%0, %m) {kind = "sub"} : (tensor<1x3x3x3xf32>, tensor<3x1x1xf32>) -> tensor<1x3x3x3xf32>
  %2 = rlx.binary(%1, %f) {kind = "mul"} : (tensor<1x3x3x3xf32>, tensor<3x1x1xf32>) -> tensor<1x3x3x3xf32>
  %3 = rlx.binary(%2, %b) {kind = "add"} : (tensor<1x3x3x3xf32>, tensor<3x1x1xf32>) -> tensor<1x3x3x3xf32>
  return %3 : tensor<1x3x3x3xf32>
}

// What differs from row to row is no channel, and what somebody else reads stays.
// CHECK-LABEL: func.func @rows
// CHECK: [[Y:%.+]] = rlx.matmul(%arg0, %arg1)
// CHECK: [[S:%.+]] = rlx.binary([[Y]], %arg2) {kind = "mul"}
// CHECK: return [[S]]
func.func @rows(%x: tensor<3x4xf32>, %w: tensor<4x3xf32> {rlx.kind = "param"}, %f: tensor<3x1xf32> {rlx.kind = "param"}) -> tensor<3x3xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
  %1 = rlx.binary(%0, %f) {kind = "mul"} : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x3xf32>
  return %1 : tensor<3x3xf32>
}

// CHECK-LABEL: func.func @shared
// CHECK: [[Y:%.+]] = rlx.matmul(%arg0, %arg1)
// CHECK: rlx.binary([[Y]], %arg2) {kind = "div"}
func.func @shared(%x: tensor<2x4xf32>, %w: tensor<4x3xf32> {rlx.kind = "param"}, %f: tensor<3xf32> {rlx.kind = "param"}) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.binary(%0, %f) {kind = "div"} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>
}
