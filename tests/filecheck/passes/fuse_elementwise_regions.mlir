// RUN: rlx-opt %s --rlx-fuse-elementwise-regions --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-fuse-elementwise-regions=least=5 | filecheck %s --check-prefix=LEAST

// A diamond whose middle is read elsewhere too, with a reduction of its end: a region of three results.
// CHECK-LABEL: func.func @diamond(
// CHECK-NEXT: %[[r:.*]]:3 = rlx.elementwise_region(%arg0, %arg1)
// CHECK: rlx.activation({{.*}}) {kind = "tanh"}
// CHECK: rlx.activation({{.*}}) {kind = "exp"}
// CHECK: rlx.binary({{.*}}) {kind = "mul"}
// CHECK: rlx.reduce(
// CHECK: rlx.yield
// CHECK: return
// LEAST-LABEL: func.func @diamond(
// LEAST: rlx.elementwise_region
func.func @diamond(%x: tensor<2x3xf32>, %b: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>) {
  %0 = rlx.binary(%x, %b) {kind = "add"} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = rlx.activation(%0) {kind = "tanh"} : tensor<2x3xf32>
  %2 = rlx.activation(%0) {kind = "exp"} : tensor<2x3xf32>
  %3 = rlx.binary(%1, %2) {kind = "mul"} : tensor<2x3xf32>
  %4 = rlx.reduce(%3) {kind = "sum", axes = array<i64: 1>, keep_dims = false} : (tensor<2x3xf32>) -> tensor<2xf32>
  return %1, %3, %4 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>
}

// A way out and back in: two regions around the product.
// CHECK-LABEL: func.func @around(
// CHECK: rlx.elementwise_region(
// CHECK: rlx.matmul(
// CHECK: rlx.elementwise_region(
// CHECK: return
// LEAST-LABEL: func.func @around(
// LEAST-NOT: rlx.elementwise_region
func.func @around(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = rlx.activation(%x) {kind = "tanh"} : tensor<3x3xf32>
  %1 = rlx.activation(%0) {kind = "neg"} : tensor<3x3xf32>
  %2 = rlx.matmul(%1, %x) : tensor<3x3xf32>
  %3 = rlx.binary(%2, %1) {kind = "add"} : tensor<3x3xf32>
  %4 = rlx.activation(%3) {kind = "tanh"} : tensor<3x3xf32>
  return %4 : tensor<3x3xf32>
}
