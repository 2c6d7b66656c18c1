// RUN: rlx-opt %s --rlx-quantize-insert="activations=dynamic" | filecheck %s
// RUN: rlx-opt %s --rlx-quantize-insert="activations=none keep=w" | filecheck %s --check-prefix=KEPT
// RUN: not rlx-opt %s --rlx-quantize-insert 2>&1 | filecheck %s --check-prefix=RECORD
// RUN: not rlx-opt %s --rlx-quantize-insert="activations=none keep=v" 2>&1 | filecheck %s --check-prefix=UNKNOWN

// RECORD: the scales of int8 activations come from a record
// UNKNOWN: there is no product 'v'
// UNKNOWN: products: w

// Rows of activations and columns of weights have scales of their own.
// CHECK: [[X:%.+]] = rlx.quantize(%arg0, {{.+}}) {axis = 0, dtype = i8}
// CHECK: [[XF:%.+]] = rlx.dequantize([[X]], {{.+}}) {axis = 0}
// CHECK: [[W:%.+]] = rlx.quantize(%arg1, {{.+}}) {axis = 1, dtype = i8}
// CHECK: [[WF:%.+]] = rlx.dequantize([[W]], {{.+}}) {axis = 1}
// CHECK: rlx.matmul([[XF]], [[WF]])

// KEPT-NOT: rlx.quantize
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {rlx.kind = "param", rlx.name = "w"}) -> tensor<4x3xf32> {
  %y = rlx.matmul(%x, %w) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
}
