// RUN: rlx-opt %s | rlx-opt | filecheck %s

module attributes {rlx.stage = "hir"} {
// CHECK-LABEL: func.func @linear(
// CHECK: rlx.linear(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  func.func @linear(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<3x5xf32> {
    %0 = rlx.linear(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
    return %0 : tensor<3x5xf32>
  }

// CHECK-LABEL: func.func @linear_1(
// CHECK: rlx.linear(%arg0, %arg1) {activation = "relu"} : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  func.func @linear_1(%arg0: tensor<2x3x4xf32>, %arg1: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
    %0 = rlx.linear(%arg0, %arg1) {activation = "relu"} : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
    return %0 : tensor<2x3x5xf32>
  }

// CHECK-LABEL: func.func @linear_2(
// CHECK: rlx.linear(%arg0, %arg1, %arg2) {activation = "gelu"} : (tensor<?x4xf32, #rlx.dims<["batch"]>>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["batch"]>>
  func.func @linear_2(%arg0: tensor<?x4xf32, #rlx.dims<["batch"]>>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["batch"]>> {
    %0 = rlx.linear(%arg0, %arg1, %arg2) {activation = "gelu"} : (tensor<?x4xf32, #rlx.dims<["batch"]>>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["batch"]>>
    return %0 : tensor<?x5xf32, #rlx.dims<["batch"]>>
  }

// CHECK-LABEL: func.func @linear_fused(
// CHECK: rlx.linear_fused(%arg0, %arg1, %arg2) {activation = "silu"} : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  func.func @linear_fused(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<3x5xf32> {
    %0 = rlx.linear_fused(%arg0, %arg1, %arg2) {activation = "silu"} : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
    return %0 : tensor<3x5xf32>
  }

// CHECK-LABEL: func.func @shared_linear_pair(
// CHECK: rlx.shared_linear_pair(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<4x2xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>)
  func.func @shared_linear_pair(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<4x2xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>) {
    %0:2 = rlx.shared_linear_pair(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<4x2xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>)
    return %0#0, %0#1 : tensor<3x5xf32>, tensor<3x2xf32>
  }

// CHECK-LABEL: func.func @shared_linear_pair_1(
// CHECK: rlx.shared_linear_pair(%arg0, %arg1, %arg2) : (tensor<?x2x4xf32, #rlx.dims<["batch"]>>, tensor<4x5xf32>, tensor<4x5xf32>) -> (tensor<?x2x5xf32, #rlx.dims<["batch"]>>, tensor<?x2x5xf32, #rlx.dims<["batch"]>>)
  func.func @shared_linear_pair_1(%arg0: tensor<?x2x4xf32, #rlx.dims<["batch"]>>, %arg1: tensor<4x5xf32>, %arg2: tensor<4x5xf32>) -> (tensor<?x2x5xf32, #rlx.dims<["batch"]>>, tensor<?x2x5xf32, #rlx.dims<["batch"]>>) {
    %0:2 = rlx.shared_linear_pair(%arg0, %arg1, %arg2) : (tensor<?x2x4xf32, #rlx.dims<["batch"]>>, tensor<4x5xf32>, tensor<4x5xf32>) -> (tensor<?x2x5xf32, #rlx.dims<["batch"]>>, tensor<?x2x5xf32, #rlx.dims<["batch"]>>)
    return %0#0, %0#1 : tensor<?x2x5xf32, #rlx.dims<["batch"]>>, tensor<?x2x5xf32, #rlx.dims<["batch"]>>
  }

// CHECK-LABEL: func.func @swiglu_ffn(
// CHECK: rlx.swiglu_ffn(%arg0, %arg1, %arg2, %arg3) : (tensor<3x4xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<3x4xf32>
  func.func @swiglu_ffn(%arg0: tensor<3x4xf32>, %arg1: tensor<4x6xf32>, %arg2: tensor<4x6xf32>, %arg3: tensor<6x4xf32>) -> tensor<3x4xf32> {
    %0 = rlx.swiglu_ffn(%arg0, %arg1, %arg2, %arg3) : (tensor<3x4xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }

// CHECK-LABEL: func.func @swiglu_ffn_1(
// CHECK: rlx.swiglu_ffn(%arg0, %arg1, %arg2, %arg3) : (tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>
  func.func @swiglu_ffn_1(%arg0: tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<4x6xf32>, %arg2: tensor<4x6xf32>, %arg3: tensor<6x4xf32>) -> tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>> {
    %0 = rlx.swiglu_ffn(%arg0, %arg1, %arg2, %arg3) : (tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>
    return %0 : tensor<?x?x4xf32, #rlx.dims<["batch", "seq"]>>
  }

// CHECK-LABEL: func.func @residual_rms_norm(
// CHECK: rlx.residual_rms_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  func.func @residual_rms_norm(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<3x8xf32> {
    %0 = rlx.residual_rms_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
    return %0 : tensor<3x8xf32>
  }

// CHECK-LABEL: func.func @residual_rms_norm_1(
// CHECK: rlx.residual_rms_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  func.func @residual_rms_norm_1(%arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>> {
    %0 = rlx.residual_rms_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
    return %0 : tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  }
}
