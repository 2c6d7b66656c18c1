// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 | filecheck %s
// RUN: rlx-opt %s --rlx-iree-kernels='cpu=x86-64-v3 choice="auto -softmax"' | filecheck %s --check-prefix=WITHOUT
// RUN: rlx-opt %s --rlx-iree-kernels=cpu=aarch64 | filecheck %s --check-prefix=WITHOUT
// RUN: rlx-opt %s --rlx-iree-kernels='cpu=x86-64-v3 choice="off +row_softmax"' | filecheck %s

// A kernel is chosen for the last axis of f32, for sizes that are known and unknown.
// CHECK: rlx.softmax(%arg0) {axis = 1, rlx.kernel = "row_softmax"}
// CHECK: rlx.softmax(%arg1) {axis = 0}
// CHECK: rlx.softmax(%arg2) {axis = 1}
// WITHOUT-NOT: rlx.kernel
func.func @softmax(%x: tensor<4x?xf32, #rlx.dims<["n"]>>, %y: tensor<4x8xf32>, %z: tensor<4x8xf64>)
    -> (tensor<4x?xf32, #rlx.dims<["n"]>>, tensor<4x8xf32>, tensor<4x8xf64>) {
  %0 = rlx.softmax(%x) {axis = 1} : tensor<4x?xf32, #rlx.dims<["n"]>>
  %1 = rlx.softmax(%y) {axis = 0} : tensor<4x8xf32>
  %2 = rlx.softmax(%z) {axis = 1} : tensor<4x8xf64>
  return %0, %1, %2 : tensor<4x?xf32, #rlx.dims<["n"]>>, tensor<4x8xf32>, tensor<4x8xf64>
}
