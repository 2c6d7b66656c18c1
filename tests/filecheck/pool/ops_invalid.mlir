// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A list for another rank.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.pool' op kernel needs 2 entries for 2 spatial axes, got [2]}}
  rlx.pool(%0) {kernel = array<i64: 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : tensor<1x2x4x4xf32>
  return
}

// -----

// A window that does not fit.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.pool' op a window of 7 does not fit spatial axis 1 of f32[1, 2, 4, 4] with padding 1 and 0}}
  rlx.pool(%0) {kernel = array<i64: 2, 7>, kind = "max", padding = array<i64: 0, 0, 1, 0>, stride = array<i64: 1, 1>} : tensor<1x2x4x4xf32>
  return
}

// -----

// A stride of nothing.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.pool' op attribute 'stride': 0 is not in [1, 2^31)}}
  rlx.pool(%0) {kernel = array<i64: 2, 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 0, 1>} : tensor<1x2x4x4xf32>
  return
}

// -----

// Another result.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.pool' op result 0 is declared f32[1, 2, 4, 4], but inference gives f32[1, 2, 2, 2]}}
  rlx.pool(%0) {kernel = array<i64: 2, 2>, kind = "max", padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : tensor<1x2x4x4xf32>
  return
}
