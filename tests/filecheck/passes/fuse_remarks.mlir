// RUN: rlx-opt %s --rlx-fuse=remarks=true --verify-diagnostics
// RUN: rlx-opt %s --rlx-fuse=remarks=true 2>&1 | filecheck %s
// RUN: rlx-opt %s --rlx-fuse="target=cpu remarks=true" --verify-diagnostics=only-expected -o %t

// CHECK: fuse_remarks.mlir:11:8: remark: matmul-bias-act: the vector is subtracted from the product
// CHECK: fuse_remarks.mlir:11:8: note: negate it and add it, as a bias
func.func @nearly(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  // expected-remark @+2 {{matmul-bias-act: the vector is subtracted from the product}}
  // expected-note @+1 {{negate it and add it, as a bias}}
  %1 = rlx.binary(%0, %b) {kind = "sub"} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %2 = rlx.binary(%1, %1) {kind = "mul"} : tensor<2x3xf32>
  return %2, %1 : tensor<2x3xf32>, tensor<2x3xf32>
}
