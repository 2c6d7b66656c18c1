// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @reshape(
// CHECK: rlx.reshape(%arg0) {shape = [6, 4]} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
func.func @reshape(%arg0: tensor<2x3x4xf32>) -> tensor<6x4xf32> {
  %0 = rlx.reshape(%arg0) {shape = [6, 4]} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}

// CHECK-LABEL: func.func @reshape_1(
// CHECK: rlx.reshape(%arg0) {shape = ["n", 24]} : (tensor<?x4x6xf32, #rlx.dims<["n"]>>) -> tensor<?x24xf32, #rlx.dims<["n"]>>
func.func @reshape_1(%arg0: tensor<?x4x6xf32, #rlx.dims<["n"]>>) -> tensor<?x24xf32, #rlx.dims<["n"]>> {
  %0 = rlx.reshape(%arg0) {shape = ["n", 24]} : (tensor<?x4x6xf32, #rlx.dims<["n"]>>) -> tensor<?x24xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x24xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @transpose(
// CHECK: rlx.transpose(%arg0) {perm = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
func.func @transpose(%arg0: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
  %0 = rlx.transpose(%arg0) {perm = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  return %0 : tensor<4x2x3xf32>
}

// CHECK-LABEL: func.func @transpose_1(
// CHECK: rlx.transpose(%arg0) {perm = array<i64: 2, 0, 1>} : (tensor<?x3x?xf32, #rlx.dims<["n", "m"]>>) -> tensor<?x?x3xf32, #rlx.dims<["m", "n"]>>
func.func @transpose_1(%arg0: tensor<?x3x?xf32, #rlx.dims<["n", "m"]>>) -> tensor<?x?x3xf32, #rlx.dims<["m", "n"]>> {
  %0 = rlx.transpose(%arg0) {perm = array<i64: 2, 0, 1>} : (tensor<?x3x?xf32, #rlx.dims<["n", "m"]>>) -> tensor<?x?x3xf32, #rlx.dims<["m", "n"]>>
  return %0 : tensor<?x?x3xf32, #rlx.dims<["m", "n"]>>
}

// CHECK-LABEL: func.func @narrow(
// CHECK: rlx.narrow(%arg0) {axis = 1, length = [3], start = [2]} : (tensor<4x6xf32>) -> tensor<4x3xf32>
func.func @narrow(%arg0: tensor<4x6xf32>) -> tensor<4x3xf32> {
  %0 = rlx.narrow(%arg0) {axis = 1, length = [3], start = [2]} : (tensor<4x6xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @narrow_1(
// CHECK: rlx.narrow(%arg0) {axis = 0, length = ["n"], start = [3]} : (tensor<?x6xf32, #rlx.dims<["n+3"]>>) -> tensor<?x6xf32, #rlx.dims<["n"]>>
func.func @narrow_1(%arg0: tensor<?x6xf32, #rlx.dims<["n+3"]>>) -> tensor<?x6xf32, #rlx.dims<["n"]>> {
  %0 = rlx.narrow(%arg0) {axis = 0, length = ["n"], start = [3]} : (tensor<?x6xf32, #rlx.dims<["n+3"]>>) -> tensor<?x6xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x6xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @slice(
// CHECK: rlx.slice(%arg0) {limits = [3, 7], starts = [1, 0], strides = array<i64: 1, 2>} : (tensor<4x7xf32>) -> tensor<2x4xf32>
func.func @slice(%arg0: tensor<4x7xf32>) -> tensor<2x4xf32> {
  %0 = rlx.slice(%arg0) {limits = [3, 7], starts = [1, 0], strides = array<i64: 1, 2>} : (tensor<4x7xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @slice_1(
// CHECK: rlx.slice(%arg0) {limits = [8], starts = [1], strides = array<i64: 3>} : (tensor<9xi32>) -> tensor<3xi32>
func.func @slice_1(%arg0: tensor<9xi32>) -> tensor<3xi32> {
  %0 = rlx.slice(%arg0) {limits = [8], starts = [1], strides = array<i64: 3>} : (tensor<9xi32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}

// CHECK-LABEL: func.func @slice_2(
// CHECK: rlx.slice(%arg0) {limits = ["n", 6], starts = [0, 1], strides = array<i64: 1, 2>} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
func.func @slice_2(%arg0: tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.slice(%arg0) {limits = ["n", 6], starts = [0, 1], strides = array<i64: 1, 2>} : (tensor<?x7xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @concat(
// CHECK: rlx.concat(%arg0, %arg1) {axis = 1} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
func.func @concat(%arg0: tensor<2x3xf32>, %arg1: tensor<2x4xf32>) -> tensor<2x7xf32> {
  %0 = rlx.concat(%arg0, %arg1) {axis = 1} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// CHECK-LABEL: func.func @concat_1(
// CHECK: rlx.concat(%arg0, %arg1) {axis = 0} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<2x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n+2"]>>
func.func @concat_1(%arg0: tensor<?x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<2x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n+2"]>> {
  %0 = rlx.concat(%arg0, %arg1) {axis = 0} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<2x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n+2"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n+2"]>>
}

// CHECK-LABEL: func.func @expand(
// CHECK: rlx.expand(%arg0) {shape = [2, 3, 4]} : (tensor<3x1xf32>) -> tensor<2x3x4xf32>
func.func @expand(%arg0: tensor<3x1xf32>) -> tensor<2x3x4xf32> {
  %0 = rlx.expand(%arg0) {shape = [2, 3, 4]} : (tensor<3x1xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @expand_1(
// CHECK: rlx.expand(%arg0) {shape = ["n", 3]} : (tensor<1x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
func.func @expand_1(%arg0: tensor<1x3xf32>, %arg1: tensor<?xui8, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.expand(%arg0) {shape = ["n", 3]} : (tensor<1x3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @reverse(
// CHECK: rlx.reverse(%arg0) {axes = array<i64: 1>} : tensor<2x5xf32>
func.func @reverse(%arg0: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = rlx.reverse(%arg0) {axes = array<i64: 1>} : tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// CHECK-LABEL: func.func @reverse_1(
// CHECK: rlx.reverse(%arg0) {axes = array<i64: 0>} : tensor<?x3xf32, #rlx.dims<["n"]>>
func.func @reverse_1(%arg0: tensor<?x3xf32, #rlx.dims<["n"]>>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.reverse(%arg0) {axes = array<i64: 0>} : tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n"]>>
}
