// RUN: rlx-opt %s --rlx-lapack=least=4 | filecheck %s
// RUN: rlx-opt %s --rlx-lapack=least=4 --rlx-lapack=least=4 | filecheck %s
// RUN: rlx-opt %s --rlx-lapack="without=cholesky least=4" | filecheck %s --check-prefix=WITHOUT
// RUN: rlx-opt %s --rlx-lapack="only-mark=true least=4" | filecheck %s --check-prefix=MARK

// The results of matrices that are not finite are NaN.
// CHECK-LABEL: func.func @cholesky
// CHECK: [[IS:%.*]] = rlx.compare({{.*}}) {kind = "eq"}
// CHECK: [[L:%.*]] = rlx.cholesky({{.*}}) {rlx.kernel = "lapack.spotrf"} : tensor<1x4x4xf32>
// CHECK: rlx.where([[IS]], [[L]]
// WITHOUT-LABEL: func.func @cholesky
// WITHOUT-NOT: rlx.kernel
// WITHOUT-LABEL: func.func @small
// MARK-LABEL: func.func @cholesky
// MARK-NEXT: rlx.cholesky(%arg0) {rlx.kernel = "lapack.spotrf"}
// MARK-NEXT: return
func.func @cholesky(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = rlx.cholesky(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// Small matrices, and matrices without elements, are left to the decompositions.
// CHECK-LABEL: func.func @small
// CHECK-NOT: rlx.kernel
// CHECK-LABEL: func.func @half
func.func @small(%a: tensor<8x3x3xf32>, %b: tensor<0x8x8xf32>) -> (tensor<8x3x3xf32>, tensor<0x8x8xf32>) {
  %0 = rlx.cholesky(%a) : (tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  %1 = rlx.cholesky(%b) : (tensor<0x8x8xf32>) -> tensor<0x8x8xf32>
  return %0, %1 : tensor<8x3x3xf32>, tensor<0x8x8xf32>
}

// 16-bit floats compute in f32. The batch may be symbolic.
// CHECK: [[A:%.*]] = rlx.where(
// CHECK: rlx.svd([[A]]) {rlx.kernel = "lapack.sgesdd"} : (tensor<?x6x5xf32, #rlx.dims<["2*batch"
func.func @half(%a: tensor<2x?x6x5xf16, #rlx.dims<["batch"]>>) -> tensor<2x?x5xf16, #rlx.dims<["batch"]>> {
  %0:3 = rlx.svd(%a) : (tensor<2x?x6x5xf16, #rlx.dims<["batch"]>>) -> (tensor<2x?x6x5xf16, #rlx.dims<["batch"]>>, tensor<2x?x5xf16, #rlx.dims<["batch"]>>, tensor<2x?x5x5xf16, #rlx.dims<["batch"]>>)
  return %0#1 : tensor<2x?x5xf16, #rlx.dims<["batch"]>>
}

// CHECK-LABEL: func.func @solve
// CHECK: [[F:%.*]]:3 = rlx.lu({{.*}}) {rlx.kernel = "lapack.dgetrf"}
// CHECK: [[P:%.*]] = rlx.gather_batched({{.*}}, [[F]]#2)
// CHECK: [[Y:%.*]] = rlx.triangular_solve([[F]]#0, [[P]]) {lower = true, rlx.kernel = "lapack.dtrsm", unit_diagonal = true}
// CHECK: rlx.triangular_solve([[F]]#0, [[Y]]) {lower = false, rlx.kernel = "lapack.dtrsm", unit_diagonal = false}
func.func @solve(%a: tensor<1x9x9xf64>, %b: tensor<1x9xf64>) -> tensor<1x9xf64> {
  %0 = rlx.batched_dense_solve(%a, %b) : (tensor<1x9x9xf64>, tensor<1x9xf64>) -> tensor<1x9xf64>
  return %0 : tensor<1x9xf64>
}

// Complex matrices have routines of their own, some with other names.
// CHECK-LABEL: func.func @complex
// CHECK: rlx.eigh({{.*}}) {rlx.kernel = "lapack.zheevd"}
// CHECK: rlx.qr({{.*}}) {rlx.kernel = "lapack.cgeqrf"}
func.func @complex(%a: tensor<4x4xcomplex<f64>>, %b: tensor<5x4xcomplex<f32>>) -> (tensor<4xf64>, tensor<4x4xcomplex<f32>>) {
  %0:2 = rlx.eigh(%a) : (tensor<4x4xcomplex<f64>>) -> (tensor<4xf64>, tensor<4x4xcomplex<f64>>)
  %1:2 = rlx.qr(%b) : (tensor<5x4xcomplex<f32>>) -> (tensor<5x4xcomplex<f32>>, tensor<4x4xcomplex<f32>>)
  return %0#0, %1#1 : tensor<4xf64>, tensor<4x4xcomplex<f32>>
}

// Very large and small matrices are scaled before: LAPACK's scaling does not work if denormals are flushed.
// CHECK-LABEL: func.func @eig
// CHECK: [[A:%.*]] = rlx.binary({{.*}}) {kind = "div"}
// CHECK: [[R:%.*]]:2 = rlx.eig([[A]]) {rlx.kernel = "lapack.sgeev"} : (tensor<1x4x4xf32>) -> (tensor<1x4xcomplex<f32>>, tensor<1x4x4xcomplex<f32>>)
// CHECK: rlx.binary([[R]]#0, {{.*}}) {kind = "mul"}
func.func @eig(%a: tensor<4x4xf32>) -> tensor<4xcomplex<f32>> {
  %0:2 = rlx.eig(%a) : (tensor<4x4xf32>) -> (tensor<4xcomplex<f32>>, tensor<4x4xcomplex<f32>>)
  return %0#0 : tensor<4xcomplex<f32>>
}
