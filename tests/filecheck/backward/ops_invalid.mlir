// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A cotangent of another shape.
func.func @f(%0: tensor<2x3xf32>, %1: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.relu_backward' op 'dy' must be f32[2, 3], as the result of the forward op, got f32[3]}}
  rlx.relu_backward(%0, %1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

// A table of another size than the cotangent says.
func.func @f(%0: tensor<4x3xf32>, %1: tensor<5xi32>) {
  // expected-error @+1 {{'rlx.gather_backward' op 'dy' must be f32[5, 3], as the result of the forward op, got f32[4, 3]}}
  rlx.gather_backward(%0, %1) {axis = 0, size = [7]} : (tensor<4x3xf32>, tensor<5xi32>) -> tensor<7x3xf32>
  return
}

// -----

// No room for the axes of the indices.
func.func @f(%0: tensor<4x3xf32>, %1: tensor<4x3x1xi32>) {
  // expected-error @+1 {{'rlx.gather_backward' op axis 0 of the table leaves no room in f32[4, 3] for the axes of the indices i32[4, 3, 1]}}
  rlx.gather_backward(%0, %1) {axis = 0, size = [7]} : (tensor<4x3xf32>, tensor<4x3x1xi32>) -> tensor<7xf32>
  return
}
