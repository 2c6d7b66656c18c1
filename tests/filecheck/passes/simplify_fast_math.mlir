// RUN: rlx-opt %s --rlx-simplify=fast-math=true | filecheck %s
// RUN: rlx-opt %s --rlx-simplify | filecheck %s --check-prefix=EXACT

// What is right for real numbers only happens when it is asked for.
// EXACT-LABEL: func.func @zeros
// EXACT-COUNT-5: rlx.binary
// CHECK-LABEL: func.func @zeros
// CHECK-DAG: [[ZERO:%.*]] = rlx.constant() {value = dense<0.000000e+00>
// CHECK-DAG: rlx.activation(%arg0) {kind = "neg"}
// CHECK-NOT: rlx.binary
// CHECK: return %arg0,
func.func @zeros(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %zero = rlx.constant() {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.binary(%x, %zero) {kind = "add"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %1 = rlx.binary(%x, %zero) {kind = "mul"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %2 = rlx.binary(%zero, %x) {kind = "sub"} : (tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
  %3 = rlx.binary(%x, %x) {kind = "sub"} : tensor<2xf32>
  %4 = rlx.binary(%x, %x) {kind = "div"} : tensor<2xf32>
  return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @functions
// CHECK-DAG: [[QUARTER:%.*]] = rlx.constant() {value = dense<2.500000e-01>
// CHECK-DAG: rlx.activation(%arg0) {kind = "rsqrt"}
// CHECK-DAG: rlx.binary(%arg0, [[QUARTER]]) {kind = "mul"}
// CHECK-DAG: rlx.binary(%arg0, %arg0) {kind = "mul"}
// CHECK-DAG: rlx.binary(%arg0, %arg1) {kind = "add"}
// CHECK-NOT: rlx.activation({{%.*}}) {kind = "log"}
// CHECK: return
func.func @functions(%x: tensor<2xf32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %one = rlx.constant() {value = dense<1.0> : tensor<f32>} : tensor<f32>
  %two = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %four = rlx.constant() {value = dense<4.0> : tensor<f32>} : tensor<f32>
  %root = rlx.activation(%x) {kind = "sqrt"} : tensor<2xf32>
  %0 = rlx.binary(%one, %root) {kind = "div"} : (tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = rlx.binary(%x, %four) {kind = "div"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %2 = rlx.binary(%x, %two) {kind = "pow"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %a = rlx.activation(%x) {kind = "exp"} : tensor<2xf32>
  %b = rlx.activation(%y) {kind = "exp"} : tensor<2xf32>
  %3 = rlx.binary(%a, %b) {kind = "mul"} : tensor<2xf32>
  %log = rlx.activation(%y) {kind = "log"} : tensor<2xf32>
  %4 = rlx.activation(%log) {kind = "exp"} : tensor<2xf32>
  return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @sums
// CHECK-NEXT: [[SUM:%.*]] = rlx.reduce(%arg0) {axes = array<i64: 0, 1>, keep_dims = false, kind = "sum"}
// CHECK-NEXT: [[SIX:%.*]] = rlx.constant() {value = dense<6.000000e+00>
// CHECK-NEXT: rlx.binary([[SUM]], [[SIX]]) {kind = "mul"}
// CHECK: [[BC:%.*]] = rlx.binary(%arg1, %arg2) {kind = "add"}
// CHECK-NEXT: [[ABC:%.*]] = rlx.binary(%arg0, [[BC]]) {kind = "mul"}
// CHECK-NOT: rlx.expand
// CHECK: return
func.func @sums(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>, %c: tensor<2x3xf32>) -> (tensor<f32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %two = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %three = rlx.constant() {value = dense<3.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.binary(%a, %two) {kind = "mul"} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %1 = rlx.binary(%0, %three) {kind = "mul"} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %2 = rlx.reduce(%1) {axes = array<i64: 1>, keep_dims = false, kind = "sum"} : (tensor<2x3xf32>) -> tensor<2xf32>
  %3 = rlx.reduce(%2) {axes = array<i64: 0>, keep_dims = false, kind = "sum"} : (tensor<2xf32>) -> tensor<f32>
  %ab = rlx.binary(%a, %b) {kind = "mul"} : tensor<2x3xf32>
  %ac = rlx.binary(%a, %c) {kind = "mul"} : tensor<2x3xf32>
  %4 = rlx.binary(%ab, %ac) {kind = "add"} : tensor<2x3xf32>
  %wide = rlx.expand(%b) {shape = [4, 2, 3]} : (tensor<2x3xf32>) -> tensor<4x2x3xf32>
  %5 = rlx.reduce(%wide) {axes = array<i64: 0>, keep_dims = false, kind = "mean"} : (tensor<4x2x3xf32>) -> tensor<2x3xf32>
  return %3, %4, %5 : tensor<f32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// The logarithm of complex numbers has a branch: log(exp(4i)) is not 4i.
// CHECK-LABEL: func.func @complex(
// CHECK: {kind = "log"}
func.func @complex(%z: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
  %0 = rlx.activation(%z) {kind = "exp"} : tensor<2xcomplex<f32>>
  %1 = rlx.activation(%0) {kind = "log"} : tensor<2xcomplex<f32>>
  return %1 : tensor<2xcomplex<f32>>
}
