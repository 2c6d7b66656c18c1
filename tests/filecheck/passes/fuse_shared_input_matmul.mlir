// RUN: rlx-opt %s --rlx-fuse-shared-input-matmul --check-numerics | filecheck %s

// CHECK-LABEL: func.func @three(
// CHECK-DAG: %[[w:.*]] = rlx.concat(%{{.*}}, %arg5) {axis = 1}
// CHECK-DAG: %[[b:.*]] = rlx.concat(%{{.*}}, %arg6) {axis = 0}
// CHECK: %[[p:.*]] = rlx.fused_matmul_bias_act(%arg0, %[[w]], %[[b]])
// CHECK-NEXT: %[[q:.*]] = rlx.narrow(%[[p]]) {axis = 1, length = [3], start = [0]}
// CHECK-NEXT: %[[k:.*]] = rlx.narrow(%[[p]]) {axis = 1, length = [2], start = [3]}
// CHECK-NEXT: %[[v:.*]] = rlx.narrow(%[[p]]) {axis = 1, length = [3], start = [5]}
// CHECK-NEXT: return %[[q]], %[[k]], %[[v]]
func.func @three(%x: tensor<?x4xf32, #rlx.dims<["n"]>>, %wq: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "wq"}, %bq: tensor<3xf32> {rlx.kind = "param", rlx.name = "bq"}, %wk: tensor<4x2xf32> {rlx.kind = "param", rlx.name = "wk"}, %bk: tensor<2xf32> {rlx.kind = "param", rlx.name = "bk"}, %wv: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "wv"}, %bv: tensor<3xf32> {rlx.kind = "param", rlx.name = "bv"}) -> (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x3xf32, #rlx.dims<["n"]>>) {
  %0 = rlx.fused_matmul_bias_act(%x, %wq, %bq) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  %1 = rlx.fused_matmul_bias_act(%x, %wk, %bk) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32, #rlx.dims<["n"]>>
  %2 = rlx.fused_matmul_bias_act(%x, %wv, %bv) : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0, %1, %2 : tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x3xf32, #rlx.dims<["n"]>>
}

// One has an activation, one a weight that is no parameter.
// CHECK-LABEL: func.func @not_joined(
// CHECK-NOT: concat
// CHECK: return
func.func @not_joined(%x: tensor<2x4xf32>, %w: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "w"}, %b: tensor<3xf32> {rlx.kind = "param", rlx.name = "b"}, %i: tensor<4x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = rlx.fused_matmul_bias_act(%x, %w, %b) : (tensor<2x4xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = rlx.fused_matmul_bias_act(%x, %w, %b) {activation = "relu"} : (tensor<2x4xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %2 = rlx.fused_matmul_bias_act(%x, %i, %b) : (tensor<2x4xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0, %1, %2 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// Without a bias, one with and one without; a weight that is a transposed parameter, in front of the first product.
// CHECK-LABEL: func.func @transposed(
// CHECK-NEXT: %[[t:.*]] = rlx.transpose(%arg2)
// CHECK-NEXT: %[[w:.*]] = rlx.concat(%arg1, %[[t]]) {axis = 1}
// CHECK-NEXT: %[[p:.*]] = rlx.matmul(%arg0, %[[w]])
// CHECK-NEXT: %[[y:.*]] = rlx.narrow(%[[p]]) {axis = 1, length = [3], start = [0]}
// CHECK-NEXT: %[[z:.*]] = rlx.narrow(%[[p]]) {axis = 1, length = [3], start = [3]}
// CHECK-NEXT: return %[[y]], %[[z]]
func.func @transposed(%x: tensor<2x4xf32>, %w: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "w"}, %v: tensor<3x4xf32> {rlx.kind = "param", rlx.name = "v"}) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.transpose(%v) {perm = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %2 = rlx.matmul(%x, %1) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %0, %2 : tensor<2x3xf32>, tensor<2x3xf32>
}
