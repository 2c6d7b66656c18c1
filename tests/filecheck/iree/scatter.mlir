// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-scatter | filecheck %s
// RUN: rlx-opt %s --rlx-to-linalg | filecheck %s --check-prefix=UPSTREAM

// A loop over rows of a table is IREE's scatter, which combines an update with what is there.
// UPSTREAM: scf.for
// CHECK-LABEL: func.func @whole_rows
// CHECK-NOT: scf.for
// CHECK: "iree_linalg_ext.scatter"
// CHECK-NEXT: ^bb0([[UPDATE:%.*]]: f32, [[OLD:%.*]]: f32):
// CHECK-NEXT: [[SUM:%.*]] = arith.addf [[OLD]], [[UPDATE]]
// CHECK-NEXT: "iree_linalg_ext.yield"([[SUM]])
// CHECK-NOT: scf.for
func.func @whole_rows(%t: tensor<5x3xf32>, %i: tensor<4x1xi32>, %u: tensor<4x3xf32>) -> tensor<5x3xf32> {
  %y = rlx.scatter_nd(%t, %i, %u) {reduction = "add"} : (tensor<5x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}
