// RUN: rlx-opt %s --rlx-float-products | filecheck %s
// RUN: rlx-opt %s --rlx-float-products --rlx-float-products | filecheck %s

// The sums of up to 1024 products of bytes are f32 numbers.
// CHECK-LABEL: func.func @bytes(
// CHECK: [[X:%.*]] = rlx.cast({{%.*}}) {dtype = f32} : (tensor<2x1024xi32>) -> tensor<2x1024xf32>
// CHECK-NEXT: [[Y:%.*]] = rlx.cast({{%.*}}) {dtype = f32} : (tensor<1024x3xi32>) -> tensor<1024x3xf32>
// CHECK-NEXT: [[P:%.*]] = rlx.matmul([[X]], [[Y]])
// CHECK-NEXT: [[I:%.*]] = rlx.cast([[P]]) {dtype = i32}
// CHECK-NEXT: return [[I]]
func.func @bytes(%x: tensor<2x1024xi8> {rlx.kind = "input", rlx.name = "x"}, %y: tensor<1024x3xi8> {rlx.kind = "input", rlx.name = "y"}) -> tensor<2x3xi32> {
  %a = rlx.cast(%x) {dtype = i32} : (tensor<2x1024xi8>) -> tensor<2x1024xi32>
  %b = rlx.cast(%y) {dtype = i32} : (tensor<1024x3xi8>) -> tensor<1024x3xi32>
  %c = rlx.matmul(%a, %b) : (tensor<2x1024xi32>, tensor<1024x3xi32>) -> tensor<2x3xi32>
  return %c : tensor<2x3xi32>
}

// A zero point of -128 gives 9 bits: the sum is split in two.
// CHECK-LABEL: func.func @zero_point(
// CHECK-COUNT-2: rlx.matmul({{.*}}) : (tensor<2x{{[0-9]+}}xf32>, tensor<{{[0-9]+}}x3xf32>) -> tensor<2x3xf32>
// CHECK: rlx.binary({{.*}}) {kind = "add"} : tensor<2x3xi32>
func.func @zero_point(%x: tensor<2x1024xi8> {rlx.kind = "input", rlx.name = "x"}, %y: tensor<1024x3xi8> {rlx.kind = "input", rlx.name = "y"}) -> tensor<2x3xi32> {
  %zero = rlx.constant() {value = dense<-128> : tensor<i32>} : () -> tensor<i32>
  %i = rlx.cast(%x) {dtype = i32} : (tensor<2x1024xi8>) -> tensor<2x1024xi32>
  %a = rlx.binary(%i, %zero) {kind = "sub"} : (tensor<2x1024xi32>, tensor<i32>) -> tensor<2x1024xi32>
  %b = rlx.cast(%y) {dtype = i32} : (tensor<1024x3xi8>) -> tensor<1024x3xi32>
  %c = rlx.matmul(%a, %b) : (tensor<2x1024xi32>, tensor<1024x3xi32>) -> tensor<2x3xi32>
  return %c : tensor<2x3xi32>
}

// Numbers of any size stay integers.
// CHECK-LABEL: func.func @unknown(
// CHECK-NOT: f32
// CHECK: return
func.func @unknown(%x: tensor<2x4xi32> {rlx.kind = "input", rlx.name = "x"}, %y: tensor<4x3xi8> {rlx.kind = "input", rlx.name = "y"}) -> tensor<2x3xi32> {
  %b = rlx.cast(%y) {dtype = i32} : (tensor<4x3xi8>) -> tensor<4x3xi32>
  %c = rlx.matmul(%x, %b) : (tensor<2x4xi32>, tensor<4x3xi32>) -> tensor<2x3xi32>
  return %c : tensor<2x3xi32>
}
