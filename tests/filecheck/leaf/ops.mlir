// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @constant(
// CHECK: rlx.constant() {value = dense<{{\[\[}}0.000000e+00, 1.000000e+00, 2.000000e+00], [3.000000e+00, 1.000000e+02, 5.000000e+00{{\]\]}}> : tensor<2x3xf32>} : tensor<2x3xf32>
func.func @constant() -> tensor<2x3xf32> {
  %0 = rlx.constant() {value = dense<[[0.000000e+00, 1.000000e+00, 2.000000e+00], [3.000000e+00, 1.000000e+02, 5.000000e+00]]> : tensor<2x3xf32>} : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @iota(
// CHECK: rlx.iota() {axis = 1, dtype = f32, shape = [3, 4]} : tensor<3x4xf32>
func.func @iota() -> tensor<3x4xf32> {
  %0 = rlx.iota() {axis = 1, dtype = f32, shape = [3, 4]} : tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @dim_size(
// CHECK: rlx.dim_size() {size = [7]} : tensor<i32>
func.func @dim_size() -> tensor<i32> {
  %0 = rlx.dim_size() {size = [7]} : tensor<i32>
  return %0 : tensor<i32>
}
