// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-loop-buffers | filecheck %s

// Two carries: each starts in a buffer of its own, and a stack, whose contents do not matter, with zeros.
// CHECK-LABEL: func.func @two
// CHECK: [[XS:%.*]] = "util.optimization_barrier"(%arg1)
// CHECK: arith.select
// CHECK: [[OUT:%.*]] = "hal.tensor.export"
// CHECK-NEXT: [[VIEW:%.*]] = "util.optimization_barrier"([[OUT]])
// CHECK-NEXT: [[A:%.*]] = "hal.tensor.import"([[VIEW]])
// CHECK: [[B:%.*]] = "hal.tensor.import"
// CHECK: scf.for {{.*}} iter_args({{.*}} = [[A]], {{.*}} = [[B]])
// CHECK: tensor.extract_slice [[XS]]
func.func @two(%a: tensor<4xf32>, %xs: tensor<6x4xf32>) -> (tensor<4xf32>, tensor<6x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %stack = tensor.empty() : tensor<6x4xf32>
  %y:2 = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a, %s = %stack) -> (tensor<4xf32>, tensor<6x4xf32>) {
    %x = tensor.extract_slice %xs[%n, 0] [1, 4] [1, 1] : tensor<6x4xf32> to tensor<4xf32>
    %new = arith.addf %c, %x : tensor<4xf32>
    %put = tensor.insert_slice %c into %s[%n, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<6x4xf32>
    scf.yield %new, %put : tensor<4xf32>, tensor<6x4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<6x4xf32>
}

// One carry needs none.
// CHECK-LABEL: func.func @one
// CHECK-NOT: hal.tensor.export
func.func @one(%a: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a) -> (tensor<4xf32>) {
    %new = arith.addf %c, %c : tensor<4xf32>
    scf.yield %new : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// What a step passes on twice has a buffer of its own the second time.
// CHECK-LABEL: func.func @twice
// CHECK: scf.for
// CHECK: [[COPY:%.*]] = "hal.tensor.import"
// CHECK-NEXT: scf.yield [[C:%.*]], [[COPY]]
func.func @twice(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y:2 = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a, %d = %a) -> (tensor<4xf32>, tensor<4xf32>) {
    scf.yield %c, %c : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
}
