// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @fake_quantize_backward(
// CHECK: rlx.fake_quantize_backward(%arg0, %arg1) {bits = 8, ste = "tanh"} : tensor<3x8xf32>
func.func @fake_quantize_backward(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fake_quantize_backward(%arg0, %arg1) {bits = 8, ste = "tanh"} : tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fake_quantize_backward_1(
// CHECK: rlx.fake_quantize_backward(%arg0, %arg1) {axis = 0, bits = 2, ste = "hard_tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @fake_quantize_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fake_quantize_backward(%arg0, %arg1) {axis = 0, bits = 2, ste = "hard_tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_x(
// CHECK: rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<3x8xf32>
func.func @fake_quantize_lsq_backward_x(%arg0: tensor<3x8xf32>, %arg1: tensor<f32>, %arg2: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_x_1(
// CHECK: rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
func.func @fake_quantize_lsq_backward_x_1(%arg0: tensor<?x2x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<2xf32>, %arg2: tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_scale(
// CHECK: rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<f32>
func.func @fake_quantize_lsq_backward_scale(%arg0: tensor<3x8xf32>, %arg1: tensor<f32>, %arg2: tensor<3x8xf32>) -> tensor<f32> {
  %0 = rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_scale_1(
// CHECK: rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32>
func.func @fake_quantize_lsq_backward_scale_1(%arg0: tensor<?x2x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<2xf32>, %arg2: tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32> {
  %0 = rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
