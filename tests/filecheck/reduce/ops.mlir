// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @reduce(
// CHECK: rlx.reduce(%arg0) {axes = array<i64: 1>, keep_dims = false, kind = "sum"} : (tensor<3x4x5xf32>) -> tensor<3x5xf32>
func.func @reduce(%arg0: tensor<3x4x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.reduce(%arg0) {axes = array<i64: 1>, keep_dims = false, kind = "sum"} : (tensor<3x4x5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @reduce_1(
// CHECK: rlx.reduce(%arg0) {axes = array<i64: 0, 2>, keep_dims = true, kind = "sum"} : (tensor<3x4x5xf32>) -> tensor<1x4x1xf32>
func.func @reduce_1(%arg0: tensor<3x4x5xf32>) -> tensor<1x4x1xf32> {
  %0 = rlx.reduce(%arg0) {axes = array<i64: 0, 2>, keep_dims = true, kind = "sum"} : (tensor<3x4x5xf32>) -> tensor<1x4x1xf32>
  return %0 : tensor<1x4x1xf32>
}

// CHECK-LABEL: func.func @reduce_2(
// CHECK: rlx.reduce(%arg0) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<4xf32>
func.func @reduce_2(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<4xf32> {
  %0 = rlx.reduce(%arg0) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @reduce_3(
// CHECK: rlx.reduce(%arg0) {axes = array<i64: 1>, keep_dims = false, kind = "mean"} : (tensor<3x4x5xf16>) -> tensor<3x5xf16>
func.func @reduce_3(%arg0: tensor<3x4x5xf16>) -> tensor<3x5xf16> {
  %0 = rlx.reduce(%arg0) {axes = array<i64: 1>, keep_dims = false, kind = "mean"} : (tensor<3x4x5xf16>) -> tensor<3x5xf16>
  return %0 : tensor<3x5xf16>
}

// CHECK-LABEL: func.func @softmax(
// CHECK: rlx.softmax(%arg0) {axis = 1} : tensor<3x5xf32>
func.func @softmax(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.softmax(%arg0) {axis = 1} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @softmax_1(
// CHECK: rlx.softmax(%arg0) {axis = 1} : tensor<?x6xf32, #rlx.dims<["n"]>>
func.func @softmax_1(%arg0: tensor<?x6xf32, #rlx.dims<["n"]>>) -> tensor<?x6xf32, #rlx.dims<["n"]>> {
  %0 = rlx.softmax(%arg0) {axis = 1} : tensor<?x6xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x6xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @cumsum(
// CHECK: rlx.cumsum(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
func.func @cumsum(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cumsum(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cumsum_1(
// CHECK: rlx.cumsum(%arg0) {axis = 0, exclusive = true} : tensor<5x3xf32>
func.func @cumsum_1(%arg0: tensor<5x3xf32>) -> tensor<5x3xf32> {
  %0 = rlx.cumsum(%arg0) {axis = 0, exclusive = true} : tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @cumsum_2(
// CHECK: rlx.cumsum(%arg0) {axis = 1, exclusive = false} : tensor<2x?xf32, #rlx.dims<["n"]>>
func.func @cumsum_2(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.cumsum(%arg0) {axis = 1, exclusive = false} : tensor<2x?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @argmax(
// CHECK: rlx.argmax(%arg0) {axis = 1, keep_dims = false} : (tensor<4x7xf32>) -> tensor<4xi32>
func.func @argmax(%arg0: tensor<4x7xf32>) -> tensor<4xi32> {
  %0 = rlx.argmax(%arg0) {axis = 1, keep_dims = false} : (tensor<4x7xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @argmax_1(
// CHECK: rlx.argmax(%arg0) {axis = 0, keep_dims = true} : (tensor<4x7xf32>) -> tensor<1x7xi32>
func.func @argmax_1(%arg0: tensor<4x7xf32>) -> tensor<1x7xi32> {
  %0 = rlx.argmax(%arg0) {axis = 0, keep_dims = true} : (tensor<4x7xf32>) -> tensor<1x7xi32>
  return %0 : tensor<1x7xi32>
}

// CHECK-LABEL: func.func @argmax_2(
// CHECK: rlx.argmax(%arg0) {axis = 1, keep_dims = false} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>>
func.func @argmax_2(%arg0: tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>> {
  %0 = rlx.argmax(%arg0) {axis = 1, keep_dims = false} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>>
  return %0 : tensor<?xi32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @topk(
// CHECK: rlx.topk(%arg0) {k = 4} : (tensor<3x9xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)
func.func @topk(%arg0: tensor<3x9xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>) {
  %0:2 = rlx.topk(%arg0) {k = 4} : (tensor<3x9xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)
  return %0#0, %0#1 : tensor<3x4xf32>, tensor<3x4xi32>
}

// CHECK-LABEL: func.func @topk_1(
// CHECK: rlx.topk(%arg0) {k = 2} : (tensor<?x6xf32, #rlx.dims<["n"]>>) -> (tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x2xi32, #rlx.dims<["n"]>>)
func.func @topk_1(%arg0: tensor<?x6xf32, #rlx.dims<["n"]>>) -> (tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x2xi32, #rlx.dims<["n"]>>) {
  %0:2 = rlx.topk(%arg0) {k = 2} : (tensor<?x6xf32, #rlx.dims<["n"]>>) -> (tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x2xi32, #rlx.dims<["n"]>>)
  return %0#0, %0#1 : tensor<?x2xf32, #rlx.dims<["n"]>>, tensor<?x2xi32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @argmin(
// CHECK: rlx.argmin(%arg0) {axis = 1, keep_dims = false} : (tensor<4x7xf32>) -> tensor<4xi32>
func.func @argmin(%arg0: tensor<4x7xf32>) -> tensor<4xi32> {
  %0 = rlx.argmin(%arg0) {axis = 1, keep_dims = false} : (tensor<4x7xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @argmin_1(
// CHECK: rlx.argmin(%arg0) {axis = 1, keep_dims = false} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>>
func.func @argmin_1(%arg0: tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>> {
  %0 = rlx.argmin(%arg0) {axis = 1, keep_dims = false} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?xi32, #rlx.dims<["n"]>>
  return %0 : tensor<?xi32, #rlx.dims<["n"]>>
}
