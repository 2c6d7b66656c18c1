// RUN: rlx-opt %s --rlx-plan-memory | filecheck %s
// RUN: rlx-opt %s --rlx-plan-memory --rlx-check-plan | filecheck %s
// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-plan-memory{params alignment=16})" | filecheck %s --check-prefix=PARAMS
// RUN: rlx-opt %s --pass-pipeline="builtin.module(rlx-plan-memory{in-place=false})" | filecheck %s --check-prefix=APART

// CHECK-LABEL: func.func @chain(
// CHECK-SAME: rlx.memory = {alignment = 64 : i64, allocate_constants = false, allocate_inputs = true, allocate_params = false, arena = 256 : i64, arguments = [{offset = 0 : i64}, {}]
// CHECK: rlx.activation({{.*}}) {kind = "exp", rlx.memory = [{offset = 0, over = 0}]}
// CHECK: rlx.reshape({{.*}}) {rlx.memory = [{offset = 0, view = 0}], shape = [8, 8]}
// CHECK: rlx.softmax({{.*}}rlx.memory = [{offset = 0, over = 0}]
// PARAMS-LABEL: func.func @chain(
// PARAMS-SAME: alignment = 16 : i64, {{.*}} arena = 288 : i64, arguments = [{offset = 0 : i64}, {offset = 256 : i64}]
// APART-LABEL: func.func @chain(
// APART-SAME: arena = 512 : i64
func.func @chain(%x: tensor<4x16xf32>, %w: tensor<8xf32> {rlx.kind = "param", rlx.name = "w"}) -> tensor<8x8xf32> {
  %0 = rlx.activation(%x) {kind = "exp"} : tensor<4x16xf32>
  %1 = rlx.reshape(%0) {shape = [8, 8]} : (tensor<4x16xf32>) -> tensor<8x8xf32>
  %2 = rlx.binary(%1, %w) {kind = "add"} : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %3 = rlx.softmax(%2) {axis = 1} : tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}

// The carry is computed where it lies, and the slice is a part of its operand.
// CHECK-LABEL: func.func @scan(
// CHECK: rlx.scan({{.*}}rlx.memory = [{offset = [[C:[0-9]+]], over = 0}, {offset = {{[0-9]+}}}, {carry = 0, offset = [[C]]}, {offset = {{[0-9]+}}, row = 1}]
// CHECK: rlx.binary({{.*}}) {kind = "add", rlx.memory = [{offset = [[C]]}]}
// CHECK: rlx.yield {{.*}} {rlx.memory = [{within = true}, {}]}
func.func @scan(%x: tensor<16xf32>, %xs: tensor<4x16xf32>) -> (tensor<16xf32>, tensor<4x16xf32>) {
  %0:2 = rlx.scan(%x, %xs) {length = [4], num_carries = 1, reverse = false} : (tensor<16xf32>, tensor<4x16xf32>) -> (tensor<16xf32>, tensor<4x16xf32>) {
  ^bb0(%c: tensor<16xf32>, %row: tensor<16xf32>):
    %1 = rlx.binary(%c, %row) {kind = "add"} : tensor<16xf32>
    rlx.yield %1, %1 : tensor<16xf32>, tensor<16xf32>
  }
  return %0#0, %0#1 : tensor<16xf32>, tensor<4x16xf32>
}

// Both are computed where the concatenation has them.
// CHECK-LABEL: func.func @concat(
// CHECK: rlx.reverse({{.*}}rlx.memory = [{offset = [[R:[0-9]+]]}]
// CHECK: rlx.concat({{.*}}) {axis = 0, rlx.memory = [{offset = [[R]], parts = [0, 1]}]}
func.func @concat(%x: tensor<4x16xf32>) -> tensor<8x16xf32> {
  %0 = rlx.reverse(%x) {axes = array<i64: 0>} : tensor<4x16xf32>
  %1 = rlx.reverse(%x) {axes = array<i64: 1>} : tensor<4x16xf32>
  %2 = rlx.concat(%0, %1) {axis = 0} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}
