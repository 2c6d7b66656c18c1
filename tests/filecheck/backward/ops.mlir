// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @relu_backward(
// CHECK: rlx.relu_backward(%arg0, %arg1) : tensor<3x5xf32>
func.func @relu_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.relu_backward(%arg0, %arg1) : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @relu_backward_1(
// CHECK: rlx.relu_backward(%arg0, %arg1) : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @relu_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.relu_backward(%arg0, %arg1) : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @activation_backward(
// CHECK: rlx.activation_backward(%arg0, %arg1) {kind = "gelu"} : tensor<3x5xf32>
func.func @activation_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.activation_backward(%arg0, %arg1) {kind = "gelu"} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @activation_backward_1(
// CHECK: rlx.activation_backward(%arg0, %arg1) {kind = "tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @activation_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.activation_backward(%arg0, %arg1) {kind = "tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @complex_norm_sq_backward(
// CHECK: rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<3x4xcomplex<f32>>, tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>>
func.func @complex_norm_sq_backward(%arg0: tensor<3x4xcomplex<f32>>, %arg1: tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>> {
  %0 = rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<3x4xcomplex<f32>>, tensor<3x4xf32>) -> tensor<3x4xcomplex<f32>>
  return %0 : tensor<3x4xcomplex<f32>>
}

// CHECK-LABEL: func.func @complex_norm_sq_backward_1(
// CHECK: rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
func.func @complex_norm_sq_backward_1(%arg0: tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, %arg1: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>> {
  %0 = rlx.complex_norm_sq_backward(%arg0, %arg1) : (tensor<?xcomplex<f32>, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
  return %0 : tensor<?xcomplex<f32>, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @cumsum_backward(
// CHECK: rlx.cumsum_backward(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
func.func @cumsum_backward(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cumsum_backward(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cumsum_backward_1(
// CHECK: rlx.cumsum_backward(%arg0) {axis = 1, exclusive = true} : tensor<2x?xf32, #rlx.dims<["n"]>>
func.func @cumsum_backward_1(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.cumsum_backward(%arg0) {axis = 1, exclusive = true} : tensor<2x?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @gather_backward(
// CHECK: rlx.gather_backward(%arg0, %arg1) {axis = 0, size = [5]} : (tensor<4x3xf32>, tensor<4xi32>) -> tensor<5x3xf32>
func.func @gather_backward(%arg0: tensor<4x3xf32>, %arg1: tensor<4xi32>) -> tensor<5x3xf32> {
  %0 = rlx.gather_backward(%arg0, %arg1) {axis = 0, size = [5]} : (tensor<4x3xf32>, tensor<4xi32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @softmax_cross_entropy_backward(
// CHECK: rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<3x5xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<3x5xf32>
func.func @softmax_cross_entropy_backward(%arg0: tensor<3x5xf32>, %arg1: tensor<3xi32>, %arg2: tensor<3xf32>) -> tensor<3x5xf32> {
  %0 = rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<3x5xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @softmax_cross_entropy_backward_1(
// CHECK: rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, tensor<?xi64, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
func.func @softmax_cross_entropy_backward_1(%arg0: tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, %arg1: tensor<?xi64, #rlx.dims<["n"]>>, %arg2: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>> {
  %0 = rlx.softmax_cross_entropy_backward(%arg0, %arg1, %arg2) : (tensor<?x?xf32, #rlx.dims<["n", "classes"]>>, tensor<?xi64, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
  return %0 : tensor<?x?xf32, #rlx.dims<["n", "classes"]>>
}

// CHECK-LABEL: func.func @rope_backward(
// CHECK: rlx.rope_backward(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x8xf32>
func.func @rope_backward(%arg0: tensor<2x3x8xf32>, %arg1: tensor<3x2xf32>, %arg2: tensor<3x2xf32>) -> tensor<2x3x8xf32> {
  %0 = rlx.rope_backward(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x8xf32>
  return %0 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @rope_backward_1(
// CHECK: rlx.rope_backward(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
func.func @rope_backward_1(%arg0: tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, %arg1: tensor<?x2xf32, #rlx.dims<["s"]>>, %arg2: tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>> {
  %0 = rlx.rope_backward(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
}

// CHECK-LABEL: func.func @attention_backward(
// CHECK: rlx.attention_backward(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "causal", num_heads = 4, wrt = "query"} : (tensor<2x5x16xf32>, tensor<2x3x8xf32>, tensor<2x3x6xf32>, tensor<2x5x12xf32>) -> tensor<2x5x16xf32>
func.func @attention_backward(%arg0: tensor<2x5x16xf32>, %arg1: tensor<2x3x8xf32>, %arg2: tensor<2x3x6xf32>, %arg3: tensor<2x5x12xf32>) -> tensor<2x5x16xf32> {
  %0 = rlx.attention_backward(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "causal", num_heads = 4, wrt = "query"} : (tensor<2x5x16xf32>, tensor<2x3x8xf32>, tensor<2x3x6xf32>, tensor<2x5x12xf32>) -> tensor<2x5x16xf32>
  return %0 : tensor<2x5x16xf32>
}

// CHECK-LABEL: func.func @attention_backward_1(
// CHECK: rlx.attention_backward(%arg0, %arg1, %arg2, %arg3, %arg4) {head_dim = 4, mask_kind = "bias", num_heads = 4, wrt = "mask"} : (tensor<2x4x5x4xf32>, tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x4x5x4xf32>, tensor<2x1x5x3xf32>) -> tensor<2x1x5x3xf32>
func.func @attention_backward_1(%arg0: tensor<2x4x5x4xf32>, %arg1: tensor<2x2x3x4xf32>, %arg2: tensor<2x2x3x4xf32>, %arg3: tensor<2x4x5x4xf32>, %arg4: tensor<2x1x5x3xf32>) -> tensor<2x1x5x3xf32> {
  %0 = rlx.attention_backward(%arg0, %arg1, %arg2, %arg3, %arg4) {head_dim = 4, mask_kind = "bias", num_heads = 4, wrt = "mask"} : (tensor<2x4x5x4xf32>, tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x4x5x4xf32>, tensor<2x1x5x3xf32>) -> tensor<2x1x5x3xf32>
  return %0 : tensor<2x1x5x3xf32>
}

// CHECK-LABEL: func.func @attention_backward_2(
// CHECK: rlx.attention_backward(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "causal", num_heads = 2, wrt = "query"} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
func.func @attention_backward_2(%arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, %arg1: tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, %arg2: tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, %arg3: tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>> {
  %0 = rlx.attention_backward(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "causal", num_heads = 2, wrt = "query"} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "past+seq"]>>, tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["batch", "seq"]>>
}

// CHECK-LABEL: func.func @max_pool2d_backward(
// CHECK: rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>, tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32>
func.func @max_pool2d_backward(%arg0: tensor<2x3x5x4xf32>, %arg1: tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32> {
  %0 = rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>, tensor<2x3x2x4xf32>) -> tensor<2x3x5x4xf32>
  return %0 : tensor<2x3x5x4xf32>
}

// CHECK-LABEL: func.func @max_pool2d_backward_1(
// CHECK: rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
func.func @max_pool2d_backward_1(%arg0: tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>> {
  %0 = rlx.max_pool2d_backward(%arg0, %arg1) {kernel = array<i64: 3, 2>, padding = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>, tensor<?x2x?x6xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
  return %0 : tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>
}

// CHECK-LABEL: func.func @conv2d_backward_input(
// CHECK: rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 1, 1, 0, 0>, size = [5, 5], stride = array<i64: 1, 1>} : (tensor<2x4x5x4xf32>, tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32>
func.func @conv2d_backward_input(%arg0: tensor<2x4x5x4xf32>, %arg1: tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32> {
  %0 = rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 1, 1, 0, 0>, size = [5, 5], stride = array<i64: 1, 1>} : (tensor<2x4x5x4xf32>, tensor<4x3x3x2xf32>) -> tensor<2x3x5x5xf32>
  return %0 : tensor<2x3x5x5xf32>
}

// CHECK-LABEL: func.func @conv2d_backward_input_1(
// CHECK: rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 1, 0, 0>, size = ["h", 4], stride = array<i64: 2, 1>} : (tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
func.func @conv2d_backward_input_1(%arg0: tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, %arg1: tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>> {
  %0 = rlx.conv2d_backward_input(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, padding = array<i64: 0, 1, 0, 0>, size = ["h", 4], stride = array<i64: 2, 1>} : (tensor<?x2x?x3xf32, #rlx.dims<["h", "h//2"]>>, tensor<2x3x3x2xf32>) -> tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
  return %0 : tensor<?x3x?x4xf32, #rlx.dims<["h", "h"]>>
}

// CHECK-LABEL: func.func @conv2d_backward_weight(
// CHECK: rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x5x5xf32>, tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32>
func.func @conv2d_backward_weight(%arg0: tensor<2x3x5x5xf32>, %arg1: tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32> {
  %0 = rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x3x5x5xf32>, tensor<2x4x3x4xf32>) -> tensor<4x3x3x2xf32>
  return %0 : tensor<4x3x3x2xf32>
}

// CHECK-LABEL: func.func @conv2d_backward_weight_1(
// CHECK: rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 1, 0, 0>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32>
func.func @conv2d_backward_weight_1(%arg0: tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, %arg1: tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32> {
  %0 = rlx.conv2d_backward_weight(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1, kernel = array<i64: 3, 2>, padding = array<i64: 0, 1, 0, 0>, stride = array<i64: 2, 1>} : (tensor<?x2x?x4xf32, #rlx.dims<["n", "h"]>>, tensor<?x3x?x3xf32, #rlx.dims<["n", "h//2"]>>) -> tensor<3x2x3x2xf32>
  return %0 : tensor<3x2x3x2xf32>
}

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

// CHECK-LABEL: func.func @fake_quantize_backward(
// CHECK: rlx.fake_quantize_backward(%arg0, %arg1) {bits = 8, ste = "tanh"} : tensor<3x8xf32>
func.func @fake_quantize_backward(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fake_quantize_backward(%arg0, %arg1) {bits = 8, ste = "tanh"} : tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fake_quantize_backward_1(
// CHECK: rlx.fake_quantize_backward(%arg0, %arg1) {axis = 0, bits = 2, ste = "hard_tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @fake_quantize_backward_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fake_quantize_backward(%arg0, %arg1) {axis = 0, bits = 2, ste = "hard_tanh"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_x(
// CHECK: rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<3x8xf32>
func.func @fake_quantize_lsq_backward_x(%arg0: tensor<3x8xf32>, %arg1: tensor<f32>, %arg2: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %0 = rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_x_1(
// CHECK: rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
func.func @fake_quantize_lsq_backward_x_1(%arg0: tensor<?x2x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<2xf32>, %arg2: tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.fake_quantize_lsq_backward_x(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<?x2x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_scale(
// CHECK: rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<f32>
func.func @fake_quantize_lsq_backward_scale(%arg0: tensor<3x8xf32>, %arg1: tensor<f32>, %arg2: tensor<3x8xf32>) -> tensor<f32> {
  %0 = rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {bits = 4} : (tensor<3x8xf32>, tensor<f32>, tensor<3x8xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @fake_quantize_lsq_backward_scale_1(
// CHECK: rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32>
func.func @fake_quantize_lsq_backward_scale_1(%arg0: tensor<?x2x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<2xf32>, %arg2: tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32> {
  %0 = rlx.fake_quantize_lsq_backward_scale(%arg0, %arg1, %arg2) {axis = 1, bits = 2} : (tensor<?x2x3xf32, #rlx.dims<["n"]>>, tensor<2xf32>, tensor<?x2x3xf32, #rlx.dims<["n"]>>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
