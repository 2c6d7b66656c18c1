// RUN: rlx-opt %s --split-input-file --rlx-iree-materialise | filecheck %s

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>

// CHECK-LABEL: func.func @outer
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"
// CHECK: util.optimization_barrier"(%[[SUM]])
func.func @outer(%x: tensor<4x4xf32>, %zero: tensor<4xf32>, %out: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %s = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x4xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#i, #j, #ij], iterator_types = ["parallel", "parallel"]} ins(%s, %s : tensor<4xf32>, tensor<4xf32>) outs(%out : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// Twice at one position: the ops are fused.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: optimization_barrier
func.func @rows(%x: tensor<4x4xf32>, %zero: tensor<4xf32>, %out: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %s = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x4xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  %column = tensor.expand_shape %s [[0, 1]] output_shape [4, 1] : tensor<4xf32> into tensor<4x1xf32>
  %again = tensor.collapse_shape %column [[0, 1]] : tensor<4x1xf32> into tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#ij, #i, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%x, %s, %again : tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) outs(%out : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %e = arith.divf %d, %c : f32
    linalg.yield %e : f32
  } -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// -----

#mn = affine_map<(m, n) -> (m, n)>

// Through a transposition and an elementwise op, with sizes that are not known.
// CHECK-LABEL: func.func @symmetric
// CHECK: %[[PRODUCT:.*]] = linalg.matmul
// CHECK: util.optimization_barrier"(%[[PRODUCT]])
func.func @symmetric(%x: tensor<?x?xf32>, %out: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %p = linalg.matmul ins(%x, %x : tensor<?x?xf32>, tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) -> tensor<?x?xf32>
  %t = linalg.transpose ins(%p : tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) permutation = [1, 0]
  %r = linalg.generic {indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x?xf32>, tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
