// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-set-device='targets="[#hal.device.target<vulkan>]"' | filecheck %s
// RUN: not rlx-opt %s --allow-unregistered-dialect --rlx-iree-set-device 2>&1 | filecheck %s --check-prefix=EMPTY
// RUN: not rlx-opt %s --allow-unregistered-dialect --rlx-iree-set-device=targets=x 2>&1 | filecheck %s --check-prefix=WRONG

// CHECK: module attributes {hal.device.targets = [#hal.device.target<vulkan>]}
// EMPTY: targets is empty, and an attribute is expected
// WRONG: targets is no attribute
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
