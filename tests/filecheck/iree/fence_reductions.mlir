// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-fence-reductions \
// RUN:   --rlx-iree-set-device='targets="[#hal.device.target<vulkan>]"' | filecheck %s

// CHECK: module attributes {hal.device.targets = [#hal.device.target<vulkan>]}
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: "util.optimization_barrier"
// CHECK-NEXT: "flow.tensor.tie_shape"
func.func @main(%x: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?xf32, #rlx.dims<["n"]>> {
  %y = rlx.reduce(%x) {kind = "sum", axes = array<i64: 1>} : (tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?xf32, #rlx.dims<["n"]>>
  return %y : tensor<?xf32, #rlx.dims<["n"]>>
}
