// RUN: rlx-opt %s --rlx-recognize --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-recognize-activations --rlx-recognize-softmax --rlx-recognize-norms --rlx-recognize-attention | filecheck %s

// CHECK-LABEL: func.func @rms(
// CHECK-NEXT: %[[y:.*]] = rlx.rms_norm(%arg0, %arg1) {axis = 1, eps = 1.000000e-05}
// CHECK-NEXT: return %[[y]]
func.func @rms(%x: tensor<2x4xf32>, %s: tensor<4xf32>) -> tensor<2x4xf32> {
  %eps = rlx.constant() {value = dense<1.0e-5> : tensor<f32>} : tensor<f32>
  %0 = rlx.binary(%x, %x) {kind = "mul"} : tensor<2x4xf32>
  %1 = rlx.reduce(%0) {kind = "mean", axes = array<i64: 1>, keep_dims = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %2 = rlx.binary(%1, %eps) {kind = "add"} : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = rlx.activation(%2) {kind = "rsqrt"} : tensor<2x1xf32>
  %4 = rlx.binary(%x, %3) {kind = "mul"} : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %5 = rlx.binary(%4, %s) {kind = "mul"} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %5 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @attention(
// CHECK-NEXT: %[[m:.*]] = rlx.reshape(%arg3) {shape = [1, 1, 3, 5]}
// CHECK-NEXT: %[[q:.*]] = rlx.reshape(%arg0) {shape = [1, 1, 3, 4]}
// CHECK-NEXT: %[[k:.*]] = rlx.reshape(%arg1) {shape = [1, 1, 5, 4]}
// CHECK-NEXT: %[[v:.*]] = rlx.reshape(%arg2) {shape = [1, 1, 5, 4]}
// CHECK-NEXT: rlx.attention(%[[q]], %[[k]], %[[v]], %[[m]]) {empty_rows = "nan", head_dim = 4, mask_kind = "bias", num_heads = 1}
func.func @attention(%q: tensor<3x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<3x5xf32>) -> tensor<3x4xf32> {
  %two = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.transpose(%k) {perm = array<i64: 1, 0>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
  %1 = rlx.matmul(%q, %0) : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %2 = rlx.binary(%1, %two) {kind = "div"} : (tensor<3x5xf32>, tensor<f32>) -> tensor<3x5xf32>
  %3 = rlx.binary(%2, %m) {kind = "add"} : tensor<3x5xf32>
  %4 = rlx.reduce(%3) {kind = "max", axes = array<i64: 1>, keep_dims = true} : (tensor<3x5xf32>) -> tensor<3x1xf32>
  %5 = rlx.binary(%3, %4) {kind = "sub"} : (tensor<3x5xf32>, tensor<3x1xf32>) -> tensor<3x5xf32>
  %6 = rlx.activation(%5) {kind = "exp"} : tensor<3x5xf32>
  %7 = rlx.reduce(%6) {kind = "sum", axes = array<i64: 1>, keep_dims = true} : (tensor<3x5xf32>) -> tensor<3x1xf32>
  %8 = rlx.binary(%6, %7) {kind = "div"} : (tensor<3x5xf32>, tensor<3x1xf32>) -> tensor<3x5xf32>
  %9 = rlx.matmul(%8, %v) : (tensor<3x5xf32>, tensor<5x4xf32>) -> tensor<3x4xf32>
  return %9 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @activations(
// CHECK-NEXT: rlx.activation(%arg0) {kind = "silu"}
// CHECK-NEXT: rlx.activation(%arg0) {kind = "relu"}
// CHECK-NEXT: return
func.func @activations(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %one = rlx.constant() {value = dense<1.0> : tensor<f32>} : tensor<f32>
  %zero = rlx.constant() {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.activation(%x) {kind = "neg"} : tensor<4xf32>
  %1 = rlx.activation(%0) {kind = "exp"} : tensor<4xf32>
  %2 = rlx.binary(%1, %one) {kind = "add"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = rlx.binary(%one, %2) {kind = "div"} : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = rlx.binary(%x, %3) {kind = "mul"} : tensor<4xf32>
  %5 = rlx.binary(%x, %zero) {kind = "max"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %4, %5 : tensor<4xf32>, tensor<4xf32>
}
