// RUN: rlx-opt %s --rlx-drop-fake-quantize | filecheck %s

// Activations are taken as they are; weights keep the scale that they were trained with.
// CHECK: [[W:%.+]]:2 = rlx.fake_quantize(%arg1
// CHECK-NOT: rlx.fake_quantize
// CHECK: rlx.matmul(%arg0, [[W]]#0)
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {rlx.kind = "param"}) -> tensor<4x3xf32> {
  %0, %s = rlx.fake_quantize(%x) {bits = 8, decay = 0.99 : f64, scale_mode = "per_batch", ste = "identity"} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<f32>)
  %1, %t = rlx.fake_quantize(%w) {axis = 1, bits = 4, decay = 0.99 : f64, scale_mode = "per_batch", ste = "identity"} : (tensor<8x3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>)
  %2 = rlx.matmul(%0, %1) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
