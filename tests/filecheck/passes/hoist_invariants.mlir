// RUN: rlx-opt %s --rlx-hoist-invariants --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-hoist-invariants --rlx-hoist-invariants | filecheck %s
// RUN: rlx-opt %s --rlx-hoist-invariants=speculate=2 | filecheck %s --check-prefix=SMALL

// A product of what is the same in every step, out of two loops; a broadcast and a view stay.
// CHECK-LABEL: func.func @scans
// CHECK-NEXT: [[W:%.*]] = rlx.matmul(%arg1, %arg1)
// CHECK-NEXT: [[E:%.*]] = rlx.activation([[W]]) {kind = "exp"}
// CHECK-NEXT: rlx.scan
// CHECK-NEXT: ^bb0
// CHECK-NEXT: rlx.scan
// CHECK-NEXT: ^bb0
// CHECK-NEXT: rlx.expand(%arg2)
// CHECK-NEXT: [[T:%.*]] = rlx.reshape
// CHECK-NEXT: rlx.matmul({{%.*}}, [[E]])
func.func @scans(%x: tensor<1x2xf32>, %w: tensor<2x2xf32>, %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %y = rlx.scan(%x) {length = [3], num_carries = 1, reverse = false} : (tensor<1x2xf32>) -> tensor<1x2xf32> {
  ^bb0(%c: tensor<1x2xf32>):
    %z = rlx.scan(%c) {length = [3], num_carries = 1, reverse = false} : (tensor<1x2xf32>) -> tensor<1x2xf32> {
    ^bb0(%d: tensor<1x2xf32>):
      %ww = rlx.matmul(%w, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %e = rlx.activation(%ww) {kind = "exp"} : tensor<2x2xf32>
      %wide = rlx.expand(%b) {shape = [1, 2]} : (tensor<2xf32>) -> tensor<1x2xf32>
      %view = rlx.reshape(%b) {shape = [1, 2]} : (tensor<2xf32>) -> tensor<1x2xf32>
      %p = rlx.matmul(%d, %e) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
      %q = rlx.binary(%p, %wide) {kind = "add"} : tensor<1x2xf32>
      %r = rlx.binary(%q, %view) {kind = "add"} : tensor<1x2xf32>
      rlx.yield %r : tensor<1x2xf32>
    }
    rlx.yield %z : tensor<1x2xf32>
  }
  return %y : tensor<1x2xf32>
}

// -----
// A while may not run at all: its condition does, and its body gives up what is small.
// CHECK-LABEL: func.func @while
// CHECK-DAG: rlx.activation(%arg0) {kind = "exp"}
// CHECK-DAG: rlx.activation(%arg0) {kind = "sin"}
// CHECK: rlx.while
// CHECK-NOT: rlx.activation
// CHECK: return
// SMALL-LABEL: func.func @while
// SMALL-NEXT: rlx.activation(%arg0) {kind = "exp"}
// SMALL: rlx.while
// SMALL: rlx.activation(%arg0) {kind = "sin"}
func.func @while(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = rlx.while(%x) {max_iterations = 3} : (tensor<4xf32>) -> tensor<4xf32> cond {
  ^bb0(%c: tensor<4xf32>):
    %e = rlx.activation(%x) {kind = "exp"} : tensor<4xf32>
    %less = rlx.compare(%c, %e) {kind = "lt"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %any = rlx.reduce(%less) {axes = array<i64: 0>, keep_dims = false, kind = "max"} : (tensor<4xi1>) -> tensor<i1>
    rlx.yield %any : tensor<i1>
  } body {
  ^bb0(%c: tensor<4xf32>):
    %s = rlx.activation(%x) {kind = "sin"} : tensor<4xf32>
    %d = rlx.binary(%c, %s) {kind = "add"} : tensor<4xf32>
    rlx.yield %d : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
