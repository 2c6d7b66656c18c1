// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @cumprod(
// CHECK: rlx.cumprod(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
func.func @cumprod(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cumprod(%arg0) {axis = 1, exclusive = false} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cumprod_1(
// CHECK: rlx.cumprod(%arg0) {axis = 1, exclusive = false} : tensor<2x?xf32, #rlx.dims<["n"]>>
func.func @cumprod_1(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.cumprod(%arg0) {axis = 1, exclusive = false} : tensor<2x?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @cummax(
// CHECK: rlx.cummax(%arg0) {axis = 1} : tensor<3x5xf32>
func.func @cummax(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cummax(%arg0) {axis = 1} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cummax_1(
// CHECK: rlx.cummax(%arg0) {axis = 1} : tensor<2x?xf32, #rlx.dims<["n"]>>
func.func @cummax_1(%arg0: tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2x?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.cummax(%arg0) {axis = 1} : tensor<2x?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<2x?xf32, #rlx.dims<["n"]>>
}
