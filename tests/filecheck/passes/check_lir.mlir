// RUN: rlx-opt %s --rlx-check-lir="for=rlx-to-linalg target=cpu" | filecheck %s
// RUN: rlx-opt %s --rlx-check-lir="ops=matmul,rlx.conv,activation,reshape" | filecheck %s
// RUN: rlx-opt %s --rlx-check-lir | filecheck %s
// RUN: not rlx-opt %s --rlx-check-lir="ops=matmul,reshape target=toy arch=numpy" 2>&1 | filecheck %s --check-prefix=OPS
// RUN: not rlx-opt %s --rlx-check-lir="for=rlx-to-linalg without=activation,conv target=toy arch=numpy" 2>&1 | filecheck %s --check-prefix=OPS
// RUN: not rlx-opt %s --rlx-check-lir="unsupported-dtypes=f64,i64 target=toy" 2>&1 | filecheck %s --check-prefix=DTYPES
// RUN: not rlx-opt %s --rlx-check-lir="empty=false" 2>&1 | filecheck %s --check-prefix=OTHERS
// RUN: not rlx-opt %s --rlx-check-lir="for=rlx-bind" 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not rlx-opt %s --rlx-check-lir="for=rlx-to-linal" 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not rlx-opt %s --rlx-check-lir="ops=matmull" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --rlx-check-lir="unsupported-dtypes=f64,float16" 2>&1 | filecheck %s --check-prefix=DTYPE

// OPS: check_lir.mlir: error: rlx-check-lir: 3 ops have no lowering for target toy (numpy):
// OPS-NEXT: check_lir.mlir:{{[0-9]+}}:{{[0-9]+}}: rlx.activation
// OPS-NEXT: check_lir.mlir:{{[0-9]+}}:{{[0-9]+}}: rlx.conv
// OPS-NEXT: check_lir.mlir:{{[0-9]+}}:{{[0-9]+}}: rlx.conv
// OPS: write them as ops that the target has, or leave them out of the graph and compute them outside of the program
// DTYPES: target toy does not support some dtypes or ops:
// DTYPES-NEXT: input 'arg0' is f64
// DTYPES-NEXT: input 'arg1' is f64
// DTYPES-NEXT: rlx.matmul gives f64
// OTHERS: the target does not support some dtypes or ops:
// OTHERS-NEXT: input 'arg0' is f64[0, 2], which is empty
// OTHERS-NEXT: rlx.matmul gives f64[0, 3], which is empty
// PASS: 'rlx-bind' is not a lowering
// NONE: 'rlx-to-linal' is not a pass (did you mean 'rlx-to-linalg'?)
// DTYPE: option 'unsupported-dtypes': there is no dtype 'float16' (did you mean 'f16'?)
// UNKNOWN: there is no op 'matmull' (did you mean 'matmul'?)

// CHECK: module attributes {rlx.stage = "lir"}
module {
  // CHECK: rlx.matmul
  func.func @product(%x: tensor<0x2xf64>, %w: tensor<2x3xf64>) -> tensor<0x3xf64> {
    %0 = rlx.matmul(%x, %w) : (tensor<0x2xf64>, tensor<2x3xf64>) -> tensor<0x3xf64>
    return %0 : tensor<0x3xf64>
  }
  func.func @kernels(%x: tensor<1x2x8xf32>, %w: tensor<3x6xf32>) -> (tensor<1x3x6xf32>, tensor<1x3x6xf32>) {
    %0 = rlx.reshape(%w) {shape = [3, 2, 3]} : (tensor<3x6xf32>) -> tensor<3x2x3xf32>
    %1 = rlx.activation(%0) {kind = "relu"} : tensor<3x2x3xf32>
    %2 = rlx.conv(%x, %0) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<1x2x8xf32>, tensor<3x2x3xf32>) -> tensor<1x3x6xf32>
    %3 = rlx.conv(%x, %1) {dilation = array<i64: 1>, groups = 1, padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<1x2x8xf32>, tensor<3x2x3xf32>) -> tensor<1x3x6xf32>
    return %2, %3 : tensor<1x3x6xf32>, tensor<1x3x6xf32>
  }
}
