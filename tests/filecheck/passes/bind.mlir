// RUN: rlx-opt %s --rlx-bind="seq=4 batch=2" --check-numerics | filecheck %s
// RUN: rlx-opt %s --rlx-bind=seq=4 | filecheck %s --check-prefix=PART
// RUN: rlx-opt %s --rlx-bind="seq=2*batch" --check-numerics | filecheck %s --check-prefix=EXPR
// RUN: not rlx-opt %s --rlx-bind=sequ=4 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --rlx-bind=seq=-4 2>&1 | filecheck %s --check-prefix=NEGATIVE
// RUN: not rlx-opt %s --rlx-bind=seq=0 2>&1 | filecheck %s --check-prefix=RANGE

// UNKNOWN: bind.mlir: error: rlx-bind: the module has no symbol 'sequ' (did you mean 'seq'?)
// UNKNOWN: note: its symbols: batch, seq
// NEGATIVE: pipeline:1:10: error: option 'seq' takes a size, not '-4'
// RANGE: bind.mlir:27:8: error: rlx-bind: 'rlx.narrow': a dimension cannot be negative

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg0: tensor<2x5x8xf32> {rlx.name = "x"}
// CHECK-SAME: -> tensor<10x8xf32>
// PART-LABEL: func.func @main(
// PART-SAME: %arg0: tensor<?x5x8xf32, #rlx.dims<["batch"]>>
// PART-SAME: -> tensor<?x8xf32, #rlx.dims<["5*batch"]>>
// EXPR-LABEL: func.func @main(
// EXPR-SAME: %arg0: tensor<?x?x8xf32, #rlx.dims<["batch", "2*batch+1"]>>
func.func @main(%x: tensor<?x?x8xf32, #rlx.dims<["batch", "seq+1"]>> {rlx.name = "x"}) -> tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>> {
  // CHECK: rlx.reshape(%arg0) {shape = [10, 8]} : (tensor<2x5x8xf32>) -> tensor<10x8xf32>
  // PART: rlx.reshape(%arg0) {shape = ["5*batch", 8]}
  %0 = rlx.reshape(%x) {shape = ["batch*seq+batch", 8]} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq+1"]>>) -> tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>>
  // CHECK: rlx.narrow({{.*}}) {axis = 1, length = [3], start = [1]}
  // PART: rlx.narrow({{.*}}) {axis = 1, length = [3], start = [1]}
  %1 = rlx.narrow(%x) {axis = 1, length = ["seq-1"], start = [1]} : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq+1"]>>) -> tensor<?x?x8xf32, #rlx.dims<["batch", "seq-1"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>>
}

// Other dialects' ops that carry such types follow.
// CHECK-LABEL: func.func @caller(
// CHECK: call @main(%arg0) : (tensor<2x5x8xf32>) -> tensor<10x8xf32>
func.func @caller(%x: tensor<?x?x8xf32, #rlx.dims<["batch", "seq+1"]>>) -> tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>> {
  %0 = func.call @main(%x) : (tensor<?x?x8xf32, #rlx.dims<["batch", "seq+1"]>>) -> tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>>
  return %0 : tensor<?x8xf32, #rlx.dims<["batch*seq+batch"]>>
}
