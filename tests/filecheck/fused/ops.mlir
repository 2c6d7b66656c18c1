// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @fused_matmul_bias_act(
// CHECK: rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
func.func @fused_matmul_bias_act(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @fused_matmul_bias_act_1(
// CHECK: rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "gelu"} : (tensor<2x3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<2x3x5xf32>
func.func @fused_matmul_bias_act_1(%arg0: tensor<2x3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<2x3x5xf32> {
  %0 = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "gelu"} : (tensor<2x3x4xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

// CHECK-LABEL: func.func @fused_matmul_bias_act_2(
// CHECK: rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "silu"} : (tensor<2x3x4xf16>, tensor<4x5xf16>, tensor<5xf16>) -> tensor<2x3x5xf16>
func.func @fused_matmul_bias_act_2(%arg0: tensor<2x3x4xf16>, %arg1: tensor<4x5xf16>, %arg2: tensor<5xf16>) -> tensor<2x3x5xf16> {
  %0 = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "silu"} : (tensor<2x3x4xf16>, tensor<4x5xf16>, tensor<5xf16>) -> tensor<2x3x5xf16>
  return %0 : tensor<2x3x5xf16>
}

// CHECK-LABEL: func.func @fused_matmul_bias_act_3(
// CHECK: rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "gelu_approx"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
func.func @fused_matmul_bias_act_3(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<4x5xf32>, %arg2: tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_matmul_bias_act(%arg0, %arg1, %arg2) {activation = "gelu_approx"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x5xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_swiglu(
// CHECK: rlx.fused_swiglu(%arg0) {gate_first = false} : (tensor<3x8xf32>) -> tensor<3x4xf32>
func.func @fused_swiglu(%arg0: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %0 = rlx.fused_swiglu(%arg0) {gate_first = false} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @fused_swiglu_1(
// CHECK: rlx.fused_swiglu(%arg0) {gate_first = true} : (tensor<?x2x6xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
func.func @fused_swiglu_1(%arg0: tensor<?x2x6xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_swiglu(%arg0) {gate_first = true} : (tensor<?x2x6xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_residual_layer_norm(
// CHECK: rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @fused_residual_layer_norm(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>, %arg4: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fused_residual_layer_norm_1(
// CHECK: rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-03} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @fused_residual_layer_norm_1(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-03} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fused_residual_layer_norm_2(
// CHECK: rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
func.func @fused_residual_layer_norm_2(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_residual_layer_norm(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_residual_rms_norm(
// CHECK: rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @fused_residual_rms_norm(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>, %arg4: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fused_residual_rms_norm_1(
// CHECK: rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, %arg3) {eps = 1.000000e-03} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @fused_residual_rms_norm_1(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, %arg3) {eps = 1.000000e-03} : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fused_residual_rms_norm_2(
// CHECK: rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
func.func @fused_residual_rms_norm_2(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_residual_rms_norm(%arg0, %arg1, _, %arg2, %arg3) {eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_residual_rms_norm_3(
// CHECK: rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg3, _) {eps = 1.000000e-05} : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
func.func @fused_residual_rms_norm_3(%arg0: tensor<2x8xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = rlx.fused_residual_rms_norm(%arg0, %arg1, %arg2, %arg3, _) {eps = 1.000000e-05} : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @fused_conv_bias_act(
// CHECK: rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<2x3x5xf32>, tensor<4x3x2xf32>, tensor<4xf32>) -> tensor<2x4x4xf32>
func.func @fused_conv_bias_act(%arg0: tensor<2x3x5xf32>, %arg1: tensor<4x3x2xf32>, %arg2: tensor<4xf32>) -> tensor<2x4x4xf32> {
  %0 = rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<2x3x5xf32>, tensor<4x3x2xf32>, tensor<4xf32>) -> tensor<2x4x4xf32>
  return %0 : tensor<2x4x4xf32>
}

// CHECK-LABEL: func.func @fused_conv_bias_act_1(
// CHECK: rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {activation = "relu", dilation = array<i64: 1, 1>, groups = 2, padding = array<i64: 1, 1, 1, 0>, stride = array<i64: 2, 1>} : (tensor<1x4x5x4xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<1x6x3x3xf32>
func.func @fused_conv_bias_act_1(%arg0: tensor<1x4x5x4xf32>, %arg1: tensor<6x2x3x3xf32>, %arg2: tensor<6xf32>) -> tensor<1x6x3x3xf32> {
  %0 = rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {activation = "relu", dilation = array<i64: 1, 1>, groups = 2, padding = array<i64: 1, 1, 1, 0>, stride = array<i64: 2, 1>} : (tensor<1x4x5x4xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<1x6x3x3xf32>
  return %0 : tensor<1x6x3x3xf32>
}

// CHECK-LABEL: func.func @fused_conv_bias_act_2(
// CHECK: rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {activation = "gelu", dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<?x3x?xf32, #rlx.dims<["n", "l"]>>, tensor<4x3x2xf32>, tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l-1"]>>
func.func @fused_conv_bias_act_2(%arg0: tensor<?x3x?xf32, #rlx.dims<["n", "l"]>>, %arg1: tensor<4x3x2xf32>, %arg2: tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l-1"]>> {
  %0 = rlx.fused_conv_bias_act(%arg0, %arg1, %arg2) {activation = "gelu", dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<?x3x?xf32, #rlx.dims<["n", "l"]>>, tensor<4x3x2xf32>, tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l-1"]>>
  return %0 : tensor<?x4x?xf32, #rlx.dims<["n", "l-1"]>>
}

// CHECK-LABEL: func.func @fused_matmul_residual(
// CHECK: rlx.fused_matmul_residual(%arg0, %arg1, %arg2, %arg3) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
func.func @fused_matmul_residual(%arg0: tensor<3x4xf32>, %arg1: tensor<4x5xf32>, %arg2: tensor<3x5xf32>, %arg3: tensor<5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.fused_matmul_residual(%arg0, %arg1, %arg2, %arg3) : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @fused_matmul_residual_1(
// CHECK: rlx.fused_matmul_residual(%arg0, %arg1, %arg2) : (tensor<?x2x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>, tensor<?x2x5xf32, #rlx.dims<["n"]>>) -> tensor<?x2x5xf32, #rlx.dims<["n"]>>
func.func @fused_matmul_residual_1(%arg0: tensor<?x2x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<4x5xf32>, %arg2: tensor<?x2x5xf32, #rlx.dims<["n"]>>) -> tensor<?x2x5xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_matmul_residual(%arg0, %arg1, %arg2) : (tensor<?x2x4xf32, #rlx.dims<["n"]>>, tensor<4x5xf32>, tensor<?x2x5xf32, #rlx.dims<["n"]>>) -> tensor<?x2x5xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2x5xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_ada_layer_norm(
// CHECK: rlx.fused_ada_layer_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-03} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<f32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
func.func @fused_ada_layer_norm(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<8xf32>, %arg2: tensor<f32>) -> tensor<?x8xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_ada_layer_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-03} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<f32>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fused_gated_residual(
// CHECK: rlx.fused_gated_residual(%arg0, %arg1, %arg2) : (tensor<2x3x4xf32>, tensor<2x1x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
func.func @fused_gated_residual(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x1x4xf32>, %arg2: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = rlx.fused_gated_residual(%arg0, %arg1, %arg2) : (tensor<2x3x4xf32>, tensor<2x1x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @fused_gated_residual_1(
// CHECK: rlx.fused_gated_residual(%arg0, %arg1, %arg2) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4xf32>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @fused_gated_residual_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<4xf32>, %arg2: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fused_gated_residual(%arg0, %arg1, %arg2) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4xf32>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}
