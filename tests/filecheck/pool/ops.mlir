// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @pool(
// CHECK: rlx.pool(%arg0) {count_include_pad = true, kernel = array<i64: 2, 3>, kind = "max", padding = array<i64: 1, 0, 1, 2>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>) -> tensor<2x3x3x5xf32>
func.func @pool(%arg0: tensor<2x3x5x4xf32>) -> tensor<2x3x3x5xf32> {
  %0 = rlx.pool(%arg0) {count_include_pad = true, kernel = array<i64: 2, 3>, kind = "max", padding = array<i64: 1, 0, 1, 2>, stride = array<i64: 2, 1>} : (tensor<2x3x5x4xf32>) -> tensor<2x3x3x5xf32>
  return %0 : tensor<2x3x3x5xf32>
}

// CHECK-LABEL: func.func @pool_1(
// CHECK: rlx.pool(%arg0) {count_include_pad = false, kernel = array<i64: 2, 3>, kind = "max", padding = array<i64: 1, 0, 1, 2>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x7xf32, #rlx.dims<["n", "(h-1)//2+1"]>>
func.func @pool_1(%arg0: tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x7xf32, #rlx.dims<["n", "(h-1)//2+1"]>> {
  %0 = rlx.pool(%arg0) {count_include_pad = false, kernel = array<i64: 2, 3>, kind = "max", padding = array<i64: 1, 0, 1, 2>, stride = array<i64: 2, 1>} : (tensor<?x2x?x6xf32, #rlx.dims<["n", "h"]>>) -> tensor<?x2x?x7xf32, #rlx.dims<["n", "(h-1)//2+1"]>>
  return %0 : tensor<?x2x?x7xf32, #rlx.dims<["n", "(h-1)//2+1"]>>
}

// CHECK-LABEL: func.func @pool_2(
// CHECK: rlx.pool(%arg0) {count_include_pad = true, kernel = array<i64: 4>, kind = "mean", padding = array<i64: 0, 1>, stride = array<i64: 3>} : (tensor<2x2x9xf32>) -> tensor<2x2x3xf32>
func.func @pool_2(%arg0: tensor<2x2x9xf32>) -> tensor<2x2x3xf32> {
  %0 = rlx.pool(%arg0) {count_include_pad = true, kernel = array<i64: 4>, kind = "mean", padding = array<i64: 0, 1>, stride = array<i64: 3>} : (tensor<2x2x9xf32>) -> tensor<2x2x3xf32>
  return %0 : tensor<2x2x3xf32>
}
