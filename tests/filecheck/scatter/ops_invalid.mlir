// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Tuples that are too long.
func.func @gather_nd(%0: tensor<4x5xf32>, %1: tensor<2x3xi32>) {
  // expected-error @+1 {{'rlx.gather_nd' op tuples of 3 after 0 batch axes do not fit f32[4, 5]}}
  rlx.gather_nd(%0, %1) : (tensor<4x5xf32>, tensor<2x3xi32>) -> tensor<2xf32>
  return
}

// -----

// Batch axes that differ.
func.func @gather_nd(%0: tensor<4x5xf32>, %1: tensor<3x1xi32>) {
  // expected-error @+1 {{'rlx.gather_nd' op the first 1 axes of f32[4, 5] and of the indices i32[3, 1] must agree}}
  rlx.gather_nd(%0, %1) {batch_dims = 1} : (tensor<4x5xf32>, tensor<3x1xi32>) -> tensor<3xf32>
  return
}

// -----

// An empty axis.
func.func @gather_nd(%0: tensor<0x5xf32>, %1: tensor<3x1xi32>) {
  // expected-error @+1 {{'rlx.gather_nd' op axis 0 of f32[0, 5] is empty: there is nothing to gather}}
  rlx.gather_nd(%0, %1) : (tensor<0x5xf32>, tensor<3x1xi32>) -> tensor<3x5xf32>
  return
}

// -----

// Updates of another shape.
func.func @scatter_nd(%0: tensor<4x5xf32>, %1: tensor<3x1xi32>, %2: tensor<3x4xf32>) {
  // expected-error @+1 {{'rlx.scatter_nd' op the updates must be f32[3, 5] for f32[4, 5] and indices i32[3, 1], got f32[3, 4]}}
  rlx.scatter_nd(%0, %1, %2) : (tensor<4x5xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<4x5xf32>
  return
}

// -----

// An order of complex numbers.
func.func @scatter_nd(%0: tensor<4xcomplex<f32>>, %1: tensor<3x1xi32>, %2: tensor<3xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.scatter_nd' op max is not defined for c64: complex numbers have no order}}
  rlx.scatter_nd(%0, %1, %2) {reduction = "max"} : (tensor<4xcomplex<f32>>, tensor<3x1xi32>, tensor<3xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  return
}

// -----

// Indices for other updates.
func.func @scatter_add(%0: tensor<4x5xf32>, %1: tensor<3xi32>) {
  // expected-error @+1 {{'rlx.scatter_add' op the first axes of the updates f32[4, 5] must be those of the indices i32[3]}}
  rlx.scatter_add(%0, %1) {size = [7]} : (tensor<4x5xf32>, tensor<3xi32>) -> tensor<7x5xf32>
  return
}
