// RUN: rlx-opt %s --rlx-to-c | filecheck %s
// RUN: not rlx-opt %s --rlx-to-c --rlx-to-c='x=1' 2>&1 | filecheck %s --check-prefix=OPTION

// OPTION: rlx-to-c has no option 'x'; it takes none

// CHECK: emitc.verbatim "// model.h
// CHECK-SAME: void layer_run(layer_state *state, const int8_t x[4], int8_t y[4]);
// CHECK: emitc.verbatim "// model.c
// CHECK-SAME: STEP void step_1_max(const int8_t *x, int8_t *y)
// CHECK: emitc.verbatim "// weights.h
// CHECK: emitc.verbatim "// weights.c
func.func @layer(%x: tensor<1x4xi8> {rlx.name = "x"}) -> (tensor<1x4xi8> {rlx.name = "y"}) {
  %zero = rlx.constant() {value = dense<3> : tensor<i8>} : tensor<i8>
  %y = rlx.binary(%x, %zero) {kind = "max"} : (tensor<1x4xi8>, tensor<i8>) -> tensor<1x4xi8>
  return %y : tensor<1x4xi8>
}
