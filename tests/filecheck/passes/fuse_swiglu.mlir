// RUN: rlx-opt %s --rlx-fuse-swiglu --check-numerics | filecheck %s

// The halves in either order, by narrow or by slice.
// CHECK-LABEL: func.func @up_first(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_swiglu(%arg0) {gate_first = false}
// CHECK-NEXT: return %[[y]]
func.func @up_first(%x: tensor<2x6xf32>) -> tensor<2x3xf32> {
  %0 = rlx.narrow(%x) {axis = 1, start = [0], length = [3]} : (tensor<2x6xf32>) -> tensor<2x3xf32>
  %1 = rlx.narrow(%x) {axis = 1, start = [3], length = [3]} : (tensor<2x6xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%1) {kind = "silu"} : tensor<2x3xf32>
  %3 = rlx.binary(%0, %2) {kind = "mul"} : tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @gate_first(
// CHECK-NEXT: %[[y:.*]] = rlx.fused_swiglu(%arg0) {gate_first = true}
// CHECK-NEXT: return %[[y]]
func.func @gate_first(%x: tensor<2x6xf32>) -> tensor<2x3xf32> {
  %0 = rlx.slice(%x) {starts = [0, 0], limits = [2, 3], strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x3xf32>
  %1 = rlx.slice(%x) {starts = [0, 3], limits = [2, 6], strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%0) {kind = "silu"} : tensor<2x3xf32>
  %3 = rlx.binary(%2, %1) {kind = "mul"} : tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}

// A third; a half of another tensor; halves of another axis.
// CHECK-LABEL: func.func @not_fused(
// CHECK-NOT: fused
// CHECK: return
func.func @not_fused(%x: tensor<3x6xf32>, %y: tensor<6x6xf32>) -> (tensor<3x2xf32>, tensor<3x3xf32>, tensor<3x6xf32>) {
  %0 = rlx.narrow(%x) {axis = 1, start = [0], length = [2]} : (tensor<3x6xf32>) -> tensor<3x2xf32>
  %1 = rlx.narrow(%x) {axis = 1, start = [2], length = [2]} : (tensor<3x6xf32>) -> tensor<3x2xf32>
  %2 = rlx.activation(%1) {kind = "silu"} : tensor<3x2xf32>
  %3 = rlx.binary(%0, %2) {kind = "mul"} : tensor<3x2xf32>
  %4 = rlx.slice(%y) {starts = [0, 0], limits = [3, 3], strides = array<i64: 1, 1>} : (tensor<6x6xf32>) -> tensor<3x3xf32>
  %5 = rlx.narrow(%x) {axis = 1, start = [3], length = [3]} : (tensor<3x6xf32>) -> tensor<3x3xf32>
  %6 = rlx.activation(%5) {kind = "silu"} : tensor<3x3xf32>
  %7 = rlx.binary(%4, %6) {kind = "mul"} : tensor<3x3xf32>
  %8 = rlx.narrow(%y) {axis = 0, start = [0], length = [3]} : (tensor<6x6xf32>) -> tensor<3x6xf32>
  %9 = rlx.narrow(%y) {axis = 0, start = [3], length = [3]} : (tensor<6x6xf32>) -> tensor<3x6xf32>
  %10 = rlx.activation(%9) {kind = "silu"} : tensor<3x6xf32>
  %11 = rlx.binary(%8, %10) {kind = "mul"} : tensor<3x6xf32>
  return %3, %7, %11 : tensor<3x2xf32>, tensor<3x3xf32>, tensor<3x6xf32>
}
