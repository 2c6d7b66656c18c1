// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @gather(
// CHECK: rlx.gather(%arg0, %arg1) {axis = 0} : (tensor<5x3xf32>, tensor<4xi32>) -> tensor<4x3xf32>
func.func @gather(%arg0: tensor<5x3xf32>, %arg1: tensor<4xi32>) -> tensor<4x3xf32> {
  %0 = rlx.gather(%arg0, %arg1) {axis = 0} : (tensor<5x3xf32>, tensor<4xi32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @gather_1(
// CHECK: rlx.gather(%arg0, %arg1) {axis = 0} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<?xi32, #rlx.dims<["m"]>>) -> tensor<?x3xf32, #rlx.dims<["m"]>>
func.func @gather_1(%arg0: tensor<?x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<?xi32, #rlx.dims<["m"]>>) -> tensor<?x3xf32, #rlx.dims<["m"]>> {
  %0 = rlx.gather(%arg0, %arg1) {axis = 0} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<?xi32, #rlx.dims<["m"]>>) -> tensor<?x3xf32, #rlx.dims<["m"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["m"]>>
}

// CHECK-LABEL: func.func @gather_batched(
// CHECK: rlx.gather_batched(%arg0, %arg1) {axis = 1} : (tensor<2x5x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>
func.func @gather_batched(%arg0: tensor<2x5x3xf32>, %arg1: tensor<2x4xi32>) -> tensor<2x4x3xf32> {
  %0 = rlx.gather_batched(%arg0, %arg1) {axis = 1} : (tensor<2x5x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>
  return %0 : tensor<2x4x3xf32>
}

// CHECK-LABEL: func.func @gather_batched_1(
// CHECK: rlx.gather_batched(%arg0, %arg1) {axis = 1} : (tensor<?x5x3xf32, #rlx.dims<["n"]>>, tensor<?x1xi64, #rlx.dims<["n"]>>) -> tensor<?x1x3xf32, #rlx.dims<["n"]>>
func.func @gather_batched_1(%arg0: tensor<?x5x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x1xi64, #rlx.dims<["n"]>>) -> tensor<?x1x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.gather_batched(%arg0, %arg1) {axis = 1} : (tensor<?x5x3xf32, #rlx.dims<["n"]>>, tensor<?x1xi64, #rlx.dims<["n"]>>) -> tensor<?x1x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x1x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @embedding(
// CHECK: rlx.embedding(%arg0, %arg1) : (tensor<7x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>
func.func @embedding(%arg0: tensor<7x3xf32>, %arg1: tensor<2x4xi32>) -> tensor<2x4x3xf32> {
  %0 = rlx.embedding(%arg0, %arg1) : (tensor<7x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>
  return %0 : tensor<2x4x3xf32>
}

// CHECK-LABEL: func.func @embedding_1(
// CHECK: rlx.embedding(%arg0, %arg1) : (tensor<7x3xf32>, tensor<?x?xi64, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x3xf32, #rlx.dims<["batch", "seq"]>>
func.func @embedding_1(%arg0: tensor<7x3xf32>, %arg1: tensor<?x?xi64, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x3xf32, #rlx.dims<["batch", "seq"]>> {
  %0 = rlx.embedding(%arg0, %arg1) : (tensor<7x3xf32>, tensor<?x?xi64, #rlx.dims<["batch", "seq"]>>) -> tensor<?x?x3xf32, #rlx.dims<["batch", "seq"]>>
  return %0 : tensor<?x?x3xf32, #rlx.dims<["batch", "seq"]>>
}
