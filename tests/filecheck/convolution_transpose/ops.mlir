// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @conv_transpose(
// CHECK: rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 1, 0>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x4x3xf32>, tensor<3x2x3x2xf32>) -> tensor<2x2x9x3xf32>
func.func @conv_transpose(%arg0: tensor<2x3x4x3xf32>, %arg1: tensor<3x2x3x2xf32>) -> tensor<2x2x9x3xf32> {
  %0 = rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 1, 0>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x4x3xf32>, tensor<3x2x3x2xf32>) -> tensor<2x2x9x3xf32>
  return %0 : tensor<2x2x9x3xf32>
}

// CHECK-LABEL: func.func @conv_transpose_1(
// CHECK: rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 2>, groups = 4, output_padding = array<i64: 2>, padding = array<i64: 5, 0>, stride = array<i64: 3>} : (tensor<1x4x3xf32>, tensor<4x1x3xf32>) -> tensor<1x4x8xf32>
func.func @conv_transpose_1(%arg0: tensor<1x4x3xf32>, %arg1: tensor<4x1x3xf32>) -> tensor<1x4x8xf32> {
  %0 = rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 2>, groups = 4, output_padding = array<i64: 2>, padding = array<i64: 5, 0>, stride = array<i64: 3>} : (tensor<1x4x3xf32>, tensor<4x1x3xf32>) -> tensor<1x4x8xf32>
  return %0 : tensor<1x4x8xf32>
}

// CHECK-LABEL: func.func @conv_transpose_2(
// CHECK: rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 0, 0>, padding = array<i64: 0, 0, 1, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<2x2x2x3xf32>) -> tensor<?x2x?x4xf32, #rlx.dims<["n", "2*h"]>>
func.func @conv_transpose_2(%arg0: tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<2x2x2x3xf32>) -> tensor<?x2x?x4xf32, #rlx.dims<["n", "2*h"]>> {
  %0 = rlx.conv_transpose(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, output_padding = array<i64: 0, 0>, padding = array<i64: 0, 0, 1, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<2x2x2x3xf32>) -> tensor<?x2x?x4xf32, #rlx.dims<["n", "2*h"]>>
  return %0 : tensor<?x2x?x4xf32, #rlx.dims<["n", "2*h"]>>
}
