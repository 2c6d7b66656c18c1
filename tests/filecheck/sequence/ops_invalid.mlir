// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// Too little padding.
module attributes {rlx.stage = "hir"} {
  func.func @depthwise_conv1d_causal(%0: tensor<2x5x3xf32>, %1: tensor<3x1x1x4xf32>, %2: tensor<2x2x3xf32>) {
    // expected-error @+1 {{'rlx.depthwise_conv1d_causal' op left_pad must be [2, 3, 3], got f32[2, 2, 3]}}
    rlx.depthwise_conv1d_causal(%0, %1, %2) {kernel_size = 4} : (tensor<2x5x3xf32>, tensor<3x1x1x4xf32>, tensor<2x2x3xf32>) -> tensor<2x5x3xf32>
    return
  }
}
