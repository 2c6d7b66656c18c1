// RUN: rlx-opt %s --rlx-iree-branches | filecheck %s

// CHECK-LABEL: func.func @loop
// CHECK: cf.br [[HEAD:\^bb[0-9]+]](%c0, %arg0
// CHECK-NEXT: [[HEAD]]([[N:%.*]]: index, [[C:%.*]]: tensor<4xf32>)
// CHECK-NEXT: [[AGAIN:%.*]] = arith.cmpi slt, [[N]], %c6
// CHECK-NEXT: cf.cond_br [[AGAIN]]
// CHECK-NOT: scf.
func.func @loop(%a: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a) -> (tensor<4xf32>) {
    %new = arith.addf %c, %c : tensor<4xf32>
    scf.yield %new : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// A choice inside of a kernel stays.
// CHECK-LABEL: func.func @kernel
// CHECK: scf.if
func.func @kernel(%a: tensor<4xf32>, %b: i1) -> tensor<4xf32> {
  %y = tensor.generate {
  ^bb0(%i: index):
    %v = tensor.extract %a[%i] : tensor<4xf32>
    %w = scf.if %b -> f32 {
      scf.yield %v : f32
    } else {
      %n = arith.negf %v : f32
      scf.yield %n : f32
    }
    tensor.yield %w : f32
  } : tensor<4xf32>
  return %y : tensor<4xf32>
}
