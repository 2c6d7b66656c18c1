// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 --rlx-iree-elementwise-kernels=cpu=x86-64-v3 | filecheck %s
// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 "--rlx-iree-elementwise-kernels=cpu=x86-64-v3 choice=off" | filecheck %s --check-prefix=OFF

// Elementwise ops between kernels become one kernel. Its numbers are operands, so that regions with other ones share code.
// CHECK-LABEL: func.func @between
// CHECK: [[X:%.*]] = rlx.softmax
// CHECK: [[HALF:%.*]] = rlx.constant() {value = dense<5.000000e-01> : tensor<f32>} : tensor<f32>
// CHECK: [[Y:%.*]] = rlx.elementwise_region([[X]], [[HALF]]) {rlx.kernel = "elementwise"}
// CHECK: rlx.binary
// CHECK: rlx.activation
// CHECK: rlx.yield
// CHECK: rlx.softmax([[Y]])
// OFF-NOT: elementwise_region
func.func @between(%x: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %0 = rlx.softmax(%x) {axis = 1} : tensor<4x64xf32>
  %1 = rlx.constant {value = dense<5.000000e-01> : tensor<4x64xf32>} : tensor<4x64xf32>
  %2 = rlx.binary(%0, %1) {kind = "mul"} : tensor<4x64xf32>
  %3 = rlx.activation(%2) {kind = "tanh"} : tensor<4x64xf32>
  %4 = rlx.softmax(%3) {axis = 1} : tensor<4x64xf32>
  return %4 : tensor<4x64xf32>
}

// IREE fuses these with the transpose and the reduction.
// CHECK-LABEL: func.func @fused_by_iree
// CHECK-NOT: elementwise_region
func.func @fused_by_iree(%x: tensor<4x64xi32>) -> tensor<4xi32> {
  %0 = rlx.transpose(%x) {perm = array<i64: 1, 0>} : (tensor<4x64xi32>) -> tensor<64x4xi32>
  %1 = rlx.binary(%0, %0) {kind = "mul"} : tensor<64x4xi32>
  %2 = rlx.reduce(%1) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<64x4xi32>) -> tensor<4xi32>
  return %2 : tensor<4xi32>
}
