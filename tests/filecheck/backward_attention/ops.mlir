// RUN: rlx-opt %s | rlx-opt | filecheck %s

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
