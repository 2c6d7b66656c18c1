// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A list for another rank.
func.func @pad(%0: tensor<3x4xf32>) {
  // expected-error @+1 {{'rlx.pad' op low and high need 2 entries each, got 2 and 1}}
  rlx.pad(%0) {high = [1], low = [1, 1]} : (tensor<3x4xf32>) -> tensor<5x5xf32>
  return
}

// -----

// More than the mirror holds.
func.func @pad(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.pad' op reflect mode cannot add 3 to axis 0 of size 3}}
  rlx.pad(%0) {high = [0], low = [3], mode = "reflect"} : (tensor<3xf32>) -> tensor<6xf32>
  return
}

// -----

// No edge.
func.func @pad(%0: tensor<0xf32>) {
  // expected-error @+1 {{'rlx.pad' op axis 0 of f32[0] is empty: it has no edge to replicate}}
  rlx.pad(%0) {high = [0], low = [1], mode = "replicate"} : (tensor<0xf32>) -> tensor<1xf32>
  return
}

// -----

// A value that the dtype has not.
func.func @pad(%0: tensor<3xi32>) {
  // expected-error @+1 {{'rlx.pad' op attribute 'value': 0.5 does not fit i32}}
  rlx.pad(%0) {high = [0], low = [1], value = 0.5} : (tensor<3xi32>) -> tensor<4xi32>
  return
}

// -----

// A vector.
func.func @triangular(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.triangular' op expected matrices […, M, N], got f32[3]}}
  rlx.triangular(%0) : tensor<3xf32>
  return
}
