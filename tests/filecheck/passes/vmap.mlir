// RUN: rlx-opt %s --rlx-vmap="batched=x:1 size=8" | filecheck %s
// RUN: rlx-opt %s --rlx-vmap="batched=x size=batch out-axes=1" | filecheck %s --check-prefix=SYMBOL
// RUN: not rlx-opt %s --rlx-vmap="batched=x:3 size=8" 2>&1 | filecheck %s --check-prefix=AXIS
// RUN: not rlx-opt %s --rlx-vmap="size=8" 2>&1 | filecheck %s --check-prefix=NONE

// AXIS: error: rlx-vmap: argument 'x': the batch axis 3 is out of range for rank 3
// NONE: error: rlx-vmap: no argument is batched

// CHECK-LABEL: func.func @main(%{{.*}}: tensor<2x8x3xf32> {rlx.kind = "input", rlx.name = "x"}, %{{.*}}: tensor<3x4xf32>
// CHECK-SAME: -> (tensor<8x2x4xf32> {rlx.name = "y"})
// CHECK: rlx.transpose(
// CHECK: rlx.matmul({{.*}}) : {{.*}}-> tensor<8x2x4xf32>
// SYMBOL-LABEL: func.func @main(%{{.*}}: tensor<?x2x3xf32, #rlx.dims<["batch"]>>
// SYMBOL-SAME: -> (tensor<2x?x4xf32, #rlx.dims<["batch"]>> {rlx.name = "y"})
func.func @main(%x: tensor<2x3xf32> {rlx.name = "x"}, %w: tensor<3x4xf32> {rlx.name = "w", rlx.kind = "param"})
    -> (tensor<2x4xf32> {rlx.name = "y"}) {
  %0 = rlx.matmul(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %1 = rlx.activation(%0) {kind = "tanh"} : tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
