// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @gather_nd(
// CHECK: rlx.gather_nd(%arg0, %arg1) {batch_dims = 0} : (tensor<5x3x2xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
func.func @gather_nd(%arg0: tensor<5x3x2xf32>, %arg1: tensor<4x2xi32>) -> tensor<4x2xf32> {
  %0 = rlx.gather_nd(%arg0, %arg1) {batch_dims = 0} : (tensor<5x3x2xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// CHECK-LABEL: func.func @gather_nd_1(
// CHECK: rlx.gather_nd(%arg0, %arg1) {batch_dims = 1} : (tensor<?x?x4x2xf32, #rlx.dims<["n", "m"]>>, tensor<?x3x2xi64, #rlx.dims<["n"]>>) -> tensor<?x3x2xf32, #rlx.dims<["n"]>>
func.func @gather_nd_1(%arg0: tensor<?x?x4x2xf32, #rlx.dims<["n", "m"]>>, %arg1: tensor<?x3x2xi64, #rlx.dims<["n"]>>) -> tensor<?x3x2xf32, #rlx.dims<["n"]>> {
  %0 = rlx.gather_nd(%arg0, %arg1) {batch_dims = 1} : (tensor<?x?x4x2xf32, #rlx.dims<["n", "m"]>>, tensor<?x3x2xi64, #rlx.dims<["n"]>>) -> tensor<?x3x2xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3x2xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @scatter_nd(
// CHECK: rlx.scatter_nd(%arg0, %arg1, %arg2) {reduction = "set"} : (tensor<5x3xf32>, tensor<8x1xi32>, tensor<8x3xf32>) -> tensor<5x3xf32>
func.func @scatter_nd(%arg0: tensor<5x3xf32>, %arg1: tensor<8x1xi32>, %arg2: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %0 = rlx.scatter_nd(%arg0, %arg1, %arg2) {reduction = "set"} : (tensor<5x3xf32>, tensor<8x1xi32>, tensor<8x3xf32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @scatter_nd_1(
// CHECK: rlx.scatter_nd(%arg0, %arg1, %arg2) {reduction = "set"} : (tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x1xi64, #rlx.dims<["m"]>>, tensor<?x2xf32, #rlx.dims<["m"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>>
func.func @scatter_nd_1(%arg0: tensor<?x2xf32, #rlx.dims<["n"]>>, %arg1: tensor<?x1xi64, #rlx.dims<["m"]>>, %arg2: tensor<?x2xf32, #rlx.dims<["m"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>> {
  %0 = rlx.scatter_nd(%arg0, %arg1, %arg2) {reduction = "set"} : (tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x1xi64, #rlx.dims<["m"]>>, tensor<?x2xf32, #rlx.dims<["m"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @scatter_add(
// CHECK: rlx.scatter_add(%arg0, %arg1) {size = [5]} : (tensor<8x3xf32>, tensor<8xi32>) -> tensor<5x3xf32>
func.func @scatter_add(%arg0: tensor<8x3xf32>, %arg1: tensor<8xi32>) -> tensor<5x3xf32> {
  %0 = rlx.scatter_add(%arg0, %arg1) {size = [5]} : (tensor<8x3xf32>, tensor<8xi32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @scatter_add_1(
// CHECK: rlx.scatter_add(%arg0, %arg1) {size = ["n"]} : (tensor<?x2xf32, #rlx.dims<["m"]>>, tensor<?xi32, #rlx.dims<["m"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>>
func.func @scatter_add_1(%arg0: tensor<?x2xf32, #rlx.dims<["m"]>>, %arg1: tensor<?xi32, #rlx.dims<["m"]>>, %arg2: tensor<?xui8, #rlx.dims<["n"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>> {
  %0 = rlx.scatter_add(%arg0, %arg1) {size = ["n"]} : (tensor<?x2xf32, #rlx.dims<["m"]>>, tensor<?xi32, #rlx.dims<["m"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2xf32, #rlx.dims<["n"]>>
}
