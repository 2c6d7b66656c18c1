// RUN: rlx-opt %s --rlx-to-linalg --rlx-iree-materialise | filecheck %s

// An activation that two products read is computed once; one that one product reads is not kept apart.
// CHECK-LABEL: func.func @two_products
// CHECK: math.absf
// CHECK: [[H:%.*]] = "util.optimization_barrier"
// CHECK: linalg.matmul ins([[H]]
// CHECK: linalg.transpose ins([[H]]
func.func @two_products(%x: tensor<5x6xf32>, %w: tensor<6x7xf32>, %y: tensor<5x3xf32>) -> (tensor<5x7xf32>, tensor<6x3xf32>) {
  %h = rlx.activation(%x) {kind = "gelu"} : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %a = rlx.matmul(%h, %w) : (tensor<5x6xf32>, tensor<6x7xf32>) -> tensor<5x7xf32>
  %t = rlx.transpose(%h) {perm = array<i64: 1, 0>} : (tensor<5x6xf32>) -> tensor<6x5xf32>
  %b = rlx.matmul(%t, %y) : (tensor<6x5xf32>, tensor<5x3xf32>) -> tensor<6x3xf32>
  return %a, %b : tensor<5x7xf32>, tensor<6x3xf32>
}

// CHECK-LABEL: func.func @one_product
// CHECK-NOT: util.optimization_barrier
func.func @one_product(%x: tensor<5x6xf32>, %w: tensor<6x7xf32>) -> tensor<5x7xf32> {
  %h = rlx.activation(%x) {kind = "gelu"} : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %a = rlx.matmul(%h, %w) : (tensor<5x6xf32>, tensor<6x7xf32>) -> tensor<5x7xf32>
  return %a : tensor<5x7xf32>
}

// A product that becomes part of a complex number.
// CHECK-LABEL: func.func @complex
// CHECK: linalg.matmul
// CHECK-NEXT: "util.optimization_barrier"
func.func @complex(%x: tensor<5x6xf32>, %w: tensor<6x7xf32>) -> tensor<5x7xcomplex<f32>> {
  %a = rlx.matmul(%x, %w) : (tensor<5x6xf32>, tensor<6x7xf32>) -> tensor<5x7xf32>
  %z = rlx.complex(%a, %a) : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xcomplex<f32>>
  return %z : tensor<5x7xcomplex<f32>>
}

// A slice with strides, of which single elements are looked up.
// CHECK-LABEL: func.func @looked_up
// CHECK: [[SLICE:%.*]] = tensor.extract_slice
// CHECK: [[KEPT:%.*]] = "util.optimization_barrier"([[SLICE]])
// CHECK: tensor.extract [[KEPT]]
func.func @looked_up(%x: tensor<6x8xf32>, %i: tensor<3xi32>) -> tensor<3x4xf32> {
  %s = rlx.slice(%x) {starts = [0, 0], limits = [6, 8], strides = array<i64: 1, 2>} : (tensor<6x8xf32>) -> tensor<6x4xf32>
  %y = rlx.gather(%s, %i) {axis = 0} : (tensor<6x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// Rows of a batched product that are computed: they are no whole number of tiles.
// CHECK-LABEL: func.func @batched
// CHECK: [[ROWS:%.*]] = "util.optimization_barrier"
// CHECK: linalg.batch_matmul ins([[ROWS]], %arg1
func.func @batched(%x: tensor<2x5x6xf32>, %w: tensor<2x6x7xf32>) -> tensor<2x5x7xf32> {
  %h = rlx.activation(%x) {kind = "relu"} : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  %y = rlx.matmul(%h, %w) : (tensor<2x5x6xf32>, tensor<2x6x7xf32>) -> tensor<2x5x7xf32>
  return %y : tensor<2x5x7xf32>
}

// With dynamic sizes both operands are; their sizes are those that the program was given.
// CHECK-LABEL: func.func @dynamic
// CHECK: [[N:%.*]] = tensor.dim
// CHECK: [[ROWS:%.*]] = "util.optimization_barrier"
// CHECK-NEXT: [[TIED:%.*]] = "flow.tensor.tie_shape"([[ROWS]], [[N]])
// CHECK: linalg.batch_matmul ins([[TIED]],
func.func @dynamic(%x: tensor<2x?x6xf32, #rlx.dims<["n"]>>, %w: tensor<2x6x7xf32>) -> tensor<2x?x7xf32, #rlx.dims<["n"]>> {
  %h = rlx.activation(%x) {kind = "relu"} : (tensor<2x?x6xf32, #rlx.dims<["n"]>>) -> tensor<2x?x6xf32, #rlx.dims<["n"]>>
  %y = rlx.matmul(%h, %w) : (tensor<2x?x6xf32, #rlx.dims<["n"]>>, tensor<2x6x7xf32>) -> tensor<2x?x7xf32, #rlx.dims<["n"]>>
  return %y : tensor<2x?x7xf32, #rlx.dims<["n"]>>
}

// Two elements of a computed tensor, which one kernel would broadcast.
// CHECK-LABEL: func.func @two_elements
// CHECK: math.exp
// CHECK: [[Y:%.*]] = "util.optimization_barrier"
// CHECK: tensor.extract_slice [[Y]][0] [1] [1]
// CHECK: tensor.extract_slice [[Y]][1] [1] [1]
func.func @two_elements(%x: tensor<2xf32>, %z: tensor<3xf32>) -> tensor<3xf32> {
  %y = rlx.activation(%x) {kind = "exp"} : (tensor<2xf32>) -> tensor<2xf32>
  %a = rlx.slice(%y) {starts = [0], limits = [1], strides = array<i64: 1>} : (tensor<2xf32>) -> tensor<1xf32>
  %b = rlx.slice(%y) {starts = [1], limits = [2], strides = array<i64: 1>} : (tensor<2xf32>) -> tensor<1xf32>
  %c = rlx.binary(%a, %z) {kind = "mul"} : (tensor<1xf32>, tensor<3xf32>) -> tensor<3xf32>
  %d = rlx.binary(%b, %c) {kind = "add"} : (tensor<1xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %d : tensor<3xf32>
}
