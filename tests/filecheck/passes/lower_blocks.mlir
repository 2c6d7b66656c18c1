// RUN: rlx-opt %s --rlx-lower-blocks --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-lower-blocks --mlir-print-debuginfo | filecheck %s --check-prefix=LOC

// CHECK: module attributes {rlx.stage = "mir"}
module attributes {rlx.stage = "hir"} {
  // CHECK-LABEL: func.func @linear(
  // CHECK-NEXT: %[[p:.*]] = rlx.matmul(%arg0, %arg1)
  // CHECK-NEXT: %[[s:.*]] = rlx.binary(%[[p]], %arg2) {kind = "add"}
  // CHECK-NEXT: %[[a:.*]] = rlx.activation(%[[s]]) {kind = "relu"}
  // CHECK-NEXT: return %[[a]]
  // LOC: rlx.matmul({{.*}} loc(#[[made:.*]])
  // LOC: #[[user:.*]] = loc("model.py":7:3)
  // LOC: #[[made]] = loc("linear"(#[[user]]))
  func.func @linear(%x: tensor<?x4xf32, #rlx.dims<["batch"]>>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["batch"]>> {
    %0 = rlx.linear(%x, %w, %b) {activation = "relu"} : (tensor<?x4xf32, #rlx.dims<["batch"]>>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["batch"]>> loc("model.py":7:3)
    return %0 : tensor<?x3xf32, #rlx.dims<["batch"]>>
  }

  // A block out of blocks: both levels are gone.
  // CHECK-LABEL: func.func @encoder(
  // CHECK-NOT: fused
  // CHECK: rlx.attention(
  // CHECK-NOT: fused
  // CHECK: rlx.layer_norm(
  // CHECK-NOT: fused
  // CHECK: return
  func.func @encoder(%x: tensor<1x2x4xf32>, %w: tensor<4x4xf32>, %b: tensor<4xf32>, %up: tensor<4x6xf32>, %bup: tensor<6xf32>, %down: tensor<6x4xf32>) -> tensor<1x2x4xf32> {
    %0 = rlx.transformer_encoder_block(%x, %w, %b, %w, %b, %w, %b, %w, %b, %b, %b, %up, %bup, %down, %b, %b, %b) {num_heads = 2} : (tensor<1x2x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x6xf32>, tensor<6xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
    return %0 : tensor<1x2x4xf32>
  }

  // Two results, and a tensor op that stays.
  // CHECK-LABEL: func.func @pair(
  // CHECK: rlx.concat(%arg1, %arg2)
  // CHECK: %[[first:.*]] = rlx.narrow(
  // CHECK: %[[second:.*]] = rlx.narrow(
  // CHECK: %[[t:.*]] = rlx.activation(%[[first]]) {kind = "tanh"}
  // CHECK: return %[[t]], %[[second]]
  func.func @pair(%x: tensor<3x4xf32>, %a: tensor<4x5xf32>, %b: tensor<4x2xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>) {
    %0:2 = rlx.shared_linear_pair(%x, %a, %b) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<4x2xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>)
    %1 = rlx.activation(%0#0) {kind = "tanh"} : tensor<3x5xf32>
    return %1, %0#1 : tensor<3x5xf32>, tensor<3x2xf32>
  }
}
