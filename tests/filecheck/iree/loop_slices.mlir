// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-loop-slices | filecheck %s

// What a loop reads rows of is computed before it.
// CHECK-LABEL: func.func @rows
// CHECK: [[XS:%.*]] = "util.optimization_barrier"(%arg1)
// CHECK: scf.for
// CHECK: tensor.extract_slice [[XS]]
func.func @rows(%a: tensor<4xf32>, %xs: tensor<6x4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a) -> (tensor<4xf32>) {
    %x = tensor.extract_slice %xs[%n, 0] [1, 4] [1, 1] : tensor<6x4xf32> to tensor<4xf32>
    %new = arith.addf %c, %x : tensor<4xf32>
    scf.yield %new : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// The rows of what a loop carries are its own.
// CHECK-LABEL: func.func @carried
// CHECK-NOT: util.optimization_barrier
func.func @carried(%a: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a) -> (tensor<6x4xf32>) {
    %x = tensor.extract_slice %c[%n, 0] [1, 4] [1, 1] : tensor<6x4xf32> to tensor<4xf32>
    %put = tensor.insert_slice %x into %c[%c0, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<6x4xf32>
    scf.yield %put : tensor<6x4xf32>
  }
  return %y : tensor<6x4xf32>
}
