// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @attention(
// CHECK: rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "none", num_heads = 3} : tensor<2x5x12xf32>
func.func @attention(%arg0: tensor<2x5x12xf32>, %arg1: tensor<2x5x12xf32>, %arg2: tensor<2x5x12xf32>) -> tensor<2x5x12xf32> {
  %0 = rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "none", num_heads = 3} : tensor<2x5x12xf32>
  return %0 : tensor<2x5x12xf32>
}

// CHECK-LABEL: func.func @attention_1(
// CHECK: rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "causal", num_heads = 3} : tensor<2x5x12xf16>
func.func @attention_1(%arg0: tensor<2x5x12xf16>, %arg1: tensor<2x5x12xf16>, %arg2: tensor<2x5x12xf16>) -> tensor<2x5x12xf16> {
  %0 = rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "causal", num_heads = 3} : tensor<2x5x12xf16>
  return %0 : tensor<2x5x12xf16>
}

// CHECK-LABEL: func.func @attention_2(
// CHECK: rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "sliding_window", num_heads = 3, window = 2} : tensor<2x5x12xf32>
func.func @attention_2(%arg0: tensor<2x5x12xf32>, %arg1: tensor<2x5x12xf32>, %arg2: tensor<2x5x12xf32>) -> tensor<2x5x12xf32> {
  %0 = rlx.attention(%arg0, %arg1, %arg2) {head_dim = 4, mask_kind = "sliding_window", num_heads = 3, window = 2} : tensor<2x5x12xf32>
  return %0 : tensor<2x5x12xf32>
}

// CHECK-LABEL: func.func @attention_3(
// CHECK: rlx.attention(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "custom", num_heads = 3} : (tensor<2x5x12xf32>, tensor<2x5x12xf32>, tensor<2x5x12xf32>, tensor<2x5xf32>) -> tensor<2x5x12xf32>
func.func @attention_3(%arg0: tensor<2x5x12xf32>, %arg1: tensor<2x5x12xf32>, %arg2: tensor<2x5x12xf32>, %arg3: tensor<2x5xf32>) -> tensor<2x5x12xf32> {
  %0 = rlx.attention(%arg0, %arg1, %arg2, %arg3) {head_dim = 4, mask_kind = "custom", num_heads = 3} : (tensor<2x5x12xf32>, tensor<2x5x12xf32>, tensor<2x5x12xf32>, tensor<2x5xf32>) -> tensor<2x5x12xf32>
  return %0 : tensor<2x5x12xf32>
}

// CHECK-LABEL: func.func @rope(
// CHECK: rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x8xf32>
func.func @rope(%arg0: tensor<2x3x8xf32>, %arg1: tensor<3x2xf32>, %arg2: tensor<3x2xf32>) -> tensor<2x3x8xf32> {
  %0 = rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x8xf32>
  return %0 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @rope_1(
// CHECK: rlx.rope(%arg0, %arg1, %arg2) {head_dim = 6, n_rot = 4, style = "neox"} : (tensor<2x2x3x6xf16>, tensor<3x2xf16>, tensor<3x2xf16>) -> tensor<2x2x3x6xf16>
func.func @rope_1(%arg0: tensor<2x2x3x6xf16>, %arg1: tensor<3x2xf16>, %arg2: tensor<3x2xf16>) -> tensor<2x2x3x6xf16> {
  %0 = rlx.rope(%arg0, %arg1, %arg2) {head_dim = 6, n_rot = 4, style = "neox"} : (tensor<2x2x3x6xf16>, tensor<3x2xf16>, tensor<3x2xf16>) -> tensor<2x2x3x6xf16>
  return %0 : tensor<2x2x3x6xf16>
}

// CHECK-LABEL: func.func @rope_2(
// CHECK: rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "gptj"} : (tensor<2x3x8xf32>, tensor<2x3x2xf32>, tensor<2x3x2xf32>) -> tensor<2x3x8xf32>
func.func @rope_2(%arg0: tensor<2x3x8xf32>, %arg1: tensor<2x3x2xf32>, %arg2: tensor<2x3x2xf32>) -> tensor<2x3x8xf32> {
  %0 = rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "gptj"} : (tensor<2x3x8xf32>, tensor<2x3x2xf32>, tensor<2x3x2xf32>) -> tensor<2x3x8xf32>
  return %0 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @rope_3(
// CHECK: rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
func.func @rope_3(%arg0: tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, %arg1: tensor<?x2xf32, #rlx.dims<["s"]>>, %arg2: tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>> {
  %0 = rlx.rope(%arg0, %arg1, %arg2) {head_dim = 4, n_rot = 4, style = "neox"} : (tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>, tensor<?x2xf32, #rlx.dims<["s"]>>) -> tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
  return %0 : tensor<?x?x8xf32, #rlx.dims<["b", "s"]>>
}
