// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @matmul(
// CHECK: rlx.matmul(%arg0, %arg1) : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
func.func @matmul(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.matmul(%arg0, %arg1) : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @matmul_1(
// CHECK: rlx.matmul(%arg0, %arg1) : (tensor<2x3x4xf16>, tensor<4x5xf16>) -> tensor<2x3x5xf16>
func.func @matmul_1(%arg0: tensor<2x3x4xf16>, %arg1: tensor<4x5xf16>) -> tensor<2x3x5xf16> {
  %0 = rlx.matmul(%arg0, %arg1) : (tensor<2x3x4xf16>, tensor<4x5xf16>) -> tensor<2x3x5xf16>
  return %0 : tensor<2x3x5xf16>
}

// CHECK-LABEL: func.func @matmul_2(
// CHECK: rlx.matmul(%arg0, %arg1) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
func.func @matmul_2(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<4x5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>> {
  %0 = rlx.matmul(%arg0, %arg1) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x5xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @dot_general(
// CHECK: rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 0>} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
func.func @dot_general(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 0>} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @dot_general_1(
// CHECK: rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 1>} : (tensor<3x4xbf16>, tensor<5x4xbf16>) -> tensor<3x5xbf16>
func.func @dot_general_1(%arg0: tensor<3x4xbf16>, %arg1: tensor<5x4xbf16>) -> tensor<3x5xbf16> {
  %0 = rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 1>} : (tensor<3x4xbf16>, tensor<5x4xbf16>) -> tensor<3x5xbf16>
  return %0 : tensor<3x5xbf16>
}

// CHECK-LABEL: func.func @dot_general_2(
// CHECK: rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 1>} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<5x4xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
func.func @dot_general_2(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<5x4xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>> {
  %0 = rlx.dot_general(%arg0, %arg1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64: 1>} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<5x4xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x5xf32, #rlx.dims<["n"]>>
}
