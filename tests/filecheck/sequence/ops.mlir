// RUN: rlx-opt %s | rlx-opt | filecheck %s

module attributes {rlx.stage = "hir"} {
// CHECK-LABEL: func.func @depthwise_conv1d_causal(
// CHECK: rlx.depthwise_conv1d_causal(%arg0, %arg1, %arg2) {kernel_size = 4} : (tensor<2x5x3xf32>, tensor<3x1x1x4xf32>, tensor<2x3x3xf32>) -> tensor<2x5x3xf32>
  func.func @depthwise_conv1d_causal(%arg0: tensor<2x5x3xf32>, %arg1: tensor<3x1x1x4xf32>, %arg2: tensor<2x3x3xf32>) -> tensor<2x5x3xf32> {
    %0 = rlx.depthwise_conv1d_causal(%arg0, %arg1, %arg2) {kernel_size = 4} : (tensor<2x5x3xf32>, tensor<3x1x1x4xf32>, tensor<2x3x3xf32>) -> tensor<2x5x3xf32>
    return %0 : tensor<2x5x3xf32>
  }

// CHECK-LABEL: func.func @depthwise_conv1d_causal_1(
// CHECK: rlx.depthwise_conv1d_causal(%arg0, %arg1, %arg2) {kernel_size = 2} : (tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>, tensor<3x1x1x2xf32>, tensor<?x1x3xf32, #rlx.dims<["b"]>>) -> tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>
  func.func @depthwise_conv1d_causal_1(%arg0: tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>, %arg1: tensor<3x1x1x2xf32>, %arg2: tensor<?x1x3xf32, #rlx.dims<["b"]>>) -> tensor<?x?x3xf32, #rlx.dims<["b", "s"]>> {
    %0 = rlx.depthwise_conv1d_causal(%arg0, %arg1, %arg2) {kernel_size = 2} : (tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>, tensor<3x1x1x2xf32>, tensor<?x1x3xf32, #rlx.dims<["b"]>>) -> tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>
    return %0 : tensor<?x?x3xf32, #rlx.dims<["b", "s"]>>
  }
}
