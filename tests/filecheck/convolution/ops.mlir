// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @conv(
// CHECK: rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x6x5xf32>, tensor<4x3x3x2xf32>) -> tensor<2x4x4x4xf32>
func.func @conv(%arg0: tensor<2x3x6x5xf32>, %arg1: tensor<4x3x3x2xf32>) -> tensor<2x4x4x4xf32> {
  %0 = rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x6x5xf32>, tensor<4x3x3x2xf32>) -> tensor<2x4x4x4xf32>
  return %0 : tensor<2x4x4x4xf32>
}

// CHECK-LABEL: func.func @conv_1(
// CHECK: rlx.conv(%arg0, %arg1) {dilation = array<i64: 1>, groups = 2, padding = array<i64: 1, 2>, stride = array<i64: 2>} : (tensor<2x4x6xf32>, tensor<6x2x3xf32>) -> tensor<2x6x4xf32>
func.func @conv_1(%arg0: tensor<2x4x6xf32>, %arg1: tensor<6x2x3xf32>) -> tensor<2x6x4xf32> {
  %0 = rlx.conv(%arg0, %arg1) {dilation = array<i64: 1>, groups = 2, padding = array<i64: 1, 2>, stride = array<i64: 2>} : (tensor<2x4x6xf32>, tensor<6x2x3xf32>) -> tensor<2x6x4xf32>
  return %0 : tensor<2x6x4xf32>
}

// CHECK-LABEL: func.func @conv_2(
// CHECK: rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 4, padding = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf16>, tensor<4x1x3x3xf16>) -> tensor<2x4x7x7xf16>
func.func @conv_2(%arg0: tensor<2x4x7x7xf16>, %arg1: tensor<4x1x3x3xf16>) -> tensor<2x4x7x7xf16> {
  %0 = rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 4, padding = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf16>, tensor<4x1x3x3xf16>) -> tensor<2x4x7x7xf16>
  return %0 : tensor<2x4x7x7xf16>
}

// CHECK-LABEL: func.func @conv_3(
// CHECK: rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<?x3x?x5xf32, #rlx.dims<["n", "h"]>>, tensor<2x3x3x1xf32>) -> tensor<?x2x?x5xf32, #rlx.dims<["n", "h-2"]>>
func.func @conv_3(%arg0: tensor<?x3x?x5xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<2x3x3x1xf32>) -> tensor<?x2x?x5xf32, #rlx.dims<["n", "h-2"]>> {
  %0 = rlx.conv(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<?x3x?x5xf32, #rlx.dims<["n", "h"]>>, tensor<2x3x3x1xf32>) -> tensor<?x2x?x5xf32, #rlx.dims<["n", "h-2"]>>
  return %0 : tensor<?x2x?x5xf32, #rlx.dims<["n", "h-2"]>>
}
