// RUN: rlx-opt %s --rlx-quantize-fold | filecheck %s
// RUN: rlx-opt %s --rlx-quantize-fold=requantise=false | filecheck %s --check-prefix=FLOATS

// A product, its bias and its relu become one product of integers: the least integer is 0.
// CHECK: rlx.q_matmul(%arg0, %arg1, {{.+}}, {{.+}}) {dtype = i8, out_zero_point = -128, w_zero_point = 0, x_zero_point = 5}
// CHECK-NOT: rlx.matmul
// CHECK-NOT: rlx.quantize

// FLOATS: rlx.q_matmul(%arg0, %arg1, _, {{[^,]+}}) {dtype = f32, out_zero_point = 0, w_zero_point = 0, x_zero_point = 5}
// FLOATS: kind = "relu"
// FLOATS: rlx.quantize
func.func @main(%x: tensor<4x8xi8>, %w: tensor<8x3xi8> {rlx.kind = "param", rlx.name = "w"}, %b: tensor<3xf32> {rlx.kind = "param", rlx.name = "b"}) -> tensor<4x3xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %five = rlx.constant() {value = dense<5> : tensor<i32>} : tensor<i32>
  %zero = rlx.constant() {value = dense<0> : tensor<i32>} : tensor<i32>
  %least = rlx.constant() {value = dense<-128> : tensor<i32>} : tensor<i32>
  %xf = rlx.dequantize(%x, %s, %five) : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  %wf = rlx.dequantize(%w, %s, %zero) : (tensor<8x3xi8>, tensor<f32>, tensor<i32>) -> tensor<8x3xf32>
  %p = rlx.matmul(%xf, %wf) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %a = rlx.binary(%p, %b) {kind = "add"} : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %r = rlx.activation(%a) {kind = "relu"} : tensor<4x3xf32>
  %q = rlx.quantize(%r, %s, %least) {dtype = i8} : (tensor<4x3xf32>, tensor<f32>, tensor<i32>) -> tensor<4x3xi8>
  return %q : tensor<4x3xi8>
}

// A bias that has no place in i32, in steps of the product, stays one of floats.
// CHECK-LABEL: @large
// CHECK: rlx.q_matmul(%arg0, %arg1, _, {{[^,]+}}) {dtype = f32
// CHECK: kind = "add"
// CHECK: rlx.quantize
func.func @large(%x: tensor<4x8xi8>, %w: tensor<8x3xi8> {rlx.kind = "param", rlx.name = "w"}) -> tensor<4x3xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %b = rlx.constant() {value = dense<[1.0, -1.0e9, 2.0]> : tensor<3xf32>} : tensor<3xf32>
  %zero = rlx.constant() {value = dense<0> : tensor<i32>} : tensor<i32>
  %xf = rlx.dequantize(%x, %s, %zero) : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  %wf = rlx.dequantize(%w, %s, %zero) : (tensor<8x3xi8>, tensor<f32>, tensor<i32>) -> tensor<8x3xf32>
  %p = rlx.matmul(%xf, %wf) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %a = rlx.binary(%p, %b) {kind = "add"} : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %q = rlx.quantize(%a, %s, %zero) {dtype = i8} : (tensor<4x3xf32>, tensor<f32>, tensor<i32>) -> tensor<4x3xi8>
  return %q : tensor<4x3xi8>
}
