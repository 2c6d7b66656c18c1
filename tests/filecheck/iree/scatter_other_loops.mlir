// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-scatter | filecheck %s

// A loop that leaves out a row stays one.
// CHECK-LABEL: func.func @all_but_the_first
// CHECK: scf.for
func.func @all_but_the_first(%t: tensor<5x3xf32>, %i: tensor<4x1xindex>, %u: tensor<4x3xf32>) -> tensor<5x3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %y = scf.for %n = %c1 to %c4 step %c1 iter_args(%into = %t) -> (tensor<5x3xf32>) {
    %at = tensor.extract %i[%n, %c0] : tensor<4x1xindex>
    %row = tensor.extract_slice %u[%n, 0] [1, 3] [1, 1] : tensor<4x3xf32> to tensor<3xf32>
    %put = tensor.insert_slice %row into %into[%at, 0] [1, 3] [1, 1] : tensor<3xf32> into tensor<5x3xf32>
    scf.yield %put : tensor<5x3xf32>
  }
  return %y : tensor<5x3xf32>
}
