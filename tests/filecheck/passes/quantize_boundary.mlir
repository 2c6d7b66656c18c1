// RUN: rlx-opt %s --rlx-quantize-boundary | filecheck %s

// An input that is also read as floats stays.
// CHECK: func.func @main(%arg0: tensor<4xi8> {{.*}}rlx.name = "x"{{.*}}, %arg1: tensor<4xf32> {{.*}}rlx.name = "u"
// CHECK-SAME: -> (tensor<4xi8> {rlx.name = "y"}, tensor<4xf32>
// CHECK-SAME: attributes {rlx.quantized = {x = [5.000000e-01, 3], y = [5.000000e-01, 3]}}
// CHECK: [[R:%.+]] = rlx.reverse(%arg0)
// CHECK: rlx.quantize(%arg1
// CHECK: return [[R]]
func.func @main(%x: tensor<4xf32> {rlx.name = "x"}, %u: tensor<4xf32> {rlx.name = "u"}) -> (tensor<4xf32> {rlx.name = "y"}, tensor<4xf32> {rlx.name = "v"}, tensor<4xi8> {rlx.name = "w"}) {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %0 = rlx.quantize(%x, %s, %z) {dtype = i8} : (tensor<4xf32>, tensor<f32>, tensor<i32>) -> tensor<4xi8>
  %1 = rlx.reverse(%0) {axes = array<i64: 0>} : tensor<4xi8>
  %2 = rlx.dequantize(%1, %s, %z) : (tensor<4xi8>, tensor<f32>, tensor<i32>) -> tensor<4xf32>
  %3 = rlx.quantize(%u, %s, %z) {dtype = i8} : (tensor<4xf32>, tensor<f32>, tensor<i32>) -> tensor<4xi8>
  %4 = rlx.activation(%u) {kind = "tanh"} : tensor<4xf32>
  return %2, %4, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xi8>
}
