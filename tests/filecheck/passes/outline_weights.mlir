// RUN: rlx-opt %s --rlx-outline-weights | filecheck %s
// RUN: rlx-opt %s --rlx-outline-weights=growth=4 | filecheck %s --check-prefix=LARGE
// RUN: rlx-opt %s --rlx-outline-weights --rlx-outline-weights | filecheck %s

// Weights that are joined, and a product of two of them, are computed once; parameters that nothing else reads go.
// CHECK-LABEL: func.func private @main.weights(
// CHECK-SAME: rlx.name = "a"
// CHECK-SAME: rlx.name = "b"
// CHECK-SAME: rlx.name = "main.weights0"
// CHECK-SAME: rlx.name = "main.weights1"
// CHECK-SAME: rlx.prepares = "main"
// CHECK-NEXT: [[AB:%.*]] = rlx.concat(%arg0, %arg1)
// CHECK-NEXT: [[T:%.*]] = rlx.transpose(%arg1)
// CHECK-NEXT: [[P:%.*]] = rlx.matmul(%arg0, [[T]])
// CHECK-NEXT: return [[AB]], [[P]]
// CHECK: func.func @main(
// CHECK-SAME: rlx.name = "x"
// CHECK-SAME: rlx.name = "small"
// CHECK-SAME: rlx.name = "main.weights0"
// CHECK-SAME: rlx.name = "main.weights1"
// CHECK-NEXT: rlx.matmul(%arg0, %arg2)
// CHECK-NEXT: rlx.matmul(%arg0, %arg3)
// What would be four times as large, and views, stay.
// CHECK-NEXT: [[WIDE:%.*]] = rlx.cast(%arg1)
// CHECK-NEXT: rlx.reshape([[WIDE]])
// LARGE: rlx.name = "main.weights2"
// LARGE: rlx.cast
// LARGE: func.func @main
// LARGE-NOT: rlx.cast
// LARGE: return
func.func @main(%x: tensor<1x4xf32> {rlx.kind = "input", rlx.name = "x"}, %a: tensor<4x2xf32> {rlx.kind = "param", rlx.name = "a"},
                %b: tensor<4x2xf32> {rlx.kind = "param", rlx.name = "b"}, %small: tensor<16xi8> {rlx.kind = "param", rlx.name = "small"})
    -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) {
  %ab = rlx.concat(%a, %b) {axis = 1} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %y = rlx.matmul(%x, %ab) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %t = rlx.transpose(%b) {perm = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %p = rlx.matmul(%a, %t) : (tensor<4x2xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %z = rlx.matmul(%x, %p) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %wide = rlx.cast(%small) {dtype = f32} : (tensor<16xi8>) -> tensor<16xf32>
  %square = rlx.reshape(%wide) {shape = [4, 4]} : (tensor<16xf32>) -> tensor<4x4xf32>
  %v = rlx.matmul(%x, %square) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  return %y, %z, %v : tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
}
