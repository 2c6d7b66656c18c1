// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Parts that do not broadcast.
func.func @complex(%0: tensor<2xf32>, %1: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.complex' op shapes [2] and [3] do not broadcast: 2 against 3 at axis -1}}
  rlx.complex(%0, %1) : (tensor<2xf32>, tensor<3xf32>) -> tensor<3xcomplex<f32>>
  return
}
