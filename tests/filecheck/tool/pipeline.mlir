// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-lower-blocks,func.func(canonicalize{max-iterations=3},cse))" | filecheck %s
// RUN: rlx-opt %s --rlx-lower-blocks --canonicalize="max-iterations=3" --cse | filecheck %s
// RUN: rlx-opt %s -rlx-lower-blocks -canonicalize="max-iterations=3" -cse --dump-pass-pipeline 2>&1 | filecheck %s --check-prefix=DUMP
// RUN: rlx-opt %s --cse --rlx-lower-blocks | filecheck %s --check-prefix=ORDER
// RUN: rlx-opt %s --tosa-infer-shapes --dump-pass-pipeline 2>&1 | filecheck %s --check-prefix=NESTED

// DUMP: builtin.module(rlx-lower-blocks,canonicalize{max-iterations=3},cse)
// NESTED: builtin.module(func.func(tosa-infer-shapes))

module attributes {rlx.stage = "hir"} {
  // Both products are the same, so one of them goes; blocks are in the way when cse comes first.
  // CHECK-LABEL: func.func @twice(
  // CHECK: rlx.matmul
  // CHECK-NOT: rlx.matmul
  // CHECK: return
  // ORDER-LABEL: func.func @twice(
  // ORDER-COUNT-2: rlx.matmul
  func.func @twice(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
    %0 = rlx.linear(%x, %w) {activation = "relu"} : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %1 = rlx.linear(%x, %w) {activation = "tanh"} : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
