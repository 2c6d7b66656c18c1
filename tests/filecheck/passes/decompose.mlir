// RUN: rlx-opt %s --rlx-decompose --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-decompose="ops=fused_swiglu" | filecheck %s --check-prefix=ONLY
// RUN: rlx-opt %s --rlx-decompose="except=softmax,rlx.matmul" | filecheck %s --check-prefix=EXCEPT
// RUN: rlx-opt %s --rlx-decompose="for=rlx-to-linalg except=softmax" | filecheck %s --check-prefix=EXCEPT
// RUN: rlx-opt %s --rlx-decompose="for=rlx-to-linalg without=softmax" | filecheck %s --check-prefix=WITHOUT
// RUN: not rlx-opt %s --rlx-decompose="for=cse" 2>&1 | filecheck %s --check-prefix=LOWERING
// RUN: not rlx-opt %s --rlx-decompose="ops=sofmax" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --rlx-decompose="ops=matmul" 2>&1 | filecheck %s --check-prefix=PRIMITIVE

// UNKNOWN: error: rlx-decompose: there is no op 'sofmax' (did you mean 'softmax'?)
// LOWERING: error: rlx-decompose: 'cse' is not a pass
// PRIMITIVE: error: rlx-decompose: matmul is a primitive: it has no decomposition

// CHECK-LABEL: func.func @swiglu(
// CHECK-NEXT: %[[up:.*]] = rlx.narrow(%arg0) {axis = 1, length = [3], start = [0]}
// CHECK-NEXT: %[[gate:.*]] = rlx.narrow(%arg0) {axis = 1, length = [3], start = [3]}
// CHECK-NEXT: %[[silu:.*]] = rlx.activation(%[[gate]]) {kind = "silu"}
// CHECK-NEXT: rlx.binary(%[[up]], %[[silu]]) {kind = "mul"}
// ONLY-LABEL: func.func @swiglu(
// ONLY-NOT: fused_swiglu
func.func @swiglu(%x: tensor<2x6xf32>) -> tensor<2x3xf32> {
  %0 = rlx.fused_swiglu(%x) {gate_first = false} : (tensor<2x6xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @softmax(
// CHECK-NOT: rlx.softmax
// CHECK: rlx.activation{{.*}} {kind = "exp"}
// ONLY-LABEL: func.func @softmax(
// ONLY-NEXT: rlx.softmax(
// WITHOUT-LABEL: func.func @softmax(
// WITHOUT-NOT: rlx.softmax
// WITHOUT: rlx.activation
// EXCEPT-LABEL: func.func @softmax(
// EXCEPT-NEXT: rlx.softmax(
func.func @softmax(%x: tensor<?x6xf32, #rlx.dims<["n"]>>) -> tensor<?x6xf32, #rlx.dims<["n"]>> {
  %0 = rlx.softmax(%x) {axis = 1} : tensor<?x6xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x6xf32, #rlx.dims<["n"]>>
}

// What the decomposition of one op emits is decomposed as well.
// CHECK-LABEL: func.func @norm(
// CHECK-NOT: norm
// CHECK: return
// ONLY-LABEL: func.func @norm(
// ONLY-NEXT: rlx.fused_residual_rms_norm(
func.func @norm(%x: tensor<2x4xf32>, %w: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.fused_residual_rms_norm(%x, %x, _, %w, %w) {eps = 1.0e-5} : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
