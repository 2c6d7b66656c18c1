// RUN: rlx-opt %s --split-input-file --rlx-lower-control-flow | filecheck %s
// RUN: rlx-opt %s --split-input-file --rlx-lower-control-flow=mode=select | filecheck %s --check-prefix=SELECT
// RUN: rlx-opt %s --split-input-file --rlx-lower-control-flow=mode=unroll | filecheck %s --check-prefix=UNROLL
// RUN: not rlx-opt %s --split-input-file --rlx-lower-control-flow=max-steps=1 2>&1 | filecheck %s --check-prefix=STEPS

// CHECK-LABEL: func.func @branch(
// CHECK-SAME: %arg0: tensor<i1>, %arg1: tensor<2xf32>
// CHECK: %[[NEG:.*]] = rlx.activation(%arg1) {kind = "neg"}
// CHECK: rlx.where(%arg0, %[[NEG]], %arg1)
// SELECT-LABEL: func.func @branch(
// SELECT: rlx.where
// UNROLL-LABEL: func.func @branch(
// UNROLL: rlx.if
func.func @branch(%flag: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = rlx.if(%flag) : (tensor<i1>) -> tensor<2xf32> then {
    %1 = rlx.activation(%x) {kind = "neg"} : tensor<2xf32>
    rlx.yield %1 : tensor<2xf32>
  } else {
    rlx.yield %x : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

// -----

// CHECK-LABEL: func.func @loop(
// CHECK-SAME: %arg0: tensor<i32>
// CHECK-COUNT-2: rlx.compare(
// CHECK: rlx.binary({{.*}}) {kind = "min"} : tensor<i1>
// CHECK: rlx.where(
// CHECK-NOT: rlx.while
// SELECT-LABEL: func.func @loop(
// SELECT: rlx.while
// STEPS: lower_control_flow.mlir:{{.*}}: error: rlx-lower-control-flow: 2 steps are more than max-steps = 1
func.func @loop(%n: tensor<i32>) -> tensor<i32> {
  %0 = rlx.while(%n) {max_iterations = 2} : tensor<i32> cond {
  ^bb0(%i: tensor<i32>):
    %1 = rlx.constant() {value = dense<5> : tensor<i32>} : tensor<i32>
    %2 = rlx.compare(%i, %1) {kind = "lt"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    rlx.yield %2 : tensor<i1>
  } body {
  ^bb0(%i: tensor<i32>):
    %1 = rlx.binary(%i, %i) {kind = "add"} : tensor<i32>
    rlx.yield %1 : tensor<i32>
  }
  return %0 : tensor<i32>
}
