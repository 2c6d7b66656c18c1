// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-globals --rlx-iree-in-place-updates | filecheck %s

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
// States that are computed from each other's old values are overwritten by one kernel, which reads both before it writes.
// CHECK-LABEL: func.func @exchange
// CHECK: [[S:%.*]] = "util.global.load"() {global = @state.s}
// CHECK: [[T:%.*]] = "util.global.load"() {global = @state.t}
// CHECK: [[BOTH:%.*]]:2 = "flow.dispatch.workgroups"([[T]], [[S]])
// CHECK: tied_operands = [0 : index, 1 : index]
// CHECK-DAG: "util.global.store"([[BOTH]]#1) {global = @state.s}
// CHECK-DAG: "util.global.store"([[BOTH]]#0) {global = @state.t}
func.func @exchange(%s: tensor<4xf32> {rlx.kind = "state", rlx.name = "s"}, %t: tensor<4xf32> {rlx.kind = "state", rlx.name = "t"})
    -> (tensor<4xf32> {rlx.updates = "s"}, tensor<4xf32> {rlx.updates = "t"}) {
  %0 = rlx.activation(%t) {kind = "neg"} : tensor<4xf32>
  %1 = rlx.binary(%s, %t) {kind = "sub"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// A state that another kernel reads is not overwritten.
// CHECK-LABEL: func.func @after
// CHECK: [[P:%.*]] = "util.global.load"() {global = @state.p}
// CHECK: [[Q:%.*]] = "util.global.load"() {global = @state.q}
// CHECK-NOT: "flow.dispatch.workgroups"([[P]])
// CHECK: "flow.dispatch.workgroups"([[Q]], [[P]])
// CHECK: "util.global.store"({{.*}}) {global = @state.p}
func.func @after(%p: tensor<4xf32> {rlx.kind = "state", rlx.name = "p"}, %q: tensor<4xf32> {rlx.kind = "state", rlx.name = "q"})
    -> (tensor<4xf32> {rlx.updates = "p"}, tensor<4xf32> {rlx.updates = "q"}) {
  %0 = rlx.activation(%p) {kind = "neg"} : tensor<4xf32>
  %1 = rlx.binary(%q, %p) {kind = "sub"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// The functions that set states come last.
// CHECK-LABEL: func.func @rlx.set.m
// CHECK: "flow.dispatch.workgroups"
