// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Contracted sizes that differ.
func.func @matmul(%0: tensor<2x3xf32>, %1: tensor<4x5xf32>) {
  // expected-error @+1 {{'rlx.matmul' op f32[2, 3] @ f32[4, 5]: 3 columns against 4 rows}}
  rlx.matmul(%0, %1) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

// A vector.
func.func @matmul(%0: tensor<3xf32>, %1: tensor<3x5xf32>) {
  // expected-error @+1 {{'rlx.matmul' op both operands need rank 2 or more, got f32[3] and f32[3, 5]}}
  rlx.matmul(%0, %1) : (tensor<3xf32>, tensor<3x5xf32>) -> tensor<5xf32>
  return
}

// -----

// Contracted sizes that differ.
func.func @dot_general(%0: tensor<2x3xf32>, %1: tensor<3x5xf32>) {
  // expected-error @+1 {{'rlx.dot_general' op contracting axis 0 of f32[2, 3] is 2, but axis 0 of f32[3, 5] is 3}}
  rlx.dot_general(%0, %1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 0>, rhs_batch = array<i64>, rhs_contracting = array<i64: 0>} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
  return
}

// -----

// Unpaired axes.
func.func @dot_general(%0: tensor<2x3xf32>, %1: tensor<3x5xf32>) {
  // expected-error @+1 {{'rlx.dot_general' op 1 contracting axes of lhs against 0 of rhs}}
  rlx.dot_general(%0, %1) {lhs_batch = array<i64>, lhs_contracting = array<i64: 1>, rhs_batch = array<i64>, rhs_contracting = array<i64>} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x3x5xf32>
  return
}
