// RUN: rlx-opt %s --rlx-to-linalg --allow-unregistered-dialect --rlx-iree-globals --rlx-iree-in-place-updates | filecheck %s

// A state that is computed from itself is overwritten, and filled when the program is loaded.
// CHECK: "util.global"() {is_mutable, sym_name = "state.m"
// CHECK: "util.initializer"
// CHECK: "flow.tensor.splat"
// CHECK-LABEL: func.func @step
// CHECK: [[OLD:%.*]] = "util.global.load"() {global = @state.m}
// CHECK: [[NEW:%.*]] = "flow.dispatch.workgroups"([[OLD]], %arg0)
// CHECK: tied_operands = [0 : index]
// CHECK: "util.global.store"([[NEW]]) {global = @state.m}
func.func @step(%x: tensor<4xf32>, %m: tensor<4xf32> {rlx.kind = "state", rlx.name = "m"}) -> (tensor<4xf32> {rlx.updates = "m"}) {
  %y = rlx.binary(%m, %x) {kind = "add"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
// CHECK-LABEL: func.func @rlx.set.m
// CHECK: "flow.dispatch.workgroups"
