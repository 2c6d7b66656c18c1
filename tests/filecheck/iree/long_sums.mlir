// RUN: rlx-opt %s --rlx-iree-long-sums | filecheck %s
// RUN: rlx-opt %s --rlx-iree-long-sums=shortest=8 | filecheck %s --check-prefix=EIGHT

#i = affine_map<(i) -> (i)>
#all = affine_map<(i) -> ()>

// CHECK-LABEL: func.func @long
// CHECK: [[ZERO:%.*]] = linalg.fill {{.*}} -> tensor<f64>
// CHECK: [[SUM:%.*]] = linalg.generic {{.*}} outs([[ZERO]] : tensor<f64>)
// CHECK: math.absf %in : f32
// CHECK: arith.extf {{.*}} : f32 to f64
// CHECK: arith.addf {{.*}} : f64
// CHECK: linalg.generic {{.*}} ins([[SUM]] : tensor<f64>)
// CHECK: arith.truncf {{.*}} : f64 to f32
func.func @long(%x: tensor<1024xf32>) -> tensor<f32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %z = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#i, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<1024xf32>) outs(%z : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %m = math.absf %a : f32
    %t = arith.addf %o, %m : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  return %s : tensor<f32>
}

// Short sums stay as they are, and greatest elements.
// CHECK-LABEL: func.func @short
// CHECK-NOT: f64
// EIGHT-LABEL: func.func @short
// EIGHT: arith.addf {{.*}} : f64
// EIGHT-NOT: arith.maximumf {{.*}} : f64
func.func @short(%x: tensor<8xf32>) -> (tensor<f32>, tensor<f32>) {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %z = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#i, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xf32>) outs(%z : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  %g = linalg.generic {indexing_maps = [#i, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xf32>) outs(%z : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.maximumf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  return %s, %g : tensor<f32>, tensor<f32>
}

// The size of a symbolic axis is not known when it is compiled.
// CHECK-LABEL: func.func @symbolic
// CHECK: arith.addf {{.*}} : f64
func.func @symbolic(%x: tensor<?x4xf32>) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>],
                       iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<?x4xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  return %s : tensor<4xf32>
}

// CHECK-LABEL: func.func @products
// CHECK: linalg.matmul ins({{.*}} : tensor<1x65536xf32>, tensor<65536x2xf32>) outs({{.*}} : tensor<1x2xf64>)
// CHECK: linalg.matmul ins({{.*}} : tensor<1x4096xf32>, tensor<4096x2xf32>) outs({{.*}} : tensor<1x2xf32>)
func.func @products(%a: tensor<1x65536xf32>, %b: tensor<65536x2xf32>, %c: tensor<1x4096xf32>, %d: tensor<4096x2xf32>)
    -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2xf32>) -> tensor<1x2xf32>
  %x = linalg.matmul ins(%a, %b : tensor<1x65536xf32>, tensor<65536x2xf32>) outs(%z : tensor<1x2xf32>) -> tensor<1x2xf32>
  %y = linalg.matmul ins(%c, %d : tensor<1x4096xf32>, tensor<4096x2xf32>) outs(%z : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %x, %y : tensor<1x2xf32>, tensor<1x2xf32>
}

// CHECK-LABEL: func.func @complex
// CHECK: complex.add {{.*}} : complex<f64>
func.func @complex(%x: tensor<1024xcomplex<f32>>) -> tensor<complex<f32>> {
  %c = complex.constant [0.0 : f32, 0.0 : f32] : complex<f32>
  %e = tensor.empty() : tensor<complex<f32>>
  %z = linalg.fill ins(%c : complex<f32>) outs(%e : tensor<complex<f32>>) -> tensor<complex<f32>>
  %s = linalg.generic {indexing_maps = [#i, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<1024xcomplex<f32>>) outs(%z : tensor<complex<f32>>) {
  ^bb0(%a: complex<f32>, %o: complex<f32>):
    %t = complex.add %o, %a : complex<f32>
    linalg.yield %t : complex<f32>
  } -> tensor<complex<f32>>
  return %s : tensor<complex<f32>>
}
