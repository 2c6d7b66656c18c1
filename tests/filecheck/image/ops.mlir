// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @resize(
// CHECK: rlx.resize(%arg0) {align_corners = false, mode = "nearest", size = [7, 3]} : (tensor<2x3x4x5xf32>) -> tensor<2x3x7x3xf32>
func.func @resize(%arg0: tensor<2x3x4x5xf32>) -> tensor<2x3x7x3xf32> {
  %0 = rlx.resize(%arg0) {align_corners = false, mode = "nearest", size = [7, 3]} : (tensor<2x3x4x5xf32>) -> tensor<2x3x7x3xf32>
  return %0 : tensor<2x3x7x3xf32>
}

// CHECK-LABEL: func.func @resize_1(
// CHECK: rlx.resize(%arg0) {align_corners = false, mode = "nearest", size = ["2*h", 3]} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x3xf32, #rlx.dims<["n", "2*h"]>>
func.func @resize_1(%arg0: tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x3xf32, #rlx.dims<["n", "2*h"]>> {
  %0 = rlx.resize(%arg0) {align_corners = false, mode = "nearest", size = ["2*h", 3]} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x3xf32, #rlx.dims<["n", "2*h"]>>
  return %0 : tensor<?x2x?x3xf32, #rlx.dims<["n", "2*h"]>>
}

// CHECK-LABEL: func.func @resize_2(
// CHECK: rlx.resize(%arg0) {align_corners = true, mode = "bilinear", size = [5, 4, 1]} : (tensor<1x2x3x4x2xf32>) -> tensor<1x2x5x4x1xf32>
func.func @resize_2(%arg0: tensor<1x2x3x4x2xf32>) -> tensor<1x2x5x4x1xf32> {
  %0 = rlx.resize(%arg0) {align_corners = true, mode = "bilinear", size = [5, 4, 1]} : (tensor<1x2x3x4x2xf32>) -> tensor<1x2x5x4x1xf32>
  return %0 : tensor<1x2x5x4x1xf32>
}

// CHECK-LABEL: func.func @axial_rope_2d(
// CHECK: rlx.axial_rope_2d(%arg0) {end_x = 3, end_y = 2, head_dim = 8, num_heads = 2, repeat_factor = 1, theta = 1.000000e+04} : tensor<2x6x16xf32>
func.func @axial_rope_2d(%arg0: tensor<2x6x16xf32>) -> tensor<2x6x16xf32> {
  %0 = rlx.axial_rope_2d(%arg0) {end_x = 3, end_y = 2, head_dim = 8, num_heads = 2, repeat_factor = 1, theta = 1.000000e+04} : tensor<2x6x16xf32>
  return %0 : tensor<2x6x16xf32>
}

// CHECK-LABEL: func.func @axial_rope_2d_1(
// CHECK: rlx.axial_rope_2d(%arg0) {end_x = 2, end_y = 3, head_dim = 4, num_heads = 3, repeat_factor = 2, theta = 1.000000e+02} : tensor<1x3x12x4xf32>
func.func @axial_rope_2d_1(%arg0: tensor<1x3x12x4xf32>) -> tensor<1x3x12x4xf32> {
  %0 = rlx.axial_rope_2d(%arg0) {end_x = 2, end_y = 3, head_dim = 4, num_heads = 3, repeat_factor = 2, theta = 1.000000e+02} : tensor<1x3x12x4xf32>
  return %0 : tensor<1x3x12x4xf32>
}

// CHECK-LABEL: func.func @axial_rope_2d_2(
// CHECK: rlx.axial_rope_2d(%arg0) {end_x = 2, end_y = 3, head_dim = 4, num_heads = 1, repeat_factor = 2, theta = 1.000000e+02} : tensor<?x12x4xf32, #rlx.dims<["b"]>>
func.func @axial_rope_2d_2(%arg0: tensor<?x12x4xf32, #rlx.dims<["b"]>>) -> tensor<?x12x4xf32, #rlx.dims<["b"]>> {
  %0 = rlx.axial_rope_2d(%arg0) {end_x = 2, end_y = 3, head_dim = 4, num_heads = 1, repeat_factor = 2, theta = 1.000000e+02} : tensor<?x12x4xf32, #rlx.dims<["b"]>>
  return %0 : tensor<?x12x4xf32, #rlx.dims<["b"]>>
}
