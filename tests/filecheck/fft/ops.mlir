// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @fft(
// CHECK: rlx.fft(%arg0) {axis = 1, inverse = false, norm = "ortho"} : tensor<2x8xcomplex<f32>>
func.func @fft(%arg0: tensor<2x8xcomplex<f32>>) -> tensor<2x8xcomplex<f32>> {
  %0 = rlx.fft(%arg0) {axis = 1, inverse = false, norm = "ortho"} : tensor<2x8xcomplex<f32>>
  return %0 : tensor<2x8xcomplex<f32>>
}

// CHECK-LABEL: func.func @real(
// CHECK: rlx.rfft(%arg0) {axis = 0, norm = "backward"} : (tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n//2+1"]>>
// CHECK: rlx.irfft(%0) {axis = 0, length = ["n"], norm = "backward"}
func.func @real(%arg0: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.rfft(%arg0) {axis = 0, norm = "backward"} : (tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n//2+1"]>>
  %1 = rlx.irfft(%0) {axis = 0, length = ["n"], norm = "backward"} : (tensor<?xcomplex<f32>, #rlx.dims<["n//2+1"]>>) -> tensor<?xf32, #rlx.dims<["n"]>>
  return %1 : tensor<?xf32, #rlx.dims<["n"]>>
}
