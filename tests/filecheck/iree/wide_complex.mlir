// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-globals --rlx-iree-wide-complex | filecheck %s

// A parameter is a global of pairs, and a state one that is filled when the program is loaded.
// CHECK: type = tensor<3x2xf64>
// CHECK-NOT: initial_value
// CHECK: "util.initializer"
// CHECK: "util.global.store"({{.*}} : (tensor<3x2xf64>)
// CHECK: #flow.parameter.named<"model"::"w"> : tensor<3x2xf64>
// CHECK-LABEL: func.func @stored
// CHECK-COUNT-2: "util.global.load"() {{.*}} -> tensor<3x2xf64>
// CHECK: complex.create
// CHECK: arith.select
// CHECK: "util.global.store"({{.*}} : (tensor<3x2xf64>)
func.func @stored(
    %w: tensor<3xcomplex<f64>> {rlx.kind = "param", rlx.name = "w"},
    %s: tensor<3xcomplex<f64>> {rlx.kind = "state", rlx.name = "s", rlx.init = 1.5 : f64}
) -> (tensor<3xcomplex<f64>> {rlx.name = "y"}, tensor<3xcomplex<f64>> {rlx.name = "t", rlx.updates = "s"}) {
  %y = rlx.binary(%w, %s) {kind = "add"} : tensor<3xcomplex<f64>>
  %t = rlx.binary(%w, %y) {kind = "mul"} : tensor<3xcomplex<f64>>
  return %y, %t : tensor<3xcomplex<f64>>, tensor<3xcomplex<f64>>
}

// A constant is one of pairs, a fill is made of two, but for that which a sum starts from.
// CHECK-LABEL: func.func @written
// CHECK: arith.constant dense<{{.*}}> : tensor<2x2xf64>
// CHECK-COUNT-2: linalg.fill {{.*}} -> tensor<4xf64>
// CHECK: linalg.fill {{.*}} -> tensor<complex<f64>>
func.func @written(%x: tensor<5xcomplex<f64>>) -> (tensor<2xcomplex<f64>>, tensor<4xcomplex<f64>>, tensor<complex<f64>>) {
  %c = rlx.constant() {value = dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f64>>} : tensor<2xcomplex<f64>>
  %d = rlx.constant() {value = dense<(1.0, 2.0)> : tensor<complex<f64>>} : tensor<complex<f64>>
  %e = rlx.expand(%d) {shape = [4]} : (tensor<complex<f64>>) -> tensor<4xcomplex<f64>>
  %s = rlx.reduce(%x) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<5xcomplex<f64>>) -> tensor<complex<f64>>
  return %c, %e, %s : tensor<2xcomplex<f64>>, tensor<4xcomplex<f64>>, tensor<complex<f64>>
}
