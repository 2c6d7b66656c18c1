// RUN: not rlx-opt %s --rlx-bind-params 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not rlx-opt %s --rlx-bind-params="file=%t" 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not rlx-opt %s --rlx-bind-params="file=%S/inputs/ranges.json" 2>&1 | filecheck %s --check-prefix=FORMAT

// What it does with a file is in tests/quantization/test_integer.py.
// NONE: the values of parameters come from a file
// MISSING: no such file
// FORMAT: ranges.json
func.func @main(%x: tensor<2x1xf32>, %w: tensor<1x3xf32> {rlx.kind = "param", rlx.name = "w"}) -> tensor<2x3xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<2x1xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
