// RUN: rlx-opt %s --rlx-simplify --canonicalize --check-numerics 2>&1 | filecheck %s
// RUN: not rlx-opt %s --convert-elementwise-to-linalg --arith-expand --foo.bar 2>&1 | filecheck %s --check-prefix=FLAG

// FLAG: unknown command line argument '--foo.bar'

// Ops of other dialects stand next to ours; a function that holds them is not evaluated, and a note says so.
// CHECK: rlx-opt: note: check-numerics: @mixed is not checked: it holds 'arith.constant'
// CHECK-LABEL: func.func @mixed(
// CHECK-NEXT: return %arg0, %arg1
func.func @mixed(%x: tensor<4xf32>, %i: i32) -> (tensor<4xf32>, i32) {
  %c0 = arith.constant 0 : i32
  %0 = arith.addi %i, %c0 : i32
  %1 = rlx.reshape(%x) {shape = [4]} : tensor<4xf32>
  return %1, %0 : tensor<4xf32>, i32
}
