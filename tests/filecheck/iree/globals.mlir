// A pass may emit ops of IREE's dialects, and passes of MLIR may follow; a file with such ops is read again without a flag.
// RUN: rlx-opt %s --rlx-iree-globals | filecheck %s
// RUN: rlx-opt %s --rlx-iree-globals --cse --symbol-dce -o %t && rlx-opt %t | filecheck %s

// Parameters are read from outside, states start with a number.
// CHECK: "util.global"() {initial_value = dense<1.000000e+00> : tensor<4xf32>, is_mutable, sym_name = "state.m"
// CHECK: "util.global"() {initial_value = #flow.parameter.named<"model"::"w"> : tensor<4xf32>, sym_name = "param.w"
// CHECK: func.func @step(%arg0: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: [[W:%.*]] = "util.global.load"() {global = @param.w}
// CHECK-NEXT: [[M:%.*]] = "util.global.load"() {global = @state.m}
// CHECK-NEXT: [[NEW:%.*]] = arith.addf [[M]], %arg0
// CHECK-NEXT: "util.global.store"([[NEW]]) {global = @state.m}
// CHECK-NEXT: return [[W]]
func.func @step(%x: tensor<4xf32> {rlx.name = "x"}, %w: tensor<4xf32> {rlx.kind = "param", rlx.name = "w"},
                %m: tensor<4xf32> {rlx.init = 1.0 : f64, rlx.kind = "state", rlx.name = "m"})
    -> (tensor<4xf32>, tensor<4xf32> {rlx.updates = "m"}) {
  %new = arith.addf %m, %x : tensor<4xf32>
  return %w, %new : tensor<4xf32>, tensor<4xf32>
}
// CHECK: func.func @rlx.get.m() -> tensor<4xf32>
// CHECK: func.func @rlx.set.m(%arg0: tensor<4xf32>)
// CHECK-NEXT: "util.global.store"(%arg0) {global = @state.m}
