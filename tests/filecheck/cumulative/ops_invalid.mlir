// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// An axis that is not there.
func.func @cumprod(%0: tensor<4x5xf32>) {
  // expected-error @+1 {{'rlx.cumprod' op axis 2 is out of range for rank 2}}
  rlx.cumprod(%0) {axis = 2} : tensor<4x5xf32>
  return
}

// -----

// An order of complex numbers.
func.func @cummax(%0: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.cummax' op operand 'x' is c64; expected one of}}
  rlx.cummax(%0) {axis = 0} : tensor<4xcomplex<f32>>
  return
}
