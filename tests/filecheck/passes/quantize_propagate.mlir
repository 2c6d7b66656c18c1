// RUN: rlx-opt %s --rlx-quantize-propagate | filecheck %s

// Integers made floats, moved, and made integers again with the same scale, are moved as they are.
// CHECK-LABEL: func.func @cancelled
// CHECK-NEXT: [[R:%.+]] = rlx.reshape(%arg0) {shape = [8]} : (tensor<2x4xi8>) -> tensor<8xi8>
// CHECK-NEXT: return [[R]]
func.func @cancelled(%x: tensor<2x4xi8>) -> tensor<8xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %f = rlx.dequantize(%x, %s, %z) : (tensor<2x4xi8>, tensor<f32>, tensor<i32>) -> tensor<2x4xf32>
  %r = rlx.reshape(%f) {shape = [8]} : (tensor<2x4xf32>) -> tensor<8xf32>
  %q = rlx.quantize(%r, %s, %z) {dtype = i8} : (tensor<8xf32>, tensor<f32>, tensor<i32>) -> tensor<8xi8>
  return %q : tensor<8xi8>
}

// Rounding moves up, here to both parts.
// CHECK-LABEL: func.func @joined
// CHECK: [[A:%.+]] = rlx.quantize(%arg0
// CHECK: [[B:%.+]] = rlx.quantize(%arg1
// CHECK: rlx.concat([[A]], [[B]])
func.func @joined(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<5xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<0> : tensor<i32>} : tensor<i32>
  %c = rlx.concat(%a, %b) {axis = 0} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  %q = rlx.quantize(%c, %s, %z) {dtype = i8} : (tensor<5xf32>, tensor<f32>, tensor<i32>) -> tensor<5xi8>
  return %q : tensor<5xi8>
}

// With another scale, both stay.
// CHECK-LABEL: func.func @other_scale
// CHECK: rlx.dequantize
// CHECK: rlx.quantize
func.func @other_scale(%x: tensor<4xi8>) -> tensor<4xi8> {
  %s = rlx.constant() {value = dense<0.5> : tensor<f32>} : tensor<f32>
  %t = rlx.constant() {value = dense<0.25> : tensor<f32>} : tensor<f32>
  %z = rlx.constant() {value = dense<3> : tensor<i32>} : tensor<i32>
  %f = rlx.dequantize(%x, %s, %z) : (tensor<4xi8>, tensor<f32>, tensor<i32>) -> tensor<4xf32>
  %q = rlx.quantize(%f, %t, %z) {dtype = i8} : (tensor<4xf32>, tensor<f32>, tensor<i32>) -> tensor<4xi8>
  return %q : tensor<4xi8>
}

// Rounded once to the values of a scale, numbers stay as they are.
// CHECK-LABEL: func.func @fake
// CHECK: [[F:%[0-9]+]]:2 = rlx.fake_quantize
// CHECK: [[R:%.+]] = rlx.reshape([[F]]#0)
// CHECK-NEXT: return [[R]]
func.func @fake(%x: tensor<2x4xf32>, %s: tensor<f32>) -> tensor<8xf32> {
  %f, %a = rlx.fake_quantize(%x, %s) {bits = 8, scale_mode = "fixed"} : (tensor<2x4xf32>, tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>)
  %r = rlx.reshape(%f) {shape = [8]} : (tensor<2x4xf32>) -> tensor<8xf32>
  %g, %b = rlx.fake_quantize(%r, %s) {bits = 8, scale_mode = "fixed"} : (tensor<8xf32>, tensor<f32>) -> (tensor<8xf32>, tensor<f32>)
  return %g : tensor<8xf32>
}
