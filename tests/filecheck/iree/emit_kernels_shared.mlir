// RUN: rlx-opt %s --rlx-iree-kernels="cpu=x86-64-v3 choice=all" --rlx-to-linalg --rlx-iree-emit-kernels=cpu=x86-64-v3 | filecheck %s

// Pools of all batches and numbers of channels share an executable, which takes these sizes when it runs. Other rows do not.
// CHECK: func.func @kernel_window_pool_2(%arg0: !stream.binding, %arg1: !stream.binding, %arg2: index, %arg3: index)
// CHECK: func.func @kernel_window_pool_1(%arg0: !stream.binding, %arg1: !stream.binding, %arg2: index, %arg3: index)
// CHECK-NOT: stream.executable.export
// CHECK: func.func @pools
// CHECK: "flow.dispatch"(%c1, %c4, %arg0, %c1, %c4)
// CHECK-SAME: entry_points = [@kernel_window_pool_1::@kernel_window_pool_1], operandSegmentSizes = array<i32: 2, 3, 0, 0>
// CHECK: "flow.dispatch"(%c2, %c6, %arg1, %c2, %c6)
// CHECK-SAME: entry_points = [@kernel_window_pool_1::@kernel_window_pool_1]
// CHECK: "flow.dispatch"(%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %arg2
// CHECK-SAME: entry_points = [@kernel_window_pool_2::@kernel_window_pool_2]
func.func @pools(%x: tensor<1x4x8x8xf32>, %y: tensor<2x6x8x8xf32>, %z: tensor<1x4x10x10xf32>)
    -> (tensor<1x4x4x4xf32>, tensor<2x6x4x4xf32>, tensor<1x4x5x5xf32>) {
  %0 = rlx.pool(%x) {kernel = array<i64: 2, 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  %1 = rlx.pool(%y) {kernel = array<i64: 2, 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<2x6x8x8xf32>) -> tensor<2x6x4x4xf32>
  %2 = rlx.pool(%z) {kernel = array<i64: 2, 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x10x10xf32>) -> tensor<1x4x5x5xf32>
  return %0, %1, %2 : tensor<1x4x4x4xf32>, tensor<2x6x4x4xf32>, tensor<1x4x5x5xf32>
}
