// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// An axis that is not there.
func.func @argsort(%0: tensor<4x5xf32>) {
  // expected-error @+1 {{'rlx.argsort' op axis -1 is out of range for rank 2}}
  rlx.argsort(%0) {axis = -1} : (tensor<4x5xf32>) -> tensor<4x5xi32>
  return
}

// -----

// An order of complex numbers.
func.func @sort(%0: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.sort' op operand 'x' is c64; expected one of}}
  rlx.sort(%0) {axis = 0} : tensor<4xcomplex<f32>>
  return
}
