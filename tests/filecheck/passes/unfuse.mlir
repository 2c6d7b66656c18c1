// RUN: rlx-opt %s --rlx-fuse --rlx-unfuse --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-fuse --rlx-unfuse=recognised=true | filecheck %s --check-prefix=PRIMITIVES

// Two products that were joined, with their biases and one activation.
// CHECK-LABEL: func.func @joined(
// CHECK-NOT: concat
// CHECK: rlx.matmul(%arg0, %arg1)
// CHECK: rlx.matmul(%arg0, %arg3)
// CHECK-NOT: narrow
// CHECK: return
func.func @joined(%x: tensor<2x4xf32>, %w: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "w"}, %b: tensor<3xf32> {rlx.kind = "param", rlx.name = "b"}, %v: tensor<4x2xf32> {rlx.kind = "param", rlx.name = "v"}, %c: tensor<2xf32> {rlx.kind = "param", rlx.name = "c"}) -> (tensor<2x3xf32>, tensor<2x2xf32>) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %2 = rlx.activation(%1) {kind = "gelu"} : tensor<2x3xf32>
  %3 = rlx.matmul(%x, %v) : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %4 = rlx.binary(%3, %c) {kind = "add"} : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %5 = rlx.activation(%4) {kind = "gelu"} : tensor<2x2xf32>
  return %2, %5 : tensor<2x3xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func.func @norm(
// CHECK-NEXT: rlx.binary(%arg0, %arg0) {kind = "add"}
// CHECK-NEXT: rlx.rms_norm(
// CHECK-NEXT: return
// PRIMITIVES-LABEL: func.func @norm(
// PRIMITIVES-NOT: rlx.rms_norm
// PRIMITIVES: rlx.reduce(
func.func @norm(%x: tensor<2x4xf32>, %s: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = rlx.binary(%x, %x) {kind = "add"} : tensor<2x4xf32>
  %1 = rlx.rms_norm(%0, %s) {axis = 1} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
