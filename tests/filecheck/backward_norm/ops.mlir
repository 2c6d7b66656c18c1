// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @layer_norm_backward_input(
// CHECK: rlx.layer_norm_backward_input(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
func.func @layer_norm_backward_input(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.layer_norm_backward_input(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @layer_norm_backward_input_1(
// CHECK: rlx.layer_norm_backward_input(%arg0, %arg1, %arg2) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
func.func @layer_norm_backward_input_1(%arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<8xf32>, %arg2: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>> {
  %0 = rlx.layer_norm_backward_input(%arg0, %arg1, %arg2) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
}

// CHECK-LABEL: func.func @layer_norm_backward_gamma(
// CHECK: rlx.layer_norm_backward_gamma(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
func.func @layer_norm_backward_gamma(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>) -> tensor<8xf32> {
  %0 = rlx.layer_norm_backward_gamma(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @layer_norm_backward_gamma_1(
// CHECK: rlx.layer_norm_backward_gamma(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
func.func @layer_norm_backward_gamma_1(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32> {
  %0 = rlx.layer_norm_backward_gamma(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_input(
// CHECK: rlx.rms_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
func.func @rms_norm_backward_input(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.rms_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_input_1(
// CHECK: rlx.rms_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
func.func @rms_norm_backward_input_1(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<?x8xf32, #rlx.dims<["n"]>> {
  %0 = rlx.rms_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<?x8xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @rms_norm_backward_input_2(
// CHECK: rlx.rms_norm_backward_input(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
func.func @rms_norm_backward_input_2(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.rms_norm_backward_input(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_gamma(
// CHECK: rlx.rms_norm_backward_gamma(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
func.func @rms_norm_backward_gamma(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<3x8xf32>) -> tensor<8xf32> {
  %0 = rlx.rms_norm_backward_gamma(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_gamma_1(
// CHECK: rlx.rms_norm_backward_gamma(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
func.func @rms_norm_backward_gamma_1(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32> {
  %0 = rlx.rms_norm_backward_gamma(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_beta(
// CHECK: rlx.rms_norm_backward_beta(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
func.func @rms_norm_backward_beta(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<3x8xf32>) -> tensor<8xf32> {
  %0 = rlx.rms_norm_backward_beta(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<3x8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @rms_norm_backward_beta_1(
// CHECK: rlx.rms_norm_backward_beta(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
func.func @rms_norm_backward_beta_1(%arg0: tensor<?x8xf32, #rlx.dims<["n"]>>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32> {
  %0 = rlx.rms_norm_backward_beta(%arg0, %arg1, %arg2, %arg3) {axis = 1, eps = 1.000000e-05} : (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<8xf32>, tensor<8xf32>, tensor<?x8xf32, #rlx.dims<["n"]>>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @group_norm_backward_input(
// CHECK: rlx.group_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<6xf32>, tensor<6xf32>, tensor<2x6x4x3xf32>) -> tensor<2x6x4x3xf32>
func.func @group_norm_backward_input(%arg0: tensor<2x6x4x3xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>, %arg3: tensor<2x6x4x3xf32>) -> tensor<2x6x4x3xf32> {
  %0 = rlx.group_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<6xf32>, tensor<6xf32>, tensor<2x6x4x3xf32>) -> tensor<2x6x4x3xf32>
  return %0 : tensor<2x6x4x3xf32>
}

// CHECK-LABEL: func.func @group_norm_backward_input_1(
// CHECK: rlx.group_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>, tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
func.func @group_norm_backward_input_1(%arg0: tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>, %arg3: tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>> {
  %0 = rlx.group_norm_backward_input(%arg0, %arg1, %arg2, %arg3) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>, tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
  return %0 : tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
}

// CHECK-LABEL: func.func @group_norm_backward_gamma(
// CHECK: rlx.group_norm_backward_gamma(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<2x6x4x3xf32>) -> tensor<6xf32>
func.func @group_norm_backward_gamma(%arg0: tensor<2x6x4x3xf32>, %arg1: tensor<2x6x4x3xf32>) -> tensor<6xf32> {
  %0 = rlx.group_norm_backward_gamma(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<2x6x4x3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @group_norm_backward_gamma_1(
// CHECK: rlx.group_norm_backward_gamma(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32>
func.func @group_norm_backward_gamma_1(%arg0: tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32> {
  %0 = rlx.group_norm_backward_gamma(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @group_norm_backward_beta(
// CHECK: rlx.group_norm_backward_beta(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<2x6x4x3xf32>) -> tensor<6xf32>
func.func @group_norm_backward_beta(%arg0: tensor<2x6x4x3xf32>, %arg1: tensor<2x6x4x3xf32>) -> tensor<6xf32> {
  %0 = rlx.group_norm_backward_beta(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<2x6x4x3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @group_norm_backward_beta_1(
// CHECK: rlx.group_norm_backward_beta(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32>
func.func @group_norm_backward_beta_1(%arg0: tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32> {
  %0 = rlx.group_norm_backward_beta(%arg0, %arg1) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>, tensor<?x4x?xf32, #rlx.dims<["n", "h"]>>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
