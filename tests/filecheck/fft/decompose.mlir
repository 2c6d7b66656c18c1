// RUN: rlx-opt --rlx-decompose --cse %s | filecheck %s

// Two stages of 8, each of four products of real numbers.
// CHECK-LABEL: func.func @eight_by_eight(
// CHECK-COUNT-8: rlx.matmul(
// CHECK-NOT: rlx.matmul(
// CHECK: rlx.complex(
func.func @eight_by_eight(%arg0: tensor<2x64xcomplex<f32>>) -> tensor<2x64xcomplex<f32>> {
  %0 = rlx.fft(%arg0) {axis = 1, inverse = false, norm = "backward"} : tensor<2x64xcomplex<f32>>
  return %0 : tensor<2x64xcomplex<f32>>
}

// The first stage of real numbers is two products, and gives half of the rows.
// CHECK-LABEL: func.func @real(
// CHECK-COUNT-6: rlx.matmul(
// CHECK-NOT: rlx.matmul(
// CHECK: rlx.gather(
func.func @real(%arg0: tensor<2x64xf32>) -> tensor<2x33xcomplex<f32>> {
  %0 = rlx.rfft(%arg0) {axis = 1, norm = "backward"} : (tensor<2x64xf32>) -> tensor<2x33xcomplex<f32>>
  return %0 : tensor<2x33xcomplex<f32>>
}
