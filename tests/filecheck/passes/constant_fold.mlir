// RUN: rlx-opt %s --rlx-constant-fold --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-constant-fold="max-elements=3" | filecheck %s --check-prefix=SMALL

// CHECK-LABEL: func.func @chain(
// CHECK-NEXT: %[[c:.*]] = rlx.constant() {value = dense<[2.000000e+00, 8.000000e+00, 1.800000e+01, 3.200000e+01]> : tensor<4xf32>}
// CHECK-NEXT: %[[y:.*]] = rlx.binary(%arg0, %[[c]])
// CHECK-NEXT: return %[[y]]
// SMALL-LABEL: func.func @chain(
// SMALL-COUNT-3: rlx.binary
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = rlx.constant() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : tensor<4xf32>
  %1 = rlx.binary(%0, %0) {kind = "mul"} : tensor<4xf32>
  %2 = rlx.binary(%1, %1) {kind = "add"} : tensor<4xf32>
  %3 = rlx.binary(%x, %2) {kind = "add"} : tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Several results.
// CHECK-LABEL: func.func @topk(
// CHECK-DAG: %[[v:.*]] = rlx.constant() {value = dense<[9.000000e+00, 5.000000e+00]> : tensor<2xf32>}
// CHECK-DAG: %[[i:.*]] = rlx.constant() {value = dense<[1, 2]> : tensor<2xi32>}
// CHECK: return %[[v]], %[[i]]
func.func @topk() -> (tensor<2xf32>, tensor<2xi32>) {
  %0 = rlx.constant() {value = dense<[1.0, 9.0, 5.0]> : tensor<3xf32>} : tensor<3xf32>
  %1:2 = rlx.topk(%0) {k = 2} : (tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)
  return %1#0, %1#1 : tensor<2xf32>, tensor<2xi32>
}

// A size is known once it is bound; a symbol is not, and an op without operands stays small as it is.
// CHECK-LABEL: func.func @sizes(
// CHECK-DAG: rlx.constant() {value = dense<3> : tensor<i32>}
// CHECK-DAG: rlx.dim_size() {size = ["n"]}
// CHECK-DAG: rlx.iota(
// CHECK-DAG: rlx.expand(
func.func @sizes(%x: tensor<?xf32, #rlx.dims<["n"]>>) -> (tensor<i32>, tensor<i32>, tensor<3xi32>, tensor<?xi32, #rlx.dims<["n"]>>) {
  %0 = rlx.dim_size() {size = [3]} : tensor<i32>
  %1 = rlx.dim_size() {size = ["n"]} : tensor<i32>
  %2 = rlx.iota() {shape = [3], axis = 0, dtype = i32} : tensor<3xi32>
  %3 = rlx.expand(%0) {shape = ["n"]} : (tensor<i32>) -> tensor<?xi32, #rlx.dims<["n"]>>
  return %0, %1, %2, %3 : tensor<i32>, tensor<i32>, tensor<3xi32>, tensor<?xi32, #rlx.dims<["n"]>>
}

// Positions stay, and so does what is computed from them element by element; a sort of them is evaluated.
// CHECK-LABEL: func.func @positions(
// CHECK-DAG: rlx.constant() {value = dense<[0, 2, 1, 3]> : tensor<4xi32>}
// CHECK-DAG: rlx.iota(
// CHECK-DAG: rlx.binary(
// CHECK-NOT: rlx.argsort
func.func @positions() -> (tensor<4xi32>, tensor<4xi32>) {
  %0 = rlx.iota() {shape = [4], axis = 0, dtype = i32} : tensor<4xi32>
  %1 = rlx.constant() {value = dense<2> : tensor<i32>} : tensor<i32>
  %2 = rlx.binary(%0, %1) {kind = "rem"} : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
  %3 = rlx.argsort(%2) {axis = 0, descending = false} : tensor<4xi32>
  return %2, %3 : tensor<4xi32>, tensor<4xi32>
}
