// RUN: rlx-opt %s --rlx-bind=batch=2 --rlx-decompose --rlx-to-stablehlo | filecheck %s
// RUN: not rlx-opt %s --rlx-decompose --rlx-to-stablehlo 2>&1 | filecheck %s --check-prefix=SYMBOL
// RUN: not rlx-opt %s --rlx-bind=batch=2 --rlx-to-stablehlo 2>&1 | filecheck %s --check-prefix=CLAIM

// SYMBOL: error: rlx-to-stablehlo: StableHLO is lowered to with static sizes, and the size of batch is a symbol
// SYMBOL: note: bind it: --bind=batch=128
// CLAIM: error: rlx-to-stablehlo: 1 ops have no lowering to StableHLO:
// CLAIM: rlx.fused_matmul_bias_act

// CHECK: module {
// CHECK-NEXT: func.func @main(%arg0: tensor<2x4xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<3xf32>) -> tensor<2x3xf32>
// CHECK: stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
// CHECK: stablehlo.broadcast_in_dim %arg2, dims = [1]
// CHECK: stablehlo.add
// CHECK: stablehlo.maximum
// CHECK-NOT: rlx.
module {
  func.func @main(%x: tensor<?x4xf32, #rlx.dims<["batch"]>> {rlx.name = "x"}, %w: tensor<4x3xf32>, %b: tensor<3xf32>)
      -> tensor<?x3xf32, #rlx.dims<["batch"]>> {
    %y = rlx.fused_matmul_bias_act(%x, %w, %b) {activation = "relu"}
        : (tensor<?x4xf32, #rlx.dims<["batch"]>>, tensor<4x3xf32>, tensor<3xf32>)
        -> tensor<?x3xf32, #rlx.dims<["batch"]>>
    return %y : tensor<?x3xf32, #rlx.dims<["batch"]>>
  }
}
