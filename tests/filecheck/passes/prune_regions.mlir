// RUN: rlx-opt %s --rlx-prune-regions --canonicalize --check-numerics | filecheck %s

// The second carry depends on nothing but itself, the second stack is not read, and so the second slice is not either.
// CHECK-LABEL: func.func @main(
// CHECK: %[[S:.*]]:2 = rlx.scan(%arg0, %arg1) {length = [4], num_carries = 1, reverse = false} :
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<2xf32>, %{{.*}}: tensor<2xf32>):
// CHECK-NEXT: rlx.binary(
// CHECK-NEXT: rlx.yield
// CHECK: return %[[S]]#0, %[[S]]#1
func.func @main(%c: tensor<2xf32>, %xs: tensor<4x2xf32>, %d: tensor<2xf32>, %ys: tensor<4x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>) {
  %0:4 = rlx.scan(%c, %d, %xs, %ys) {length = [4], num_carries = 2, reverse = false} : (tensor<2xf32>, tensor<2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>, %x: tensor<2xf32>, %y: tensor<2xf32>):
    %1 = rlx.binary(%a, %x) {kind = "add"} : tensor<2xf32>
    %2 = rlx.binary(%b, %y) {kind = "mul"} : tensor<2xf32>
    rlx.yield %1, %2, %a, %y : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  return %0#0, %0#2 : tensor<2xf32>, tensor<4x2xf32>
}
