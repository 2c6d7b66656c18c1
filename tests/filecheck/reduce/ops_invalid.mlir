// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// An axis that there is not.
func.func @reduce(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.reduce' op axis 2 is out of range for rank 2}}
  rlx.reduce(%0) {axes = array<i64: 2>, keep_dims = false, kind = "sum"} : tensor<2x3xf32>
  return
}

// -----

// Axes out of order.
func.func @reduce(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.reduce' op axes [1, 0] must be sorted and distinct}}
  rlx.reduce(%0) {axes = array<i64: 1, 0>, keep_dims = false, kind = "sum"} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

// The mean of integers.
func.func @reduce(%0: tensor<2x3xi32>) {
  // expected-error @+1 {{'rlx.reduce' op mean takes floats, not i32 (cast to a float dtype first)}}
  rlx.reduce(%0) {axes = array<i64: 1>, keep_dims = false, kind = "mean"} : (tensor<2x3xi32>) -> tensor<2xi32>
  return
}

// -----

// Kept axes that the type lacks.
func.func @reduce(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.reduce' op result 0 is declared f32[2], but inference gives f32[2, 1]}}
  rlx.reduce(%0) {axes = array<i64: 1>, keep_dims = true, kind = "max"} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

// Softmax of integers.
func.func @softmax(%0: tensor<2x3xi32>) {
  // expected-error @+1 {{'rlx.softmax' op operand 'x' is i32; expected one of}}
  rlx.softmax(%0) {axis = 1} : tensor<2x3xi32>
  return
}

// -----

// A running sum of bool.
func.func @cumsum(%0: tensor<2x3xi1>) {
  // expected-error @+1 {{'rlx.cumsum' op operand 'x' is bool; expected one of}}
  rlx.cumsum(%0) {axis = 1, exclusive = false} : tensor<2x3xi1>
  return
}

// -----

// An empty axis.
func.func @argmax(%0: tensor<2x0xf32>) {
  // expected-error @+1 {{'rlx.argmax' op axis 1 of f32[2, 0] is empty: it has no largest element}}
  rlx.argmax(%0) {axis = 1, keep_dims = false} : (tensor<2x0xf32>) -> tensor<2xi32>
  return
}

// -----

// More than there are.
func.func @topk(%0: tensor<2x3xf32>) {
  // expected-error @+1 {{'rlx.topk' op k = 4 does not fit a last axis of size 3}}
  rlx.topk(%0) {k = 4} : (tensor<2x3xf32>) -> (tensor<2x4xf32>, tensor<2x4xi32>)
  return
}

// -----

// An empty axis.
func.func @argmin(%0: tensor<4x0xf32>) {
  // expected-error @+1 {{'rlx.argmin' op axis 1 of f32[4, 0] is empty: it has no smallest element}}
  rlx.argmin(%0) {axis = 1} : (tensor<4x0xf32>) -> tensor<4xi32>
  return
}
