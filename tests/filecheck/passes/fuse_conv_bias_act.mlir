// RUN: rlx-opt %s --rlx-fuse-conv-bias-act --check-numerics | filecheck %s

// CHECK-LABEL: func.func @reshaped(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {activation = "relu", {{.*}}padding = array<i64: 1, 1>
// CHECK-NEXT: return %[[y]]
func.func @reshaped(%x: tensor<2x3x5xf32>, %w: tensor<4x3x3xf32>, %b: tensor<4xf32>) -> tensor<2x4x5xf32> {
  %0 = rlx.conv(%x, %w) {stride = array<i64: 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1>, groups = 1} : (tensor<2x3x5xf32>, tensor<4x3x3xf32>) -> tensor<2x4x5xf32>
  %1 = rlx.reshape(%b) {shape = [1, 4, 1]} : (tensor<4xf32>) -> tensor<1x4x1xf32>
  %2 = rlx.binary(%1, %0) {kind = "add"} : (tensor<1x4x1xf32>, tensor<2x4x5xf32>) -> tensor<2x4x5xf32>
  %3 = rlx.activation(%2) {kind = "relu"} : tensor<2x4x5xf32>
  return %3 : tensor<2x4x5xf32>
}

// CHECK-LABEL: func.func @column(
// CHECK-NEXT: %[[b:.*]] = rlx.reshape(%arg2) {shape = [4]}
// CHECK-NEXT: rlx.fused_conv_bias_act(%arg0, %arg1, %[[b]]) {dilation
// CHECK-NEXT: return
func.func @column(%x: tensor<2x3x5xf32>, %w: tensor<4x3x1xf32>, %b: tensor<4x1xf32>) -> tensor<2x4x5xf32> {
  %0 = rlx.conv(%x, %w) {stride = array<i64: 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1>, groups = 1} : (tensor<2x3x5xf32>, tensor<4x3x1xf32>) -> tensor<2x4x5xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<2x4x5xf32>, tensor<4x1xf32>) -> tensor<2x4x5xf32>
  return %1 : tensor<2x4x5xf32>
}

// The bias varies along the positions; integers.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<2x3x5xf32>, %w: tensor<4x3x1xf32>, %b: tensor<5xf32>, %i: tensor<2x3x5xi32>, %j: tensor<4x3x1xi32>, %k: tensor<4x1xi32>) -> (tensor<2x4x5xf32>, tensor<2x4x5xi32>) {
  %0 = rlx.conv(%x, %w) {stride = array<i64: 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1>, groups = 1} : (tensor<2x3x5xf32>, tensor<4x3x1xf32>) -> tensor<2x4x5xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<2x4x5xf32>, tensor<5xf32>) -> tensor<2x4x5xf32>
  %2 = rlx.conv(%i, %j) {stride = array<i64: 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1>, groups = 1} : (tensor<2x3x5xi32>, tensor<4x3x1xi32>) -> tensor<2x4x5xi32>
  %3 = rlx.binary(%2, %k) {kind = "add"} : (tensor<2x4x5xi32>, tensor<4x1xi32>) -> tensor<2x4x5xi32>
  return %1, %3 : tensor<2x4x5xf32>, tensor<2x4x5xi32>
}
