// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @pad(
// CHECK: rlx.pad(%arg0) {high = [1, 0], low = [0, 2], mode = "constant", value = 1.000000e+00} : (tensor<3x4xf32>) -> tensor<4x6xf32>
func.func @pad(%arg0: tensor<3x4xf32>) -> tensor<4x6xf32> {
  %0 = rlx.pad(%arg0) {high = [1, 0], low = [0, 2], mode = "constant", value = 1.000000e+00} : (tensor<3x4xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// CHECK-LABEL: func.func @pad_1(
// CHECK: rlx.pad(%arg0) {high = [1, 1], low = ["n", 0], mode = "constant", value = 0.000000e+00} : (tensor<?x2xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["2*n+1"]>>
func.func @pad_1(%arg0: tensor<?x2xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["2*n+1"]>> {
  %0 = rlx.pad(%arg0) {high = [1, 1], low = ["n", 0], mode = "constant", value = 0.000000e+00} : (tensor<?x2xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["2*n+1"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["2*n+1"]>>
}

// CHECK-LABEL: func.func @triangular(
// CHECK: rlx.triangular(%arg0) {diagonal = 0, upper = false} : tensor<4x5xf32>
func.func @triangular(%arg0: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = rlx.triangular(%arg0) {diagonal = 0, upper = false} : tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @triangular_1(
// CHECK: rlx.triangular(%arg0) {diagonal = -1, upper = true} : tensor<?x?xf32, #rlx.dims<["n", "m"]>>
func.func @triangular_1(%arg0: tensor<?x?xf32, #rlx.dims<["n", "m"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "m"]>> {
  %0 = rlx.triangular(%arg0) {diagonal = -1, upper = true} : tensor<?x?xf32, #rlx.dims<["n", "m"]>>
  return %0 : tensor<?x?xf32, #rlx.dims<["n", "m"]>>
}
