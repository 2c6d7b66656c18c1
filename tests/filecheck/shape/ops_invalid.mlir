// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Another number of elements.
func.func @reshape(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.reshape' op f32[2, 3] has 6 elements, [7] has 7}}
  rlx.reshape(%0) {shape = [7]} : (tensor<2x3xf32>) -> tensor<7xf32>
  return
}

// -----

// A result type that inference does not give.
func.func @reshape(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.reshape' op result 0 is declared f32[2, 3], but inference gives f32[6]}}
  rlx.reshape(%0) {shape = [6]} : tensor<2x3xf32>
  return
}

// -----

// Not a permutation.
func.func @transpose(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.transpose' op perm [0, 0] is not a permutation of the 2 axes of f32[2, 3]}}
  rlx.transpose(%0) {perm = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  return
}

// -----

// An axis that there is not.
func.func @narrow(%0: tensor<4x6xf32>) {
  // expected-error @+1 {{'rlx.narrow' op axis 2 is out of range for rank 2}}
  rlx.narrow(%0) {axis = 2, length = [3], start = [2]} : (tensor<4x6xf32>) -> tensor<4x3xf32>
  return
}

// -----

// A range past the end.
func.func @narrow(%0: tensor<4x6xf32>) {
  // expected-error @+1 {{'rlx.narrow' op the range 2:7 does not fit axis 1 of size 6}}
  rlx.narrow(%0) {axis = 1, length = [5], start = [2]} : (tensor<4x6xf32>) -> tensor<4x5xf32>
  return
}

// -----

// Limits before starts.
func.func @slice(%0: tensor<4xf32>) {
  // expected-error @+1 {{'rlx.slice' op the range 3:2 does not fit axis 0 of size 4}}
  rlx.slice(%0) {limits = [2], starts = [3], strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<0xf32>
  return
}

// -----

// A stride of 0.
func.func @slice(%0: tensor<4xf32>) {
  // expected-error @+1 {{'rlx.slice' op attribute 'strides': 0 is not in [1, 2^31)}}
  rlx.slice(%0) {limits = [4], starts = [0], strides = array<i64: 0>} : tensor<4xf32>
  return
}

// -----

// Parts that differ on another axis.
func.func @concat(%0: tensor<2x3xf32>, %1: tensor<2x4xf32>) {
  // expected-error @+1 {{'rlx.concat' op f32[2, 3] and f32[2, 4] differ on an axis other than 0}}
  rlx.concat(%0, %1) {axis = 0} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>
  return
}

// -----

// Parts of two dtypes.
func.func @concat(%0: tensor<2x3xf32>, %1: tensor<2x3xi32>) {
  // expected-error @+1 {{'rlx.concat' op operands have different dtypes: f32, i32}}
  rlx.concat(%0, %1) {axis = 0} : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<4x3xf32>
  return
}

// -----

// Shapes that do not broadcast.
func.func @expand(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.expand' op shapes [3] and [4] do not broadcast: 3 against 4 at axis -1}}
  rlx.expand(%0) {shape = [4]} : (tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

// Axes out of order.
func.func @reverse(%0: tensor<4x5xf32>) {
  // expected-error @+1 {{'rlx.reverse' op axes [1, 0] must be sorted and distinct}}
  rlx.reverse(%0) {axes = array<i64: 1, 0>} : tensor<4x5xf32>
  return
}
