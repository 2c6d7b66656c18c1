// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Nothing to transform.
func.func @fft(%0: tensor<2x0xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.fft' op axis 1 of c64[2, 0] is empty: a transform has at least one element}}
  rlx.fft(%0) {axis = 1, inverse = false, norm = "backward"} : tensor<2x0xcomplex<f32>>
  return
}

// -----

// A length that the spectrum does not have.
func.func @irfft(%0: tensor<2x4xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.irfft' op a real signal of length 8 has a spectrum of 5 elements, but axis 1 of c64[2, 4] is 4}}
  rlx.irfft(%0) {axis = 1, length = [8], norm = "backward"} : (tensor<2x4xcomplex<f32>>) -> tensor<2x8xf32>
  return
}
