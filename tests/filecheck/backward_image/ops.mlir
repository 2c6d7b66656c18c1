// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @max_pool2d_backward(
// CHECK: rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>, tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32>
func.func @max_pool2d_backward(%arg0: tensor<2x3x5x4xf32>, %arg1: tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32> {
  %0 = rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>, tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32>
  return %0 : tensor<2x3x5x4xf32>
}

// CHECK-LABEL: func.func @max_pool2d_backward_1(
// CHECK: rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
func.func @max_pool2d_backward_1(%arg0: tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>> {
  %0 = rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
  return %0 : tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
}

// CHECK-LABEL: func.func @conv2d_backward_input(
// CHECK: rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 1, 1, 0, 0>, size = [5, 5], stride = array<i64: 1, 1>} : (tensor<2x4x5x4xf32>, tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32>
func.func @conv2d_backward_input(%arg0: tensor<2x4x5x4xf32>, %arg1: tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32> {
  %0 = rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 1, 1, 0, 0>, size = [5, 5], stride = array<i64: 1, 1>} : (tensor<2x4x5x4xf32>, tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32>
  return %0 : tensor<2x3x5x5xf32>
}

// CHECK-LABEL: func.func @conv2d_backward_input_1(
// CHECK: rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 1, 0, 0>, size = ["h", 4], stride = array<i64: 2, 1>} : (tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
func.func @conv2d_backward_input_1(%arg0: tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, %arg1: tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>> {
  %0 = rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 1, 0, 0>, size = ["h", 4], stride = array<i64: 2, 1>} : (tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
  return %0 : tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
}

// CHECK-LABEL: func.func @conv2d_backward_weight(
// CHECK: rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x5x5xf32>, tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32>
func.func @conv2d_backward_weight(%arg0: tensor<2x3x5x5xf32>, %arg1: tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32> {
  %0 = rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x5x5xf32>, tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32>
  return %0 : tensor<4x3x3x2xf32>
}

// CHECK-LABEL: func.func @conv2d_backward_weight_1(
// CHECK: rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 1, 0, 0>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32>
func.func @conv2d_backward_weight_1(%arg0: tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32> {
  %0 = rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 1, 0, 0>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32>
  return %0 : tensor<3x2x3x2xf32>
}
