// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-globals --rlx-iree-initializers | filecheck %s

// What computes a parameter runs when the module is loaded, in front of all functions.
// CHECK-DAG: "util.global"() {sym_name = "param.main.weights0"
// CHECK-DAG: "util.global"() {initial_value = #flow.parameter.named<"model"::"w"> : tensor<4xf32>, sym_name = "param.w"
// CHECK: "util.initializer"() ({
// CHECK-NEXT: [[W:%.*]] = "util.global.load"() {global = @param.w}
// CHECK-NEXT: [[SUM:%.*]] = arith.addf [[W]], [[W]]
// CHECK-NEXT: "util.global.store"([[SUM]]) {global = @param.main.weights0}
// CHECK-NEXT: "util.return"()
// CHECK-NOT: @main.weights()
// CHECK: func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: [[P:%.*]] = "util.global.load"() {global = @param.main.weights0}
// CHECK-NEXT: arith.mulf %arg0, [[P]]
func.func private @main.weights(%w: tensor<4xf32> {rlx.kind = "param", rlx.name = "w"}) -> (tensor<4xf32> {rlx.name = "main.weights0"})
    attributes {rlx.prepares = "main"} {
  %sum = arith.addf %w, %w : tensor<4xf32>
  return %sum : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {rlx.name = "x"}, %p: tensor<4xf32> {rlx.kind = "param", rlx.name = "main.weights0"}) -> tensor<4xf32> {
  %y = arith.mulf %x, %p : tensor<4xf32>
  return %y : tensor<4xf32>
}
