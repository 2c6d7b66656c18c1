// RUN: not rlx-opt %s --rlx-check-plan 2>&1 | filecheck %s
// RUN: rlx-opt %s --rlx-plan-memory --rlx-check-plan | filecheck %s --check-prefix=AGAIN

// The second op was put in after the plan was made.
// CHECK: check_plan.mlir:11:10: error: {{.*}}the memory plan of 'main' is stale: 'tanh' is not in it
// CHECK: run rlx-plan-memory again
// AGAIN: rlx.activation({{.*}}) {kind = "tanh", rlx.memory = [{offset = 0, over = 0}]}
module {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> attributes {rlx.memory = {alignment = 64 : i64, allocate_constants = false, allocate_inputs = true, allocate_params = false, arena = 64 : i64, arguments = [{offset = 0 : i64}], f32_uniform = false, hoist_weights = false, in_place = true, sizes = {}}} {
    %0 = rlx.activation(%x) {kind = "exp", rlx.memory = [{offset = 0, over = 0}]} : tensor<16xf32>
    %1 = rlx.activation(%0) {kind = "tanh"} : tensor<16xf32>
    return %1 : tensor<16xf32>
  }
}
