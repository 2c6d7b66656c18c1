// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @argsort(
// CHECK: rlx.argsort(%arg0) {axis = 1, descending = false} : (tensor<3x9xf32>) -> tensor<3x9xi32>
func.func @argsort(%arg0: tensor<3x9xf32>) -> tensor<3x9xi32> {
  %0 = rlx.argsort(%arg0) {axis = 1, descending = false} : (tensor<3x9xf32>) -> tensor<3x9xi32>
  return %0 : tensor<3x9xi32>
}

// CHECK-LABEL: func.func @argsort_1(
// CHECK: rlx.argsort(%arg0) {axis = 1, descending = false} : (tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xi32, #rlx.dims<["n"]>>
func.func @argsort_1(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xi32, #rlx.dims<["n"]>> {
  %0 = rlx.argsort(%arg0) {axis = 1, descending = false} : (tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xi32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xi32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @sort(
// CHECK: rlx.sort(%arg0) {axis = 1, descending = false} : tensor<3x9xf32>
func.func @sort(%arg0: tensor<3x9xf32>) -> tensor<3x9xf32> {
  %0 = rlx.sort(%arg0) {axis = 1, descending = false} : tensor<3x9xf32>
  return %0 : tensor<3x9xf32>
}

// CHECK-LABEL: func.func @sort_1(
// CHECK: rlx.sort(%arg0) {axis = 0, descending = false} : tensor<?x2xf32, #rlx.dims<["n"]>>
func.func @sort_1(%arg0: tensor<?x2xf32, #rlx.dims<["n"]>>) -> tensor<?x2xf32, #rlx.dims<["n"]>> {
  %0 = rlx.sort(%arg0) {axis = 0, descending = false} : tensor<?x2xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x2xf32, #rlx.dims<["n"]>>
}
