// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @relu_backward(
// CHECK: rlx.relu_backward(%arg0, %arg1) : tensor<3x5xf32>
func.func @relu_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.relu_backward(%arg0, %arg1) : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @relu_backward_1(
// CHECK: rlx.relu_backward(%arg0, %arg1) : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @relu_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.relu_backward(%arg0, %arg1) : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @activation_backward(
// CHECK: rlx.activation_backward(%arg0, %arg1) {kind = "gelu"} : tensor<3x5xf32>
func.func @activation_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.activation_backward(%arg0, %arg1) {kind = "gelu"} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @activation_backward_1(
// CHECK: rlx.activation_backward(%arg0, %arg1) {kind = "tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @activation_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.activation_backward(%arg0, %arg1) {kind = "tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @complex_norm_sq_backward(
// CHECK: rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<3x4xcomplex<f32>>, tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>>
func.func @complex_norm_sq_backward(%arg0: tensor<3x4xcomplex<f32>>, %arg1: tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>> {
  %0 = rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<3x4xcomplex<f32>>, tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>>
  return %0 : tensor<3x4xcomplex<f32>>
}

// CHECK-LABEL: func.func @complex_norm_sq_backward_1(
// CHECK: rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
func.func @complex_norm_sq_backward_1(%arg0: tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, %arg1: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>> {
  %0 = rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
  return %0 : tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @cumsum_backward(
// CHECK: rlx.cumsum_backward(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
func.func @cumsum_backward(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cumsum_backward(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cumsum_backward_1(
// CHECK: rlx.cumsum_backward(%arg0) {axis = 1, exclusive = true} : tensor<2x?xf32, #rlx.dims<["n"]>>
func.func @cumsum_backward_1(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.cumsum_backward(%arg0) {axis = 1, exclusive = true} : tensor<2x?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @gather_backward(
// CHECK: rlx.gather_backward(%arg0, %arg1) {axis = 0, size = [5]} : (tensor<4x3xf32>, tensor<4xi32>) -> tensor<5x3xf32>
func.func @gather_backward(%arg0: tensor<4x3xf32>, %arg1: tensor<4xi32>) -> tensor<5x3xf32> {
  %0 = rlx.gather_backward(%arg0, %arg1) {axis = 0, size = [5]} : (tensor<4x3xf32>, tensor<4xi32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @softmax_cross_entropy_backward(
// CHECK: rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<3x5xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<3x5xf32>
func.func @softmax_cross_entropy_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3xi32>, %arg2: tensor<3xf32>) -> tensor<3x5xf32> {
  %0 = rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<3x5xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @softmax_cross_entropy_backward_1(
// CHECK: rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, tensor<?xi64, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
func.func @softmax_cross_entropy_backward_1(%arg0: tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, %arg1: tensor<?xi64, #rlx.dims<["n"]>>, %arg2: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>> {
  %0 = rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, tensor<?xi64, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
  return %0 : tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
}
