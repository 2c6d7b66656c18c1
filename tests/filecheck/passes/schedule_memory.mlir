// RUN: rlx-opt %s --rlx-schedule-memory --check-numerics | filecheck %s
// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-schedule-memory{recompute})" | filecheck %s --check-prefix=AGAIN

// Each large value is reduced before the next one is there.
// CHECK-LABEL: func.func @wide(
// CHECK: rlx.matmul
// CHECK-NEXT: rlx.reduce
// CHECK-NEXT: rlx.matmul
// CHECK-NEXT: rlx.reduce
// CHECK-NEXT: rlx.binary
func.func @wide(%x: tensor<64x4xf32>, %y: tensor<4x64xf32>, %z: tensor<4x64xf32>) -> tensor<f32> {
  %0 = rlx.matmul(%x, %y) : (tensor<64x4xf32>, tensor<4x64xf32>) -> tensor<64x64xf32>
  %1 = rlx.matmul(%x, %z) : (tensor<64x4xf32>, tensor<4x64xf32>) -> tensor<64x64xf32>
  %2 = rlx.reduce(%0) {axes = array<i64: 0, 1>, kind = "sum", keep_dims = false} : (tensor<64x64xf32>) -> tensor<f32>
  %3 = rlx.reduce(%1) {axes = array<i64: 0, 1>, kind = "sum", keep_dims = false} : (tensor<64x64xf32>) -> tensor<f32>
  %4 = rlx.binary(%2, %3) {kind = "add"} : tensor<f32>
  return %4 : tensor<f32>
}

// No order is better: they stay where they are.
// CHECK-LABEL: func.func @chain(
// CHECK: exp
// CHECK: tanh
// CHECK: "add"
func.func @chain(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = rlx.activation(%x) {kind = "exp"} : tensor<64xf32>
  %1 = rlx.activation(%x) {kind = "tanh"} : tensor<64xf32>
  %2 = rlx.binary(%0, %1) {kind = "add"} : tensor<64xf32>
  return %2 : tensor<64xf32>
}

// The mask is read again after the fullest step: it is made from the small row once more.
// CHECK-LABEL: func.func @mask(
// CHECK-COUNT-1: rlx.compare
// AGAIN-LABEL: func.func @mask(
// AGAIN-COUNT-2: rlx.compare
func.func @mask(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %m = rlx.compare(%x, %x) {kind = "lt"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xi1>
  %0 = rlx.where(%m, %x, %x) : (tensor<64x64xi1>, tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = rlx.matmul(%0, %x) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = rlx.matmul(%1, %x) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = rlx.where(%m, %2, %x) : (tensor<64x64xi1>, tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %3 : tensor<64x64xf32>
}
