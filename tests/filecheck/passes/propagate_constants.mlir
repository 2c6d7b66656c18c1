// RUN: rlx-opt %s --rlx-propagate-constants --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-propagate-constants --rlx-propagate-constants | filecheck %s

// A branch whose condition is known, by ops in between, and another one in it.
// CHECK-LABEL: func.func @known
// CHECK-NOT: rlx.if
// CHECK: [[Y:%.*]] = rlx.activation(%arg0) {kind = "tanh"}
// CHECK-NEXT: return [[Y]]
func.func @known(%x: tensor<2xf32>) -> tensor<2xf32> {
  %one = rlx.constant() {value = dense<1> : tensor<i32>} : tensor<i32>
  %two = rlx.binary(%one, %one) {kind = "add"} : tensor<i32>
  %less = rlx.compare(%one, %two) {kind = "lt"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %y = rlx.if(%less) : (tensor<i1>) -> tensor<2xf32> then {
    %z = rlx.if(%less) : (tensor<i1>) -> tensor<2xf32> then {
      %t = rlx.activation(%x) {kind = "tanh"} : tensor<2xf32>
      rlx.yield %t : tensor<2xf32>
    } else {
      rlx.yield %x : tensor<2xf32>
    }
    rlx.yield %z : tensor<2xf32>
  } else {
    rlx.yield %x : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}

// -----
// In a branch the condition is known, and what both give alike is no choice.
// CHECK-LABEL: func.func @inside
// CHECK: rlx.if(%arg1) : (tensor<i1>) -> (tensor<2xf32>, tensor<2xf32>) then
// CHECK-NOT: rlx.if
// CHECK: rlx.yield [[T:%.*]], %arg0
// CHECK: return [[OUT:%.*]]#0, %arg0
func.func @inside(%x: tensor<2xf32>, %p: tensor<i1>) -> (tensor<2xf32>, tensor<2xf32>) {
  %y:2 = rlx.if(%p) : (tensor<i1>) -> (tensor<2xf32>, tensor<2xf32>) then {
    %z = rlx.if(%p) : (tensor<i1>) -> tensor<2xf32> then {
      %t = rlx.activation(%x) {kind = "tanh"} : tensor<2xf32>
      rlx.yield %t : tensor<2xf32>
    } else {
      rlx.yield %x : tensor<2xf32>
    }
    rlx.yield %z, %x : tensor<2xf32>, tensor<2xf32>
  } else {
    rlx.yield %x, %x : tensor<2xf32>, tensor<2xf32>
  }
  return %y#0, %y#1 : tensor<2xf32>, tensor<2xf32>
}

// -----
// Carries that change places but are equal, one that is multiplied by another that stays 1, and one that comes back as it is.
// CHECK-LABEL: func.func @carries
// CHECK: [[ONE:%.*]] = rlx.constant() {value = dense<1.000000e+00>
// CHECK: [[LOOP:%.*]]:5 = rlx.while
// CHECK: body
// CHECK: rlx.binary({{%.*}}, [[ONE]]) {kind = "add"}
// CHECK: rlx.binary({{%.*}}, %arg0) {kind = "add"}
// CHECK: return [[LOOP]]#3, [[ONE]]
func.func @carries(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %zero = rlx.constant() {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %one = rlx.constant() {value = dense<1.0> : tensor<f32>} : tensor<f32>
  %a:5 = rlx.while(%one, %one, %one, %zero, %x) {max_iterations = 3} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) cond {
  ^bb0(%c: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>, %n: tensor<f32>, %k: tensor<f32>):
    %on = rlx.compare(%n, %k) {kind = "lt"} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    rlx.yield %on : tensor<i1>
  } body {
  ^bb0(%c: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>, %n: tensor<f32>, %k: tensor<f32>):
    %f = rlx.binary(%d, %e) {kind = "mul"} : tensor<f32>
    %m = rlx.binary(%n, %c) {kind = "add"} : tensor<f32>
    %o = rlx.binary(%m, %k) {kind = "add"} : tensor<f32>
    rlx.yield %d, %c, %f, %o, %k : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
  return %a#3, %a#2 : tensor<f32>, tensor<f32>
}

// -----
// Loops that run never, or once.
// CHECK-LABEL: func.func @runs
// CHECK-NOT: rlx.while
// CHECK-NOT: rlx.scan
// CHECK: [[ROW:%.*]] = rlx.reshape(%arg1) {shape = [2]}
// CHECK-NEXT: [[NEXT:%.*]] = rlx.binary(%arg0, [[ROW]]) {kind = "add"}
// CHECK-NEXT: [[STACK:%.*]] = rlx.reshape(%arg0) {shape = [1, 2]}
// CHECK-NEXT: return %arg0, [[NEXT]], [[STACK]]
func.func @runs(%x: tensor<2xf32>, %rows: tensor<1x2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<1x2xf32>) {
  %five = rlx.constant() {value = dense<5> : tensor<i32>} : tensor<i32>
  %w:2 = rlx.while(%five, %x) {} : (tensor<i32>, tensor<2xf32>) -> (tensor<i32>, tensor<2xf32>) cond {
  ^bb0(%i: tensor<i32>, %c: tensor<2xf32>):
    %three = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
    %on = rlx.compare(%i, %three) {kind = "lt"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    rlx.yield %on : tensor<i1>
  } body {
  ^bb0(%i: tensor<i32>, %c: tensor<2xf32>):
    %d = rlx.activation(%c) {kind = "exp"} : tensor<2xf32>
    rlx.yield %i, %d : tensor<i32>, tensor<2xf32>
  }
  %s:2 = rlx.scan(%x, %rows) {length = [1], num_carries = 1, reverse = false} : (tensor<2xf32>, tensor<1x2xf32>) -> (tensor<2xf32>, tensor<1x2xf32>) {
  ^bb0(%c: tensor<2xf32>, %row: tensor<2xf32>):
    %d = rlx.binary(%c, %row) {kind = "add"} : tensor<2xf32>
    rlx.yield %d, %c : tensor<2xf32>, tensor<2xf32>
  }
  return %w#1, %s#0, %s#1 : tensor<2xf32>, tensor<2xf32>, tensor<1x2xf32>
}

// -----
// Of the loop only a carry is read that never changes, so that it goes, with the branch inside.
// CHECK-LABEL: func.func @unread
// CHECK-NOT: rlx.while
// CHECK: return %arg0
func.func @unread(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
  %0:2 = rlx.while(%x, %x) {max_iterations = 4} : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) cond {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
    rlx.yield %p : tensor<i1>
  } body {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
    %c = rlx.if(%p) : (tensor<i1>) -> tensor<2xf32> then {
      rlx.yield %a : tensor<2xf32>
    } else {
      rlx.yield %b : tensor<2xf32>
    }
    rlx.yield %a, %c : tensor<2xf32>, tensor<2xf32>
  }
  return %0#0 : tensor<2xf32>
}

// -----
// What has no elements is a constant, wherever it comes from.
// CHECK-LABEL: func.func @empty
// CHECK: [[E:%.*]] = rlx.constant() {value = dense<> : tensor<0x2xf32>}
// CHECK: [[R:%.*]] = rlx.constant() {value = dense<> : tensor<0x2xf32>}
// CHECK: [[Y:%.*]]:2 = rlx.if
// CHECK-NOT: rlx.binary
// CHECK: rlx.yield [[E]], %arg0
// CHECK: return [[R]], [[Y]]#1
func.func @empty(%x: tensor<2xf32>, %e: tensor<0x2xf32>, %p: tensor<i1>) -> (tensor<0x2xf32>, tensor<2xf32>) {
  %y:2 = rlx.if(%p) : (tensor<i1>) -> (tensor<0x2xf32>, tensor<2xf32>) then {
    %s = rlx.binary(%e, %x) {kind = "add"} : (tensor<0x2xf32>, tensor<2xf32>) -> tensor<0x2xf32>
    %t = rlx.activation(%x) {kind = "tanh"} : tensor<2xf32>
    rlx.yield %s, %t : tensor<0x2xf32>, tensor<2xf32>
  } else {
    rlx.yield %e, %x : tensor<0x2xf32>, tensor<2xf32>
  }
  return %y#0, %y#1 : tensor<0x2xf32>, tensor<2xf32>
}
