// RUN: rlx-opt %s --rlx-iree-fence-loops | filecheck %s

// A carry that a step computes is fenced once; block arguments are not.
// CHECK-LABEL: func.func @main
// CHECK-NOT: util.optimization_barrier
// CHECK: linalg.exp
// CHECK: %[[FENCED:.*]] = "util.optimization_barrier"(%{{.*}})
// CHECK-NEXT: cf.cond_br %arg1, ^bb1(%[[FENCED]], %{{.*}} : tensor<4xf32>, tensor<4xf32>), ^bb2(%[[FENCED]] : tensor<4xf32>)
func.func @main(%x: tensor<4xf32>, %on: i1) -> tensor<4xf32> {
  cf.br ^bb1(%x, %x : tensor<4xf32>, tensor<4xf32>)
^bb1(%carry: tensor<4xf32>, %first: tensor<4xf32>):
  %new = linalg.exp ins(%carry : tensor<4xf32>) outs(%carry : tensor<4xf32>) -> tensor<4xf32>
  cf.cond_br %on, ^bb1(%new, %first : tensor<4xf32>, tensor<4xf32>), ^bb2(%new : tensor<4xf32>)
^bb2(%result: tensor<4xf32>):
  return %result : tensor<4xf32>
}
