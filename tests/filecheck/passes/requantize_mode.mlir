// RUN: rlx-opt %s --rlx-requantize-mode | filecheck %s
// RUN: rlx-opt %s --rlx-requantize-mode="mode=single" | filecheck %s --check-prefix=SINGLE

// CHECK: [[M:%.+]] = rlx.constant() {value = dense<[16384, 24576]> : tensor<2xi32>}
// CHECK: [[S:%.+]] = rlx.constant() {value = dense<[-3, 1]> : tensor<2xi32>}
// CHECK: rlx.requantize(%arg0, [[M]], [[S]]) {dtype = i8, mode = "short", zero_point = 5}

// Multipliers that are not known stay.
// CHECK: rlx.requantize(%arg0, %arg1, {{.+}}) {dtype = i8, mode = "double"

// SINGLE: rlx.requantize(%arg0, {{.+}}) {dtype = i8, mode = "single", zero_point = 5}
func.func @main(%x: tensor<3x2xi32>, %u: tensor<2xi32>) -> (tensor<3x2xi8>, tensor<3x2xi8>) {
  %m = rlx.constant() {value = dense<[1073741824, 1610612736]> : tensor<2xi32>} : tensor<2xi32>
  %s = rlx.constant() {value = dense<[-3, 1]> : tensor<2xi32>} : tensor<2xi32>
  %0 = rlx.requantize(%x, %m, %s) {dtype = i8, mode = "double", zero_point = 5} : (tensor<3x2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x2xi8>
  %1 = rlx.requantize(%x, %u, %s) {dtype = i8, mode = "double", zero_point = 0} : (tensor<3x2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x2xi8>
  return %0, %1 : tensor<3x2xi8>, tensor<3x2xi8>
}
