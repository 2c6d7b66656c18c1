// RUN: rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/ranges.json" | filecheck %s
// RUN: rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/ranges.json bits=4" | filecheck %s --check-prefix=FOUR
// RUN: rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/ranges.json w=2" | filecheck %s --check-prefix=TWO
// RUN: not rlx-opt %s --rlx-quantize-values 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/ranges.json v=4" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/ranges.json w=3" 2>&1 | filecheck %s --check-prefix=BITS
// RUN: not rlx-opt %s --rlx-quantize-values="ranges=%S/inputs/other_ranges.json" 2>&1 | filecheck %s --check-prefix=OTHER

// NONE: the scales of values come from a file
// UNKNOWN: there is no product 'v'
// UNKNOWN: products: w
// BITS: weights have 8, 4 or 2 bits, not 3
// OTHER: the ranges have a 'matmul' where the graph has a 'activation'

// The product, its bias and the relu are rounded once.
// CHECK: [[WI:%.+]] = rlx.quantize(%arg1, {{.+}}) {axis = 1, dtype = i8}
// CHECK: [[W:%.+]] = rlx.dequantize([[WI]], {{.+}}) {axis = 1}
// CHECK: [[XI:%.+]] = rlx.quantize(%arg0, {{.+}}) {dtype = i8}
// CHECK: [[X:%.+]] = rlx.dequantize([[XI]]
// CHECK: [[P:%.+]] = rlx.matmul([[X]], [[W]])
// CHECK: [[S:%.+]] = rlx.binary([[P]], %arg2) {kind = "add"}
// CHECK: [[R:%.+]] = rlx.activation([[S]]) {kind = "relu"}
// CHECK: [[RI:%.+]] = rlx.quantize([[R]]
// CHECK: [[Y:%.+]] = rlx.dequantize([[RI]]
// CHECK: return [[Y]]

// FOUR: dense<7.0
// TWO: kind = "mean"
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {rlx.kind = "param", rlx.name = "w"}, %b: tensor<3xf32> {rlx.kind = "param"}) -> tensor<4x3xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = rlx.binary(%0, %b) {kind = "add"} : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %2 = rlx.activation(%1) {kind = "relu"} : tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
