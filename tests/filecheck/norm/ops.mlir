// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @layer_norm(
// CHECK: rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @layer_norm(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @layer_norm_1(
// CHECK: rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-03} : (tensor<2x6x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3xf32>
func.func @layer_norm_1(%arg0: tensor<2x6x3xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>) -> tensor<2x6x3xf32> {
  %0 = rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-03} : (tensor<2x6x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3xf32>
  return %0 : tensor<2x6x3xf32>
}

// CHECK-LABEL: func.func @layer_norm_2(
// CHECK: rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
func.func @layer_norm_2(%arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>> {
  %0 = rlx.layer_norm(%arg0, %arg1, %arg2) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
}

// CHECK-LABEL: func.func @rms_norm(
// CHECK: rlx.rms_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @rms_norm(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.rms_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @rms_norm_1(
// CHECK: rlx.rms_norm(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
func.func @rms_norm_1(%arg0: tensor<3x8xf32>, %arg1: tensor<8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.rms_norm(%arg0, %arg1) {axis = 1, eps = 1.000000e-05} : (tensor<3x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @rms_norm_2(
// CHECK: rlx.rms_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-03} : (tensor<2x6x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3xf32>
func.func @rms_norm_2(%arg0: tensor<2x6x3xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>) -> tensor<2x6x3xf32> {
  %0 = rlx.rms_norm(%arg0, %arg1, %arg2) {axis = 1, eps = 1.000000e-03} : (tensor<2x6x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3xf32>
  return %0 : tensor<2x6x3xf32>
}

// CHECK-LABEL: func.func @rms_norm_3(
// CHECK: rlx.rms_norm(%arg0, %arg1) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
func.func @rms_norm_3(%arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>> {
  %0 = rlx.rms_norm(%arg0, %arg1) {axis = 2, eps = 1.000000e-05} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<8xf32>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
}

// CHECK-LABEL: func.func @group_norm(
// CHECK: rlx.group_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4x3xf32>
func.func @group_norm(%arg0: tensor<2x6x4x3xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>) -> tensor<2x6x4x3xf32> {
  %0 = rlx.group_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-05, num_groups = 3} : (tensor<2x6x4x3xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4x3xf32>
  return %0 : tensor<2x6x4x3xf32>
}

// CHECK-LABEL: func.func @group_norm_1(
// CHECK: rlx.group_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
func.func @group_norm_1(%arg0: tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>> {
  %0 = rlx.group_norm(%arg0, %arg1, %arg2) {eps = 1.000000e-05, num_groups = 2} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
  return %0 : tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
}

// CHECK-LABEL: func.func @layer_norm2d(
// CHECK: rlx.layer_norm2d(%arg0, %arg1, %arg2) {eps = 1.000000e-05} : (tensor<2x6x3x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
func.func @layer_norm2d(%arg0: tensor<2x6x3x4xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>) -> tensor<2x6x3x4xf32> {
  %0 = rlx.layer_norm2d(%arg0, %arg1, %arg2) {eps = 1.000000e-05} : (tensor<2x6x3x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
  return %0 : tensor<2x6x3x4xf32>
}

// CHECK-LABEL: func.func @layer_norm2d_1(
// CHECK: rlx.layer_norm2d(%arg0, %arg1, %arg2) {eps = 1.000000e-03} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
func.func @layer_norm2d_1(%arg0: tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>> {
  %0 = rlx.layer_norm2d(%arg0, %arg1, %arg2) {eps = 1.000000e-03} : (tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
  return %0 : tensor<?x4x?x3xf32, #rlx.dims<["n", "h"]>>
}

// CHECK-LABEL: func.func @batch_norm_inference(
// CHECK: rlx.batch_norm_inference(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<2x6x3x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
func.func @batch_norm_inference(%arg0: tensor<2x6x3x4xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>, %arg3: tensor<6xf32>, %arg4: tensor<6xf32>) -> tensor<2x6x3x4xf32> {
  %0 = rlx.batch_norm_inference(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<2x6x3x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3x4xf32>
  return %0 : tensor<2x6x3x4xf32>
}

// CHECK-LABEL: func.func @batch_norm_inference_1(
// CHECK: rlx.batch_norm_inference(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>
func.func @batch_norm_inference_1(%arg0: tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>, %arg3: tensor<4xf32>, %arg4: tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l"]>> {
  %0 = rlx.batch_norm_inference(%arg0, %arg1, %arg2, %arg3, %arg4) {eps = 1.000000e-05} : (tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>
  return %0 : tensor<?x4x?xf32, #rlx.dims<["n", "l"]>>
}
