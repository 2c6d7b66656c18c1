// RUN: rlx-opt %s --rlx-conv-products | filecheck %s
// RUN: rlx-opt %s --rlx-conv-products --rlx-conv-products | filecheck %s

// The patches of a vision transformer are rows of a matrix.
// CHECK-LABEL: func.func @patches
// CHECK: [[X:%.*]] = rlx.reshape({{.*}}) -> tensor<1x2x2x768xf32>
// CHECK: [[W:%.*]] = rlx.reshape({{.*}}) -> tensor<768x64xf32>
// CHECK: [[Y:%.*]] = rlx.matmul([[X]], [[W]])
// CHECK: rlx.transpose([[Y]]) {perm = array<i64: 0, 3, 1, 2>}
func.func @patches(%x: tensor<1x3x32x32xf32>, %w: tensor<64x3x16x16xf32>) -> tensor<1x64x2x2xf32> {
  %0 = rlx.conv(%x, %w) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 16, 16>} : (tensor<1x3x32x32xf32>, tensor<64x3x16x16xf32>) -> tensor<1x64x2x2xf32>
  return %0 : tensor<1x64x2x2xf32>
}

// A window of two strides consists of two parts.
// CHECK-LABEL: func.func @overlapping
// CHECK: [[P:%.*]] = rlx.concat({{.*}}) {axis = 2} : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x16xf32>
// CHECK: rlx.fused_matmul_bias_act([[P]], {{.*}}) {activation = "relu"}
func.func @overlapping(%x: tensor<2x1x40xf32>, %w: tensor<6x1x16xf32>, %b: tensor<6xf32>) -> tensor<2x6x4xf32> {
  %0 = rlx.fused_conv_bias_act(%x, %w, %b) {activation = "relu", dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 8>} : (tensor<2x1x40xf32>, tensor<6x1x16xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  return %0 : tensor<2x6x4xf32>
}

// Strides are short, a window has a part of a stride, and the size is not known.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: rlx.conv(
func.func @others(%x: tensor<1x1x40xf32>, %w: tensor<6x1x8xf32>, %y: tensor<1x1x?xf32, #rlx.dims<["n"]>>)
    -> (tensor<1x6x9xf32>, tensor<1x6x5xf32>, tensor<1x6x?xf32, #rlx.dims<["n//8"]>>) {
  %0 = rlx.conv(%x, %w) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 4>} : (tensor<1x1x40xf32>, tensor<6x1x8xf32>) -> tensor<1x6x9xf32>
  %1 = rlx.conv(%x, %w) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 7>} : (tensor<1x1x40xf32>, tensor<6x1x8xf32>) -> tensor<1x6x5xf32>
  %2 = rlx.conv(%y, %w) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 8>} : (tensor<1x1x?xf32, #rlx.dims<["n"]>>, tensor<6x1x8xf32>) -> tensor<1x6x?xf32, #rlx.dims<["n//8"]>>
  return %0, %1, %2 : tensor<1x6x9xf32>, tensor<1x6x5xf32>, tensor<1x6x?xf32, #rlx.dims<["n//8"]>>
}
