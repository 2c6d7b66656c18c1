// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @parts(
// CHECK: rlx.real(%arg0) : (tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
// CHECK: rlx.imag(%arg0)
// CHECK: rlx.conjugate(%arg0)
// CHECK: rlx.complex(%0, %1) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>
func.func @parts(%arg0: tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>) -> tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>> {
  %0 = rlx.real(%arg0) : (tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %1 = rlx.imag(%arg0) : (tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %2 = rlx.conjugate(%arg0) : tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>
  %3 = rlx.complex(%0, %1) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>
  return %3 : tensor<?x4xcomplex<f32>, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @norm(
// CHECK: rlx.complex_norm_sq(%arg0) : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
func.func @norm(%arg0: tensor<3xcomplex<f32>>) -> tensor<3xf32> {
  %0 = rlx.complex_norm_sq(%arg0) : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @functions(
// CHECK: rlx.complex_function(%arg0) {kind = "asin"} : tensor<3xcomplex<f32>>
// CHECK: rlx.complex_function(%0) {kind = "log1p"} : tensor<3xcomplex<f32>>
func.func @functions(%arg0: tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>> {
  %0 = rlx.complex_function(%arg0) {kind = "asin"} : tensor<3xcomplex<f32>>
  %1 = rlx.complex_function(%0) {kind = "log1p"} : tensor<3xcomplex<f32>>
  return %1 : tensor<3xcomplex<f32>>
}
