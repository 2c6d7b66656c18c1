// RUN: rlx-opt %s --rlx-precision | filecheck %s
// RUN: rlx-opt %s --rlx-precision="to=bf16 policy=always" | filecheck %s --check-prefix=ALWAYS
// RUN: rlx-opt %s --rlx-precision="policy=mixed keep=gelu" | filecheck %s --check-prefix=KEEP
// RUN: not rlx-opt %s --rlx-precision=to=f64 2>&1 | filecheck %s --check-prefix=DTYPE
// RUN: not rlx-opt %s --rlx-precision=policy=fast 2>&1 | filecheck %s --check-prefix=POLICY
// RUN: not rlx-opt %s --rlx-precision=keep=softmx 2>&1 | filecheck %s --check-prefix=NAME

// DTYPE: error: option 'to' is one of f16, bf16, not 'f64'
// POLICY: error: option 'policy' is one of mixed_conservative, mixed, always, custom, not 'fast'
// NAME: error: rlx-precision: there is no op or kind 'softmx' (did you mean 'softmax'?)

// CHECK-LABEL: func.func @boundary(
// CHECK-SAME: %arg0: tensor<2x4xf32> {rlx.name = "x"}
// CHECK-SAME: -> (tensor<2x4xf32>, tensor<2xi32>)
// ALWAYS-LABEL: func.func @boundary(
// KEEP-LABEL: func.func @boundary(
func.func @boundary(%x: tensor<2x4xf32> {rlx.name = "x"}, %w: tensor<4x4xf32> {rlx.kind = "param", rlx.name = "w"}) -> (tensor<2x4xf32>, tensor<2xi32>) {
  // CHECK-DAG: [[X:%[0-9]+]] = rlx.cast(%arg0) {dtype = f16}
  // CHECK-DAG: [[W:%[0-9]+]] = rlx.cast(%arg1) {dtype = f16}
  // CHECK: [[Y:%[0-9]+]] = rlx.matmul([[X]], [[W]]) : {{.*}}-> tensor<2x4xf16>
  // ALWAYS: rlx.matmul({{.*}}) : {{.*}}-> tensor<2x4xbf16>
  // KEEP: [[Y:%[0-9]+]] = rlx.matmul({{.*}}) : {{.*}}-> tensor<2x4xf16>
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  // CHECK: [[G:%[0-9]+]] = rlx.activation([[Y]]) {kind = "gelu"} : tensor<2x4xf16>
  // KEEP: [[WIDE:%[0-9]+]] = rlx.cast([[Y]]) {dtype = f32}
  // KEEP: rlx.activation([[WIDE]]) {kind = "gelu"} : tensor<2x4xf32>
  %1 = rlx.activation(%0) {kind = "gelu"} : tensor<2x4xf32>
  // CHECK: [[BACK:%[0-9]+]] = rlx.cast([[G]]) {dtype = f32}
  // CHECK: rlx.softmax([[BACK]]) {axis = 1} : tensor<2x4xf32>
  // ALWAYS: rlx.softmax({{.*}}) {axis = 1} : tensor<2x4xbf16>
  // KEEP: rlx.softmax({{.*}}) {axis = 1} : tensor<2x4xf16>
  %2 = rlx.softmax(%1) {axis = 1} : tensor<2x4xf32>
  // CHECK: rlx.argmax([[G]]) {{.*}} -> tensor<2xi32>
  %3 = rlx.argmax(%1) {axis = 1, keep_dims = false} : (tensor<2x4xf32>) -> tensor<2xi32>
  return %2, %3 : tensor<2x4xf32>, tensor<2xi32>
}

// A constant that f16 cannot hold keeps the arithmetic around it in f32, unless everything has to be lowered.
// CHECK-LABEL: func.func @range(
// ALWAYS-LABEL: func.func @range(
func.func @range(%x: tensor<4x4xf32> {rlx.name = "x"}, %keep: tensor<4xi1> {rlx.name = "keep"}) -> tensor<4x4xf32> {
  // CHECK: rlx.constant() {value = dense<-1.000000e+09> : tensor<f32>}
  // ALWAYS: rlx.constant() {value = dense<{{.*}}> : tensor<bf16>}
  %c = rlx.constant() {value = dense<-1.0e9> : tensor<f32>} : tensor<f32>
  // CHECK: rlx.cast(%arg1) {dtype = f32}
  // ALWAYS: rlx.cast(%arg1) {dtype = bf16} : (tensor<4xi1>) -> tensor<4xbf16>
  %0 = rlx.cast(%keep) {dtype = f32} : (tensor<4xi1>) -> tensor<4xf32>
  // CHECK: rlx.binary({{.*}}) {kind = "mul"} : {{.*}}-> tensor<4xf32>
  // ALWAYS: rlx.binary({{.*}}) {kind = "mul"} : {{.*}}-> tensor<4xbf16>
  %1 = rlx.binary(%0, %c) {kind = "mul"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK: rlx.matmul({{.*}}) : tensor<4x4xf16>
  %2 = rlx.matmul(%x, %x) : tensor<4x4xf32>
  // CHECK: rlx.binary({{.*}}) {kind = "add"} : {{.*}}-> tensor<4x4xf32>
  %3 = rlx.binary(%2, %1) {kind = "add"} : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// Integers, bool, f64 and c64 are not touched.
// ALWAYS-LABEL: func.func @untouched(
// ALWAYS-NOT: bf16
func.func @untouched(%i: tensor<3xi32> {rlx.name = "i"}, %d: tensor<3xf64> {rlx.name = "d"}, %z: tensor<3xcomplex<f32>> {rlx.name = "z"}) -> (tensor<3xi32>, tensor<3xf64>, tensor<3xf32>) {
  %0 = rlx.binary(%i, %i) {kind = "mul"} : tensor<3xi32>
  %1 = rlx.activation(%d) {kind = "exp"} : tensor<3xf64>
  // ALWAYS: rlx.activation(%arg2) {kind = "abs"} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  %2 = rlx.activation(%z) {kind = "abs"} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  return %0, %1, %2 : tensor<3xi32>, tensor<3xf64>, tensor<3xf32>
}
