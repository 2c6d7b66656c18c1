// RUN: rlx-opt %s --rlx-record-quantization --check-numerics | filecheck %s

// `u` is read as integers too, `v` has a scale for each channel, and `z` is not quantised.
// CHECK: func.func @main(
// CHECK-SAME: attributes {rlx.quantized = {x = [5.000000e-01, 3], y = [2.500000e-01, -7]}}
// CHECK: rlx.dequantize(%arg0
// CHECK: rlx.quantize(
func.func @main(%x: tensor<4xi8> {rlx.name = "x"}, %u: tensor<4xi8> {rlx.name = "u"}, %v: tensor<4xi8> {rlx.name = "v"}) -> (tensor<4xi8> {rlx.name = "y"}, tensor<4xi8> {rlx.name = "z"}) {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %t = rlx.constant() {value = dense<0.25> : tensor<f32>} : tensor<f32>
  %o = rlx.constant() {value = dense<-7> : tensor<i32>} : tensor<i32>
  %c = rlx.constant() {value = dense<[0.5, 0.25, 0.5, 1.0]> : tensor<4xf32>} : tensor<4xf32>
  %n = rlx.constant() {value = dense<0> : tensor<4xi32>} : tensor<4xi32>
  %0 = rlx.dequantize(%x, %s, %z) : (tensor<4xi8>, tensor<f32>, tensor<i32>) -> tensor<4xf32>
  %1 = rlx.dequantize(%u, %s, %z) : (tensor<4xi8>, tensor<f32>, tensor<i32>) -> tensor<4xf32>
  %2 = rlx.dequantize(%v, %c, %n) {axis = 0} : (tensor<4xi8>, tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  %3 = rlx.binary(%0, %1) {kind = "add"} : tensor<4xf32>
  %4 = rlx.binary(%3, %2) {kind = "add"} : tensor<4xf32>
  %5 = rlx.quantize(%4, %t, %o) {dtype = i8} : (tensor<4xf32>, tensor<f32>, tensor<i32>) -> tensor<4xi8>
  %6 = rlx.reverse(%u) {axes = array<i64: 0>} : tensor<4xi8>
  return %5, %6 : tensor<4xi8>, tensor<4xi8>
}
