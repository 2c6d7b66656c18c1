// RUN: rlx-opt %s --rlx-kernel-layout | filecheck %s
// RUN: rlx-opt %s --rlx-kernel-layout --rlx-kernel-layout | filecheck %s
// RUN: rlx-opt %s --rlx-kernel-layout --rlx-outline-weights | filecheck %s --check-prefix=ONCE

// A kernel that is a parameter, or made of parameters, is read by way of the order in which it is kept; both convolutions that read
// %w share that. A kernel that is computed of an input stays as it is.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: [[KEPT:%.*]] = rlx.transpose(%arg1) {perm = array<i64: 2, 3, 1, 0>} : (tensor<4x2x3x5xf32>) -> tensor<3x5x2x4xf32>
// CHECK-NEXT: [[READ:%.*]] = rlx.transpose([[KEPT]]) {perm = array<i64: 3, 2, 0, 1>} : (tensor<3x5x2x4xf32>) -> tensor<4x2x3x5xf32>
// CHECK-NEXT: rlx.conv(%arg0, [[READ]])
// CHECK-NEXT: [[AGAIN:%.*]] = rlx.transpose([[KEPT]]) {perm = array<i64: 3, 2, 0, 1>}
// CHECK-NEXT: rlx.conv(%arg0, [[AGAIN]])
// CHECK-NEXT: [[HALF:%.*]] = rlx.activation(%arg1)
// CHECK-NEXT: [[H:%.*]] = rlx.transpose([[HALF]]) {perm = array<i64: 2, 3, 1, 0>}
// CHECK-NEXT: [[BACK:%.*]] = rlx.transpose([[H]]) {perm = array<i64: 3, 2, 0, 1>}
// CHECK-NEXT: rlx.conv(%arg0, [[BACK]])
// CHECK-NEXT: [[COMPUTED:%.*]] = rlx.activation(%arg2)
// CHECK-NEXT: rlx.conv(%arg0, [[COMPUTED]])
// CHECK-NEXT: return

// ONCE-LABEL: func.func private @main.weights(
// ONCE-NEXT: [[KEPT:%.*]] = rlx.transpose(%arg0)
// ONCE-NEXT: [[HALF:%.*]] = rlx.activation(%arg0)
// ONCE-NEXT: [[H:%.*]] = rlx.transpose([[HALF]])
// ONCE-NEXT: return [[KEPT]], [[H]]
// ONCE: func.func @main(
// ONCE-NOT: tensor<4x2x3x5xf32> {
// ONCE-COUNT-3: rlx.transpose({{.*}}) {perm = array<i64: 3, 2, 0, 1>} : (tensor<3x5x2x4xf32>) -> tensor<4x2x3x5xf32>
func.func @main(%x: tensor<1x2x8x8xf32> {rlx.kind = "input", rlx.name = "x"}, %w: tensor<4x2x3x5xf32> {rlx.kind = "param", rlx.name = "w"},
                %v: tensor<4x2x3x3xf32> {rlx.kind = "input", rlx.name = "v"})
    -> (tensor<1x4x6x4xf32>, tensor<1x4x2x2xf32>, tensor<1x4x6x4xf32>, tensor<1x4x6x6xf32>) {
  %a = rlx.conv(%x, %w) {dilation = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x8x8xf32>, tensor<4x2x3x5xf32>) -> tensor<1x4x6x4xf32>
  %b = rlx.conv(%x, %w) {dilation = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 3, 3>} : (tensor<1x2x8x8xf32>, tensor<4x2x3x5xf32>) -> tensor<1x4x2x2xf32>
  %half = rlx.activation(%w) {kind = "neg"} : tensor<4x2x3x5xf32>
  %c = rlx.conv(%x, %half) {dilation = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x8x8xf32>, tensor<4x2x3x5xf32>) -> tensor<1x4x6x4xf32>
  %computed = rlx.activation(%v) {kind = "neg"} : tensor<4x2x3x3xf32>
  %d = rlx.conv(%x, %computed) {dilation = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %a, %b, %c, %d : tensor<1x4x6x4xf32>, tensor<1x4x2x2xf32>, tensor<1x4x6x4xf32>, tensor<1x4x6x6xf32>
}

// A kernel that a loop reads is transposed in front of the loop, and back in its body.
// CHECK-LABEL: func.func @loop(
// CHECK-NEXT: [[KEPT:%.*]] = rlx.transpose(%arg1) {perm = array<i64: 2, 1, 0>}
// CHECK-NEXT: rlx.scan
// CHECK: [[READ:%.*]] = rlx.transpose([[KEPT]]) {perm = array<i64: 2, 1, 0>}
// CHECK-NEXT: rlx.conv({{.*}}, [[READ]])
func.func @loop(%x: tensor<1x2x8xf32> {rlx.kind = "input", rlx.name = "x"}, %w: tensor<2x2x3xf32> {rlx.kind = "param", rlx.name = "w"}) -> tensor<1x2x8xf32> {
  %y = rlx.scan(%x) {length = [3], num_carries = 1, reverse = false} : (tensor<1x2x8xf32>) -> tensor<1x2x8xf32> {
  ^bb0(%c: tensor<1x2x8xf32>):
    %z = rlx.conv(%c, %w) {dilation = array<i64: 1>, padding = array<i64: 1, 1>, stride = array<i64: 1>} : (tensor<1x2x8xf32>, tensor<2x2x3xf32>) -> tensor<1x2x8xf32>
    rlx.yield %z : tensor<1x2x8xf32>
  }
  return %y : tensor<1x2x8xf32>
}
