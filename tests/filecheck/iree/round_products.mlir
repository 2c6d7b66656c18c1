// RUN: rlx-opt %s --rlx-iree-round-products | filecheck %s

#i = affine_map<(i) -> (i)>

// An elementwise product has no leave to be contracted.
// CHECK-LABEL: func.func @elementwise
// CHECK: [[ZERO:%.*]] = arith.constant -0.000000e+00 : f32
// CHECK: [[XY:%.*]] = math.fma %in, %in_0, [[ZERO]]
// CHECK-NEXT: arith.addf [[XY]], %in
// CHECK-NOT: arith.mulf
func.func @elementwise(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %m, %a : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// Nor have those that a product of complex numbers is made of.
// CHECK-LABEL: func.func @complex
// CHECK-COUNT-4: math.fma
// CHECK: complex.create
// CHECK-NOT: complex.mul
func.func @complex(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %e = tensor.empty() : tensor<4xcomplex<f32>>
  %z = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<4xcomplex<f32>>) outs(%e : tensor<4xcomplex<f32>>) {
  ^bb0(%a: complex<f32>, %o: complex<f32>):
    %m = complex.mul %a, %a : complex<f32>
    linalg.yield %m : complex<f32>
  } -> tensor<4xcomplex<f32>>
  return %z : tensor<4xcomplex<f32>>
}

// What is summed up in its own loop stays as it is.
// CHECK-LABEL: func.func @contraction
// CHECK: arith.mulf
// CHECK-NOT: math.fma
func.func @contraction(%x: tensor<4xf32>, %y: tensor<4xf32>, %start: tensor<f32>) -> tensor<f32> {
  %z = linalg.generic {indexing_maps = [#i, #i, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
      ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%start : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %z : tensor<f32>
}
