// RUN: rlx-opt %s --allow-unregistered-dialect --rlx-iree-branches | filecheck %s

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

// Several tensors are passed on by a branch that goes to the same block in both cases.
// CHECK-LABEL: func.func @two
// CHECK: [[DEVICES:%.*]] = "util.call"
// CHECK: [[OTHER:%.*]] = arith.addi [[DEVICES]]
// CHECK: [[ALWAYS:%.*]] = arith.cmpi ne, [[DEVICES]]
// CHECK: cf.cond_br [[ALWAYS]], [[HEAD:\^bb[0-9]+]](%c0{{.*}}), [[HEAD]]([[OTHER]],
func.func @two(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y:2 = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a, %d = %a) -> (tensor<4xf32>, tensor<4xf32>) {
    %new = arith.addf %c, %d : tensor<4xf32>
    scf.yield %d, %new : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
}

// Each branch calls a function of its own: the compiler joins blocks that differ in nothing but what their ops take.
// CHECK-LABEL: func.func @several
// CHECK: callee = @devices_3}
// CHECK: callee = @devices_1}
// CHECK: callee = @devices_2}
func.func @several(%a: tensor<4xf32>, %b: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %y:2 = scf.if %b -> (tensor<4xf32>, tensor<4xf32>) {
    %z:2 = scf.for %n = %c0 to %c6 step %c1 iter_args(%c = %a, %d = %a) -> (tensor<4xf32>, tensor<4xf32>) {
      scf.yield %d, %c : tensor<4xf32>, tensor<4xf32>
    }
    scf.yield %z#0, %z#1 : tensor<4xf32>, tensor<4xf32>
  } else {
    scf.yield %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
}

// What follows a choice gets a number for that.
// CHECK-LABEL: func.func @choice
// CHECK: cf.cond_br %arg1
// CHECK: "util.status.check_ok"
func.func @choice(%a: tensor<4xf32>, %b: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %y:2 = scf.if %b -> (tensor<4xf32>, tensor<4xf32>) {
    %new = arith.negf %a : tensor<4xf32>
    scf.yield %new, %a : tensor<4xf32>, tensor<4xf32>
  } else {
    scf.yield %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
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
