// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 | filecheck %s --check-prefix=CHOICE
// RUN: rlx-opt %s --rlx-iree-kernels='cpu=x86-64-v3 choice="auto -scan -vecmat"' | filecheck %s --check-prefix=WITHOUT
// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 --rlx-to-linalg --rlx-iree-emit-kernels=cpu=x86-64-v3 | filecheck %s

// A loop is chosen if all ops of its step have code in kernels.
// CHOICE-LABEL: func.func @loops
// CHOICE: rlx.scan({{.*}}) {length = [4], num_carries = 1, reverse = false, rlx.kernel = "scan"}
// CHOICE: rlx.scan({{.*}}) {length = [4], num_carries = 1, reverse = false} :
// WITHOUT-NOT: rlx.kernel

// The whole loop is one kernel. It takes the matrix, which the step uses from outside, and has memory for the product.
// CHECK: func.func private @kernel_scan_0_code
// CHECK: math.fma
// CHECK: func.func @kernel_scan_0(%arg0: !stream.binding, %arg1: !stream.binding, %arg2: !stream.binding, %arg3: !stream.binding, %arg4: !stream.binding)
// CHECK-LABEL: func.func @loops
// CHECK: %{{.*}}:3 = "flow.dispatch"(%arg0, %arg1)
// CHECK-SAME: entry_points = [@kernel_scan_0::@kernel_scan_0]
// CHECK: scf.for
func.func @loops(%h: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %0 = rlx.scan(%h) {length = [4], num_carries = 1, reverse = false} : (tensor<2x8xf32>) -> tensor<2x8xf32> {
  ^bb0(%carry: tensor<2x8xf32>):
    %2 = rlx.matmul(%carry, %w) : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %3 = rlx.activation(%2) {kind = "tanh"} : tensor<2x8xf32>
    rlx.yield %3 : tensor<2x8xf32>
  }
  %1 = rlx.scan(%h) {length = [4], num_carries = 1, reverse = false} : (tensor<2x8xf32>) -> tensor<2x8xf32> {
  ^bb0(%carry: tensor<2x8xf32>):
    %2 = rlx.activation(%carry) {kind = "cbrt"} : tensor<2x8xf32>
    rlx.yield %2 : tensor<2x8xf32>
  }
  return %0, %1 : tensor<2x8xf32>, tensor<2x8xf32>
}
