// RUN: rlx-opt %s | filecheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: rlx-opt %s | rlx-opt | filecheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | filecheck %s
// RUN: rlx-opt %s --emit-bytecode | rlx-opt | filecheck %s
// RUN: rlx-opt %s --cse --mlir-print-ir-before-all -o /dev/null 2>&1 | filecheck %s
// RUN: rlx-opt %s --mlir-print-debuginfo | filecheck %s --check-prefix=PLACES

// Forms that are read, and how they are printed.
// CHECK-LABEL: func.func @forms(
// GENERIC: "func.func"() <{
// GENERIC-SAME: sym_name = "forms"
func.func @forms(%x: tensor<4xf32>, %w: tensor<4x2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: %[[A:.*]] = rlx.activation(%arg0) {kind = "tanh"} : tensor<4xf32>
  // GENERIC: "rlx.activation"({{.*}}) {kind = "tanh"} : (tensor<4xf32>) -> tensor<4xf32>
  %0 = rlx.activation %x {kind = "tanh"} : tensor<4xf32>
  // CHECK-NEXT: %[[B:.*]] = rlx.activation(%[[A]]) {kind = "exp"} : tensor<4xf32>
  %1 = "rlx.activation"(%0) {kind = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: %[[C:.*]] = rlx.reshape(%[[B]]) {shape = [1, 4]} : (tensor<4xf32>) -> tensor<1x4xf32>
  // CHECK-NEXT: %[[D:.*]] = rlx.matmul(%[[C]], %arg1) : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
  // CHECK-NEXT: %[[E:.*]] = rlx.constant() {value = dense<1.000000e+00> : tensor<1x2xf32>} : tensor<1x2xf32>
  // PLACES: rlx.reshape({{.*}}) {shape = [1, 4]} : (tensor<4xf32>) -> tensor<1x4xf32> loc(#[[R:loc[0-9]+]])
  // PLACES: rlx.matmul({{.*}} loc(#[[M:loc[0-9]+]])
  %2 = rlx.reshape(%1) {shape = [1, 4]} : (tensor<4xf32>) -> tensor<1x4xf32> %3 = rlx.matmul %2, %w : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
  %4 = rlx.constant {value = dense<1.0> : tensor<1x2xf32>} : tensor<1x2xf32>
  // CHECK-NEXT: %[[F:.*]] = rlx.binary(%[[D]], %[[E]]) {kind = "add"} : tensor<1x2xf32>
  // CHECK-NEXT: %[[G:.*]] = rlx.reduce(%[[F]]) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<1x2xf32>) -> tensor<2xf32>
  %5 = rlx.binary(%3, %4)  // where an op ends its line may end
      {kind = "add"}
      : tensor<1x2xf32>
  %6 = rlx.reduce(%5) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<1x2xf32>) -> tensor<2xf32>
  // CHECK-NEXT: return %[[G]]
  return %6 : tensor<2xf32>
}

// CHECK-LABEL: func.func @regions(
// GENERIC: sym_name = "regions"
func.func @regions(%c: tensor<i1>, %x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {
  // CHECK-NEXT: %[[I:.*]] = rlx.if(%arg0) : (tensor<i1>) -> tensor<4xf32> then {
  // CHECK-NEXT: rlx.yield %arg1 : tensor<4xf32>
  // CHECK-NEXT: } else {
  // CHECK-NEXT: rlx.yield %arg1 : tensor<4xf32>
  // CHECK-NEXT: }
  // GENERIC: "rlx.if"({{.*}}) ({
  // GENERIC-NEXT: "rlx.yield"({{.*}}) {operandSegmentSizes = array<i32: 1, 0,
  // GENERIC-NEXT: }, {
  // GENERIC: }) {resultSegmentSizes = array<i32: 1, 0,
  // PLACES: rlx.yield %arg1 : tensor<4xf32> loc(#[[Y:loc[0-9]+]])
  %0 = rlx.if(%c) : (tensor<i1>) -> tensor<4xf32> then { rlx.yield %x : tensor<4xf32> } else { rlx.yield %x : tensor<4xf32> }
  // CHECK-NEXT: %[[W:.*]]:2 = rlx.while(%arg2, %[[I]]) {max_iterations = 3} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) cond {
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<i32>, %{{.*}}: tensor<4xf32>):
  // CHECK: rlx.yield %{{.*}} : tensor<i1>
  // CHECK-NEXT: } body {
  // CHECK-NEXT: ^bb0(%[[P:.*]]: tensor<i32>, %[[Q:.*]]: tensor<4xf32>):
  // CHECK-NEXT: rlx.yield %[[P]], %[[Q]] : tensor<i32>, tensor<4xf32>
  // CHECK-NEXT: }
  %1:2 = rlx.while(%n, %0) {max_iterations = 3} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) cond {
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    %2 = rlx.compare(%i, %n) {kind = "lt"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    rlx.yield %2 : tensor<i1>
  } body {
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    rlx.yield %i, %a : tensor<i32>, tensor<4xf32>
  }
  // CHECK-NEXT: return %[[W]]#1, %[[W]]#0
  return %1#1, %1#0 : tensor<4xf32>, tensor<i32>
}

// PLACES-DAG: #[[R]] = loc("{{.*}}assembly.mlir":24:8)
// PLACES-DAG: #[[M]] = loc("{{.*}}assembly.mlir":24:83)
// PLACES-DAG: #[[Y]] = loc("{{.*}}assembly.mlir":49:58)
