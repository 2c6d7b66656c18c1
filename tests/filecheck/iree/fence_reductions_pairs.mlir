// RUN: rlx-opt %s --rlx-iree-fence-reductions | filecheck %s

// A reduction that combines all pairs of computed numbers reads them from memory.
// CHECK: arith.negf
// CHECK: %[[FENCED:.*]] = "util.optimization_barrier"(%{{.*}})
// CHECK-NEXT: linalg.generic {{.*}} ins(%[[FENCED]], %[[FENCED]] :
func.func @pairs(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = tensor.empty() : tensor<3xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%x : tensor<3xf32>) outs(%0 : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<3xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%1, %1 : tensor<3xf32>, tensor<3xf32>) outs(%0 : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %m, %c : f32
    linalg.yield %s : f32
  } -> tensor<3xf32>
  return %2 : tensor<3xf32>
}
