// RUN: rlx-opt %s --rlx-iree-shorten-names | filecheck %s
// RUN: rlx-opt %s --rlx-iree-shorten-names --rlx-iree-shorten-names --rlx-outline-weights | filecheck %s

// IREE makes names of files of those of functions: the end of a long one becomes a hash.
// CHECK: func.func @short(
// CHECK: func.func @aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.{{[0-9a-f]+}}(
func.func @short(%x: tensor<2xf32> {rlx.name = "x"}) -> (tensor<2xf32> {rlx.name = "y"}) {
  return %x : tensor<2xf32>
}

func.func @aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa(%x: tensor<2xf32> {rlx.name = "x"}) -> (tensor<2xf32> {rlx.name = "y"}) {
  return %x : tensor<2xf32>
}
