// RUN: rlx-opt %s | rlx-opt | filecheck %s

module attributes {rlx.stage = "hir"} {
// CHECK-LABEL: func.func @unet_residual_block(
// CHECK: rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12, %arg13) {eps = 1.000000e-05, num_groups = 2} : (tensor<2x4x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<6x4x3x3xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6x6x3x3xf32>, tensor<6xf32>, tensor<2x3xf32>, tensor<3x6xf32>, tensor<6xf32>, tensor<6x4x1x1xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
  func.func @unet_residual_block(%arg0: tensor<2x4x3x4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>, %arg3: tensor<6x4x3x3xf32>, %arg4: tensor<6xf32>, %arg5: tensor<6xf32>, %arg6: tensor<6xf32>, %arg7: tensor<6x6x3x3xf32>, %arg8: tensor<6xf32>, %arg9: tensor<2x3xf32>, %arg10: tensor<3x6xf32>, %arg11: tensor<6xf32>, %arg12: tensor<6x4x1x1xf32>, %arg13: tensor<6xf32>) -> tensor<2x6x3x4xf32> {
    %0 = rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12, %arg13) {eps = 1.000000e-05, num_groups = 2} : (tensor<2x4x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<6x4x3x3xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6x6x3x3xf32>, tensor<6xf32>, tensor<2x3xf32>, tensor<3x6xf32>, tensor<6xf32>, tensor<6x4x1x1xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
    return %0 : tensor<2x6x3x4xf32>
  }

// CHECK-LABEL: func.func @unet_residual_block_1(
// CHECK: rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, _, _, _, _, _) {eps = 1.000000e-01, num_groups = 2} : (tensor<2x4x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<2x4x3x4xf32>
  func.func @unet_residual_block_1(%arg0: tensor<2x4x3x4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>, %arg3: tensor<4x4x3x3xf32>, %arg4: tensor<4xf32>, %arg5: tensor<4xf32>, %arg6: tensor<4xf32>, %arg7: tensor<4x4x3x3xf32>, %arg8: tensor<4xf32>) -> tensor<2x4x3x4xf32> {
    %0 = rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, _, _, _, _, _) {eps = 1.000000e-01, num_groups = 2} : (tensor<2x4x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<2x4x3x4xf32>
    return %0 : tensor<2x4x3x4xf32>
  }

// CHECK-LABEL: func.func @unet_residual_block_2(
// CHECK: rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, _, _) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3x4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
  func.func @unet_residual_block_2(%arg0: tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>, %arg3: tensor<4x4x3x3xf32>, %arg4: tensor<4xf32>, %arg5: tensor<4xf32>, %arg6: tensor<4xf32>, %arg7: tensor<4x4x3x3xf32>, %arg8: tensor<4xf32>, %arg9: tensor<?x3xf32, #rlx.dims<["n"]>>, %arg10: tensor<3x4xf32>, %arg11: tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>> {
    %0 = rlx.unet_residual_block(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, _, _) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>, tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3x4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
    return %0 : tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
  }
}
