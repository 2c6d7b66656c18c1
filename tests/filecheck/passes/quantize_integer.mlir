// RUN: rlx-opt %s --rlx-quantize-integer | filecheck %s

// A product, a bias and a relu: sums of integers, and one requantisation, whose least result is the relu's 0.
// CHECK-LABEL: func.func @product
// CHECK: [[S:%.+]] = rlx.q_matmul(%arg0, {{.+}}, {{.+}}, _) {{.*}}dtype = i32{{.*}}x_zero_point = 3
// CHECK: [[Y:%.+]] = rlx.requantize([[S]], {{.+}}) {dtype = i8, mode = "double", zero_point = -128}
// CHECK: return [[Y]]
func.func @product(%x: tensor<4x2xi8>) -> tensor<4x3xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %low = rlx.constant() {value = dense<-128> : tensor<i32>} : tensor<i32>
  %0 = rlx.dequantize(%x, %s, %z) : (tensor<4x2xi8>, tensor<f32>, tensor<i32>) -> tensor<4x2xf32>
  %wi = rlx.constant() {value = dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi8>} : tensor<2x3xi8>
  %ws = rlx.constant() {value = dense<[1.0, 2.0, 0.5]> : tensor<3xf32>} : tensor<3xf32>
  %wz = rlx.constant() {value = dense<0> : tensor<3xi32>} : tensor<3xi32>
  %w = rlx.dequantize(%wi, %ws, %wz) {axis = 1} : (tensor<2x3xi8>, tensor<3xf32>, tensor<3xi32>) -> tensor<2x3xf32>
  %b = rlx.constant() {value = dense<[1.0, -2.0, 3.0]> : tensor<3xf32>} : tensor<3xf32>
  %1 = rlx.matmul(%0, %w) : (tensor<4x2xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %2 = rlx.binary(%1, %b) {kind = "add"} : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %3 = rlx.activation(%2) {kind = "relu"} : tensor<4x3xf32>
  %4 = rlx.quantize(%3, %s, %low) {dtype = i8} : (tensor<4x3xf32>, tensor<f32>, tensor<i32>) -> tensor<4x3xi8>
  return %4 : tensor<4x3xi8>
}

// A function of one value is a table, and what only moves keeps its scale; a relu at another zero point is a bound.
// CHECK-LABEL: func.func @others
// CHECK: [[I:%.+]] = rlx.cast(%arg0) {dtype = i32}
// CHECK: [[P:%.+]] = rlx.binary([[I]], {{.+}}) {kind = "add"}
// CHECK: [[T:%.+]] = rlx.gather({{.+}}, [[P]]) {axis = 0} : (tensor<256xi8>
// CHECK: [[R:%.+]] = rlx.reshape(%arg0) {shape = [2, 4]} : (tensor<4x2xi8>)
// CHECK: [[M:%.+]] = rlx.binary(%arg0, {{.+}}) {kind = "max"}
// CHECK: return [[T]], [[R]], [[M]]
func.func @others(%x: tensor<4x2xi8>) -> (tensor<4x2xi8>, tensor<2x4xi8>, tensor<4x2xi8>) {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %0 = rlx.dequantize(%x, %s, %z) : (tensor<4x2xi8>, tensor<f32>, tensor<i32>) -> tensor<4x2xf32>
  %1 = rlx.activation(%0) {kind = "gelu"} : tensor<4x2xf32>
  %2 = rlx.quantize(%1, %s, %z) {dtype = i8} : (tensor<4x2xf32>, tensor<f32>, tensor<i32>) -> tensor<4x2xi8>
  %3 = rlx.reshape(%0) {shape = [2, 4]} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %4 = rlx.quantize(%3, %s, %z) {dtype = i8} : (tensor<2x4xf32>, tensor<f32>, tensor<i32>) -> tensor<2x4xi8>
  %5 = rlx.activation(%0) {kind = "relu"} : tensor<4x2xf32>
  %6 = rlx.quantize(%5, %s, %z) {dtype = i8} : (tensor<4x2xf32>, tensor<f32>, tensor<i32>) -> tensor<4x2xi8>
  return %2, %4, %6 : tensor<4x2xi8>, tensor<2x4xi8>, tensor<4x2xi8>
}
