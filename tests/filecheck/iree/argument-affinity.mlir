// RUN: rlx-opt %s --rlx-iree-argument-affinity | filecheck %s

// The tensors of a function with branches are placed on the device.

// CHECK-LABEL: func.func @branches
// CHECK-SAME: tensor<4xf32> {iree.abi.affinity = #hal.device.promise<@__device_0>}
// CHECK-SAME: i1)
// CHECK-SAME: tensor<4xf32> {iree.abi.affinity = #hal.device.promise<@__device_0>}
func.func @branches(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  cf.br ^bb1(%x : tensor<4xf32>)
^bb1(%y: tensor<4xf32>):
  cf.cond_br %c, ^bb1(%y : tensor<4xf32>), ^bb2
^bb2:
  return %y : tensor<4xf32>
}

// CHECK-LABEL: func.func @straight
// CHECK-NOT: affinity
func.func @straight(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
