// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Indices that are floats.
func.func @gather(%0: tensor<5x3xf32>, %1: tensor<4xf32>) {
  // expected-error @+1 {{'rlx.gather' op operand 'indices' is f32; expected one of}}
  rlx.gather(%0, %1) {axis = 0} : (tensor<5x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  return
}

// -----

// An empty table.
func.func @gather(%0: tensor<0x3xf32>, %1: tensor<4xi32>) {
  // expected-error @+1 {{'rlx.gather' op axis 0 of f32[0, 3] is empty: there is nothing to gather}}
  rlx.gather(%0, %1) {axis = 0} : (tensor<0x3xf32>, tensor<4xi32>) -> tensor<4x3xf32>
  return
}

// -----

// Batch axes that differ.
func.func @gather_batched(%0: tensor<2x5xf32>, %1: tensor<3x4xi32>) {
  // expected-error @+1 {{'rlx.gather_batched' op the first 1 axes of f32[2, 5] and of the indices i32[3, 4] must agree}}
  rlx.gather_batched(%0, %1) {axis = 1} : (tensor<2x5xf32>, tensor<3x4xi32>) -> tensor<3x4xf32>
  return
}

// -----

// A table of rank 1.
func.func @embedding(%0: tensor<5xf32>, %1: tensor<4xi32>) {
  // expected-error @+1 {{'rlx.embedding' op the table must be [V, E], got f32[5]}}
  rlx.embedding(%0, %1) : (tensor<5xf32>, tensor<4xi32>) -> tensor<4xf32>
  return
}
